package audit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
)

// spoolLook is how often the Log looks whether what is in the spool can be stored.
const spoolLook = 250 * time.Millisecond

// spoolSender is the sender of the names of events from spools in the journal. No minion and no user
// can choose a name with the colon that is in each.
const spoolSender = "spool/"

// BookSpooled records, in the spool, a decision that allows a job, and the events with which the job
// begins. When it returns nil, both are on the disk of this member.
func (l *Log) BookSpooled(e Entry, jid salt.JID, events []event.Event, operator bool) error {
	e, err := l.finished(e)
	if err != nil {
		return err
	}
	if err := l.opts.Spool.job(e, jid, events, operator); err != nil {
		return fmt.Errorf("%w: %w", ErrUnwritten, err)
	}
	l.allowances.Add(1)
	return nil
}

// finished returns an entry as it is spooled: with its time, and no longer than the chain takes it.
func (l *Log) finished(e Entry) (Entry, error) {
	e.Time = time.Now().UTC()
	l.mu.Lock()
	defer l.mu.Unlock() // Repair may replace the key
	if len(l.damage) > 0 {
		l.unwritten++
		return e, l.refusal()
	}
	return e, e.shorten(l.digest, l.opts.Values)
}

// taken is finished for what has taken effect already: damage of the log does not prevent it, so its record is kept until
// Repair.
func (l *Log) taken(e Entry) (Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock() // as in finished
	if len(l.damage) > 0 {
		l.unwritten = max(0, l.unwritten-1) // Begin has counted it
	}
	return e, e.shorten(l.digest, l.opts.Values)
}

// write writes an entry about what takes no effect, without waiting.
func (l *Log) write(e Entry) error {
	if l.opts.Spool.Active() == nil {
		_, err := l.Begin(e)
		return err
	}
	e, err := l.finished(e)
	if err == nil {
		err = l.opts.Spool.note(e)
	}
	return err
}

// keepSpool stores what is in the spool as soon as that is possible, until Close.
func (l *Log) keepSpool() {
	defer l.opts.Spool.close()
	tick := time.NewTicker(spoolLook)
	defer tick.Stop()
	last := ""
	for {
		select {
		case <-tick.C:
		case <-l.stop:
			return
		}
		lost := l.opts.Spool.Active() // also without records: it notices a loss by that
		upto := l.opts.Spool.pending()
		if upto == 0 || l.Damaged() || lost != nil || l.opts.Journal.Err() != nil {
			continue
		}
		err := l.unspool(upto)
		if err == nil || l.life.Err() != nil {
			last = ""
			continue
		}
		if text := err.Error(); text != last {
			last = text
			l.opts.Log.Error("what was done while it could not be stored is not stored yet", "err", err)
		}
	}
}

// unspool stores what the spool has up to that record: each entry and each event once, although an
// earlier attempt may have stored some of them.
func (l *Log) unspool(upto uint64) error {
	ctx, cancel := context.WithTimeout(l.life, 2*ackTime)
	defer cancel()
	s := l.opts.Spool
	since, again, err := s.mark(l.spoolMark)
	if err != nil {
		return err
	}
	entries, err := l.beginSpooled(ctx, since, upto)
	for _, p := range entries {
		err = errors.Join(err, p.Wait(ctx))
	}
	if err == nil {
		err = l.storeSpooled(ctx, since, again, upto)
	}
	for _, flush := range []func() error{l.opts.Flush, s.opts.Durable} {
		if err == nil && flush != nil {
			err = flush()
		}
	}
	if err != nil {
		return err
	}
	removed, jobs, err := s.done(upto)
	if removed {
		l.opts.Log.Info("what was done while it could not be stored is stored now", "jobs", jobs, "entries", len(entries))
	}
	return err
}

// spoolMark returns what the chain and the journal end with, at least. What is under way is waited for: if it were
// not stored, what is stored next would count as older than the mark.
func (l *Log) spoolMark() (spoolMark, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.opts.Queue.Err(); err != nil {
		return spoolMark{}, err // what is under way gets no answer, and each decision would wait for the same
	}
	l.flying.Wait()
	if err := l.usable(); err != nil {
		return spoolMark{}, err
	}
	return spoolMark{Audit: l.seq, Journal: l.opts.Journal.Stored()}, nil
}

// beginSpooled begins to write the entries of the spool that are not in the chain. Nobody writes
// between the look at the chain and that: what is under way is in the chain when the first of them
// is accepted, or that fails.
func (l *Log) beginSpooled(ctx context.Context, since spoolMark, upto uint64) (list []*Pending, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return nil, err
	}
	s, stored := l.opts.Spool, uint64(0)
	err = each(ctx, l.opts.Queue, since.Audit+1, l.seq, func(q journal.Entry) error {
		if e, err := parse(q.Body); err == nil { // what is no entry is told by Verify
			stored = max(stored, s.number(e.Spooled))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = s.each(upto, func(r spooled) error {
		if r.Entry == nil || r.N <= stored {
			return nil
		}
		e := *r.Entry
		e.Spooled = s.name(r.N)
		p, err := l.put(e)
		if err == nil {
			list = append(list, p)
		}
		return err
	})
	return list, err
}

// storeSpooled stores the events of the spool that are not in the journal.
func (l *Log) storeSpooled(ctx context.Context, since spoolMark, again bool, upto uint64) error {
	s, j := l.opts.Spool, l.opts.Journal
	var stored map[uint64]int
	var err error
	if again {
		if stored, err = l.storedEvents(ctx, since); err != nil {
			return err
		}
	}
	var list []*journal.Pending
	err = s.each(upto, func(r spooled) error {
		first := stored[r.N]
		if first >= len(r.Events) {
			return nil
		}
		p, err := j.BeginAll(draftsOf(r, spoolSender+s.name(r.N), first))
		if err == nil {
			list = append(list, p)
		}
		return err
	})
	for _, p := range list {
		_, bad := p.Wait(ctx)
		err = errors.Join(err, bad)
	}
	return err
}

// storedEvents returns how many events of each record are in the journal, by its number. The journal
// itself recognises their names only for some minutes.
func (l *Log) storedEvents(ctx context.Context, since spoolMark) (map[uint64]int, error) {
	stored := map[uint64]int{}
	if err := l.opts.Journal.Resolve(ctx); err != nil {
		return nil, err
	}
	read := func(least uint64) error {
		return l.opts.Journal.Names(ctx, since.Journal+1, least, func(_ uint64, name string, number int) {
			if name, ok := strings.CutPrefix(name, spoolSender); ok {
				n := l.opts.Spool.number(name)
				stored[n] = max(stored[n], number+1)
			}
		})
	}
	// The end is known: the leader that is asked for it may be one no more, and lack the newest messages.
	err := read(l.opts.Journal.Stored())
	if errors.Is(err, journal.ErrLate) { // that message was removed since
		err = read(0)
	}
	return stored, err
}

// draftsOf returns the events of a record as the journal stores them; those before first are stored.
func draftsOf(r spooled, name string, first int) journal.Batch {
	return journal.Batch{Name: name, First: first, Count: len(r.Events) - first, Drafts: func(yield func(journal.Draft) bool) {
		for _, e := range r.Events[first:] {
			if !yield(journal.Draft{Tag: e.Tag, Text: e.Text()}) {
				return
			}
		}
	}}
}
