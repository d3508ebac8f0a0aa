package audit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/journal"
)

// pruneSlack is which part of the time that entries are kept one may stay longer in the log of a former member. Each time
// that some are removed an entry about that is added: so these are few.
const pruneSlack = 50

// pruneFormer removes what is beyond the limits from the log of one that is certainly no member any more. Who only is away
// prunes its own log when it is back.
//
// An entry about that is added to the same log, which is then complete for everybody who verifies it, also for the
// member itself if it is let in again. In the end that entry is all that is left.
func pruneFormer(ctx context.Context, c *Chain, k limits) error {
	l := c.log
	former := func() bool { return l.opts.Members == nil || l.opts.Members.Former(c.Name) }
	if c.Own || c.queue == nil || k.since.IsZero() && k.bytes <= 0 || !former() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ackTime)
	defer cancel()
	last, err := outdatedFormer(ctx, c.queue, k)
	if err != nil || last.Seq == 0 {
		return err
	}
	gone, err := parse(last.Body)
	if err != nil {
		return err
	}
	end, seq, _, err := endOf(ctx, c.queue)
	if err != nil {
		return err
	}
	by := strings.TrimSpace("the master " + l.opts.Name)
	e := Entry{Kind: OfLog, Verdict: Noted, Who: Who{Source: by}, Fun: pruneFun, Time: time.Now().UTC(), Upto: gone.N, Hash: Hash(last.Body), Reason: "its master is not a member any more"}
	line, _, err := e.encode(nil, false, end)
	if err != nil {
		return err
	}
	if err := l.Record(ctx, Entry{Kind: OfLog, Verdict: Noted, Fun: pruneFun, Reason: fmt.Sprintf("the entries up to %d of the audit log of %s, which is not a member any more", gone.N, c.Name)}); err != nil {
		return err
	}
	if !former() {
		return nil
	}
	if err := c.queue.PutAfter(ctx, line, seq); err != nil {
		return err
	}
	l.opts.Log.Info("audit log of a former member pruned", "member", c.Name, "upto", gone.N)
	return c.queue.Remove(ctx, last.Seq)
}

// pruneFun is what entries about removed entries have as their function.
const pruneFun = "audit.prune"

// byAnother reports whether an entry is one that pruneFormer has added.
func byAnother(e *Entry) bool { return e.Kind == OfLog && e.Fun == pruneFun && e.Source != "" }

// outdatedFormer returns the last entry to remove, the zero Entry for none. Entries that pruneFormer has added go with
// the last one that the member itself has written.
func outdatedFormer(ctx context.Context, q *journal.Queue, k limits) (last journal.Entry, err error) {
	span, err := q.Span(ctx)
	if err != nil {
		return last, err
	}
	excess := int64(0)
	if k.bytes > 0 {
		excess = span.Bytes - k.bytes
	}
	due, left, begun := excess > 0, pruneLook, time.Now()
	own, stopped := 0, false
	err = each(ctx, q, span.First, span.Last, func(m journal.Entry) error {
		e, bad := parse(m.Body)
		if bad != nil { // it goes with the next one
			return nil
		}
		if !byAnother(&e) {
			if !m.Stored.Before(k.since) && excess <= 0 {
				stopped = true
				return errEnough
			}
			due = due || m.Stored.Before(k.since.Add(-k.slack))
			own++
		}
		last, excess = m, excess-m.Size
		if left--; left <= 0 || time.Since(begun) > pruneTime {
			stopped = true
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	if own == 0 || stopped && !due {
		return journal.Entry{}, err
	}
	return last, err
}
