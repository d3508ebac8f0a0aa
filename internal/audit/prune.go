package audit

import (
	"context"
	"errors"
	"time"

	"github.com/brinebus/brine/internal/journal"
)

// errEnough ends a reading early.
var errEnough = errors.New("enough was read")

// limits are what of the audit log is kept.
type limits struct {
	since time.Time // entries from then on; the zero value keeps the oldest
	bytes int64     // of the newest; 0 is no limit
}

// limits are those of the options at the moment now.
func (o *Options) limits(now time.Time) limits {
	k := limits{bytes: o.MaxBytes}
	if o.MaxAge > 0 {
		k.since = now.Add(-o.MaxAge)
	}
	return k
}

// prune removes what is beyond the limits. An entry that says so comes first: what is
// missing at the beginning without one was taken.
func (l *Log) prune(ctx context.Context, k limits) error {
	last, err := l.outdated(ctx, k)
	if err != nil || last.Seq == 0 {
		return err
	}
	gone, err := parse(last.Body)
	if err != nil {
		return err
	}
	if err := l.Record(ctx, Entry{Kind: OfLog, Verdict: Noted, Fun: "audit.prune", Upto: gone.N, Hash: Hash(last.Body)}); err != nil {
		return err
	}
	l.opts.Log.Info("audit log pruned", "upto", gone.N)
	return l.opts.Queue.Remove(ctx, last.Seq)
}

// outdated returns the last entry that is to go, the zero Entry for none. The
// newest always stays.
func (l *Log) outdated(ctx context.Context, k limits) (last journal.Entry, err error) {
	span, err := l.opts.Queue.Span(ctx)
	if err != nil {
		return last, err
	}
	excess := int64(0)
	if k.bytes > 0 && span.Bytes > k.bytes {
		excess = span.Bytes - k.bytes/10*9 // a tenth at once, not one by one
	}
	err = each(ctx, l.opts.Queue, span.First, span.Last, func(e journal.Entry) error {
		if !e.Stored.Before(k.since) && excess <= 0 || e.Seq == span.Last {
			return errEnough
		}
		last = e
		excess -= e.Size
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return last, err
}
