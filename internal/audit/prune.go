package audit

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/brinebus/brine/internal/journal"
)

// errEnough stops reading early.
var errEnough = errors.New("enough was read")

// limits define which part of the audit log is kept.
type limits struct {
	since time.Time // keep entries from this time on; the zero value keeps the oldest too
	bytes int64     // size of the newest entries to keep; 0 means no limit
	look  int       // how many entries are looked at, and removed, at once; 0 means pruneLook
	// slack is how much longer than since an entry may stay in the log of a former member.
	slack time.Duration
}

// Limits of the entries that are removed at once: in a cluster each is read by a request of its own, and
// what is found has to be removed in time. The rest is removed afterwards.
const (
	pruneLook = 20_000
	pruneTime = ackTime / 3
)

// pruneMore is how long it is looked for more to remove.
const pruneMore = keepEvery / 2

// limits returns the limits of the options at the time now.
func (o *Options) limits(now time.Time) limits {
	k := limits{bytes: o.MaxBytes}
	if o.MaxAge > 0 {
		k.since, k.slack = now.Add(-o.MaxAge), o.MaxAge/pruneSlack
	}
	return k
}

// pruneAll calls prune until there is no more to remove, for some time.
func pruneAll(l *Log, k limits) error {
	for begun := time.Now(); ; {
		ctx, cancel := context.WithTimeout(l.life, ackTime)
		more, err := l.prune(ctx, k)
		cancel()
		if err != nil || !more || time.Since(begun) > pruneMore {
			return err
		}
	}
}

// prune removes entries beyond the limits, and reports whether there may be more. It first writes an entry about that:
// entries missing at the beginning without it were removed by someone else.
func (l *Log) prune(ctx context.Context, k limits) (more bool, err error) {
	last, more, err := l.outdated(ctx, k)
	if err != nil || last.Seq == 0 {
		return false, err
	}
	gone, err := parse(last.Body)
	if err != nil {
		return false, err
	}
	if err := l.Record(ctx, Entry{Kind: OfLog, Verdict: Noted, Fun: pruneFun, Upto: gone.N, Hash: Hash(last.Body)}); err != nil {
		return false, err
	}
	l.opts.Log.Info("audit log pruned", "upto", gone.N)
	l.removed.Store(&position{gone.N, Hash(last.Body)}) // before it is so, for a check that goes on meanwhile
	return more, l.opts.Queue.Remove(ctx, last.Seq)
}

// outdated returns the last entry to remove, the zero Entry for none, and whether it has not looked at all. The newest
// entry always stays.
func (l *Log) outdated(ctx context.Context, k limits) (last journal.Entry, more bool, err error) {
	span, err := l.opts.Queue.Span(ctx)
	if err != nil {
		return last, false, err
	}
	excess := int64(0)
	if k.bytes > 0 && span.Bytes > k.bytes {
		excess = span.Bytes - k.bytes/10*9 // remove a tenth at once, not single entries
	}
	left, begun := cmp.Or(k.look, pruneLook), time.Now()
	err = each(ctx, l.opts.Queue, span.First, span.Last, func(e journal.Entry) error {
		if !e.Stored.Before(k.since) && excess <= 0 || e.Seq == span.Last {
			return errEnough
		}
		if _, err := parse(e.Body); err == nil { // what is no entry goes with the next one that is
			last = e
		}
		excess -= e.Size
		if left--; left <= 0 || time.Since(begun) > pruneTime {
			more = true
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return last, more, err
}
