package master

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/salt"
)

// storeTime bounds how long one request may take to be stored; what is large has
// a second more for each slowest bytes.
const storeTime = 30 * time.Second

// timeFor is how long these letters may take to be stored.
func timeFor(letters []protocol.Letter) time.Duration {
	size := 0
	for _, l := range letters {
		size += len(l.Body)
	}
	return storeTime + time.Duration(size/slowest)*time.Second
}

// maxEpoch is the longest name of an epoch; it is part of an id of the journal.
const maxEpoch = 64

// letters takes what a minion's outbox sends. The answer comes when all of it is
// in the journal, once, and in order.
func (m *Master) letters(ctx context.Context, r *bus.Request) error {
	var q protocol.Letters
	if err := r.Decode(&q); err != nil {
		return err
	}
	if len(q.Letters) > protocol.MaxLetters {
		return bus.Errorf(bus.Usage, "%d letters at once: the limit is %d", len(q.Letters), protocol.MaxLetters)
	}
	id := salt.MinionID(r.From.Name)
	defer m.room.stored(id)
	// What has begun is finished, also when the minion is cut off: the ledger must
	// know what became of it.
	store, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeFor(q.Letters))
	defer cancel()
	told, err := m.deliver(store, id, q.Letters)
	if err != nil && len(told) == 0 {
		return err
	}
	if err := m.durable(); err != nil {
		return err
	}
	if err != nil {
		m.log.Error("not all letters of a minion are stored", "minion", id, "err", err)
	}
	return r.Last(ctx, protocol.Delivered{Letters: told})
}

// durable returns when what is stored is on the disk: only then a minion is told, which
// then removes its copy. Who asks for an event or a job waits for that only with
// journal_sync: always.
func (m *Master) durable() error { return m.broker.Store().Flush(journal.Stream) }

// post is a letter on its way into the journal.
type post struct {
	events  []event.Event
	after   func() // what follows once they are stored; may be nil
	refused *bus.Error
	pending *journal.Pending // of the last of them; nil when all are stored already
}

// deliver stores letters in their order, all of a request at a time: it begins each
// before it waits for the first. The result ends before a letter that could not be
// stored now.
func (m *Master) deliver(ctx context.Context, id salt.MinionID, letters []protocol.Letter) ([]protocol.Delivery, error) {
	box := m.ledger.begin(id)
	defer box.end()
	var broken error
	posts := make([]*post, 0, len(letters))
	for _, l := range letters {
		p, err := m.unseal(ctx, id, l)
		if err == nil {
			err = p.begin(m.journal, id, l, box)
		}
		if err != nil {
			broken = err // what was begun of this letter is recognised when it comes again
			break
		}
		posts = append(posts, p)
	}
	told := make([]protocol.Delivery, 0, len(posts))
	for i, p := range posts {
		seq, err := p.wait(ctx, letters[i], box)
		if err != nil {
			return told, err
		}
		if p.after != nil && p.refused == nil {
			p.after()
		}
		told = append(told, protocol.Delivery{Seq: seq, Refused: p.refused})
	}
	return told, broken
}

// begin starts to store what is not stored already.
func (p *post) begin(j *journal.Journal, id salt.MinionID, l protocol.Letter, box *box) (err error) {
	first := 0
	for first < len(p.events) && box.has(l.Epoch, l.N, first) { // within a letter, too, the order is kept
		first++
	}
	if first == len(p.events) {
		return nil
	}
	p.pending, err = j.BeginAll(lotOf(p.events, letterName(id, l.Epoch, l.N), first))
	return err
}

// lotOf is what is stored of events under that name: those before first are.
func lotOf(events []event.Event, name string, first int) journal.Lot {
	return journal.Lot{Name: name, First: first, Count: len(events) - first, Drafts: func(yield func(journal.Draft) bool) {
		for _, e := range events[first:] {
			if !yield(journal.Draft{Tag: e.Tag, Text: e.Append(make([]byte, 0, len(e.Tag)+len(e.From)+len(e.Data)+32))}) {
				return
			}
		}
	}}
}

// wait returns when all of it is stored. What is so of a part only is recognised by the
// journal when the letter comes again.
func (p *post) wait(ctx context.Context, l protocol.Letter, box *box) (last uint64, err error) {
	if p.pending == nil {
		return 0, nil
	}
	if last, err = p.pending.Wait(ctx); err != nil {
		return 0, err
	}
	box.set(mark{l.Epoch, l.N, len(p.events) - 1})
	return last, nil
}

// unseal reads a letter. What is refused is so for good: the same letter would be
// refused again. An error is anything else.
func (m *Master) unseal(ctx context.Context, id salt.MinionID, l protocol.Letter) (*post, error) {
	p := &post{}
	err := m.read(ctx, id, l, p)
	var refused *bus.Error
	switch {
	case err == nil:
		return p, nil
	case errors.As(err, &refused) && refused.Permanent():
		if m.told.First("letter "+string(id), time.Now()) {
			m.log.Warn("a minion's letter is refused", "minion", id, "op", l.Op, "err", err)
		}
		return &post{refused: refused}, nil
	}
	return nil, err
}

func (m *Master) read(ctx context.Context, id salt.MinionID, l protocol.Letter, p *post) (err error) {
	if l.Epoch == "" || len(l.Epoch) > maxEpoch {
		return bus.Errorf(bus.Usage, "a letter without a proper epoch")
	}
	switch jid, isReturn := strings.CutPrefix(l.Op, "ret."); {
	case l.Op == protocol.OpFire:
		var f protocol.Fire
		if err := decode(l, &f); err != nil {
			return err
		}
		p.events, err = m.minionEvents(id, f)
		return err
	case l.Op == protocol.OpReturn:
		var q protocol.LocalReturn
		if err := decode(l, &q); err != nil {
			return err
		}
		e, err := m.localReturnEvent(ctx, id, q)
		p.events = []event.Event{e}
		return err
	case l.Op == protocol.OpRefused:
		var e protocol.FireEvent
		if err := decode(l, &e); err != nil {
			return err
		}
		if err := event.CheckMinionTag(id, e.Tag); err != nil {
			m.eventRefused(id, e.Tag, err)
		}
		return nil
	case isReturn:
		return m.readReturn(ctx, id, salt.JID(jid), l, p)
	}
	return bus.Errorf(bus.NotFound, "there is no letter %q", l.Op)
}

func decode(l protocol.Letter, v any) error {
	if err := l.Decode(v); err != nil {
		return bus.Errorf(bus.Usage, "unreadable letter %s: %v", l.Op, err)
	}
	return nil
}
