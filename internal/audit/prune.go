package audit

import (
	"context"
	"errors"
	"time"

	"brine/internal/journal"
)

// errEnough ends a reading early.
var errEnough = errors.New("enough was read")

// prune removes what is older than MaxAge or beyond MaxBytes. An entry that says
// so comes first: what is missing at the beginning without one was taken.
func (l *Log) prune(ctx context.Context, now time.Time) error {
	last, err := l.outdated(ctx, now)
	if err != nil || last.Seq == 0 {
		return err
	}
	gone, err := parse(last.Body)
	if err != nil {
		return err
	}
	if err := l.Record(ctx, Entry{Kind: Trail, Verdict: Noted, Fun: "audit.prune", Upto: gone.N, Hash: Hash(last.Body)}); err != nil {
		return err
	}
	l.opts.Log.Info("audit trail pruned", "upto", gone.N)
	return l.opts.Queue.Remove(ctx, last.Seq)
}

// outdated returns the last entry that is to go, the zero Entry for none. The
// newest always stays.
func (l *Log) outdated(ctx context.Context, now time.Time) (last journal.Entry, err error) {
	span, err := l.opts.Queue.Span(ctx)
	if err != nil {
		return last, err
	}
	excess := int64(0)
	if l.opts.MaxBytes > 0 && span.Bytes > l.opts.MaxBytes {
		excess = span.Bytes - l.opts.MaxBytes/10*9 // a tenth at once, not one by one
	}
	err = each(ctx, l.opts.Queue, span.First, span.Last, func(e journal.Entry) error {
		old := l.opts.MaxAge > 0 && now.Sub(e.Stored) > l.opts.MaxAge
		if !old && excess <= 0 || e.Seq == span.Last {
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
