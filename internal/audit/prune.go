package audit

import (
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
}

// limits returns the limits of the options at the time now.
func (o *Options) limits(now time.Time) limits {
	k := limits{bytes: o.MaxBytes}
	if o.MaxAge > 0 {
		k.since = now.Add(-o.MaxAge)
	}
	return k
}

// prune removes entries beyond the limits. It first writes an entry about that: entries missing at
// the beginning without it were removed by someone else.
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

// outdated returns the last entry to remove, the zero Entry for none. The newest entry always
// stays.
func (l *Log) outdated(ctx context.Context, k limits) (last journal.Entry, err error) {
	span, err := l.opts.Queue.Span(ctx)
	if err != nil {
		return last, err
	}
	excess := int64(0)
	if k.bytes > 0 && span.Bytes > k.bytes {
		excess = span.Bytes - k.bytes/10*9 // remove a tenth at once, not single entries
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
