package master

import (
	"context"
	"strings"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/salt"
)

// parcel is what one minion's request has brought, in a lot of many.
type parcel struct {
	id      salt.MinionID
	letters []protocol.Letter
	posts   []*post
	box     *box // its turn is held
}

// letterLot is letters for the requests of many minions that came together, as the
// returns of a job do: what they hold is stored with one word of the journal for all.
// Whatever is not a small return of a job that is known is handled alone.
func (m *Master) letterLot(ctx context.Context, lot []*bus.Request) []error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
	defer cancel()
	errs, parcels := make([]error, len(lot)), make([]*parcel, len(lot))
	for i, r := range lot {
		if parcels[i] = m.parcel(ctx, r); parcels[i] == nil {
			errs[i] = bus.ErrAlone
		}
	}
	err := m.storeLot(ctx, parcels)
	for i, p := range parcels {
		if p == nil {
			continue
		}
		if errs[i] = err; err == nil {
			errs[i] = lot[i].Last(ctx, protocol.Delivered{Letters: p.tell()})
		}
		p.box.end()
	}
	return errs
}

// parcel reads a request whose letters can be stored with those of others. It returns nil
// for every other one.
func (m *Master) parcel(ctx context.Context, r *bus.Request) *parcel {
	var q protocol.Letters
	if err := r.Decode(&q); err != nil || len(q.Letters) == 0 || len(q.Letters) > protocol.MaxLetters {
		return nil
	}
	id := salt.MinionID(r.From.Name)
	for _, l := range q.Letters {
		jid, isReturn := strings.CutPrefix(l.Op, "ret.")
		if !isReturn || len(l.Body) > maxInline || m.jobs.find(salt.JID(jid)) == nil {
			return nil
		}
	}
	box := m.ledger.tryBegin(id)
	if box == nil {
		return nil
	}
	p := &parcel{id: id, letters: q.Letters, box: box}
	for _, l := range q.Letters {
		one, err := m.unseal(ctx, id, l)
		if err != nil {
			box.end()
			return nil
		}
		p.posts = append(p.posts, one)
	}
	return p
}

// storeLot stores what is not stored already, and tells those who wait for it.
func (m *Master) storeLot(ctx context.Context, parcels []*parcel) error {
	var lots []journal.Lot
	for _, p := range parcels {
		if p != nil {
			lots = p.append(lots)
		}
	}
	if len(lots) > 0 {
		pending, err := m.journal.BeginEach(lots)
		if err == nil {
			_, err = pending.Wait(ctx)
		}
		if err != nil {
			return err
		}
	}
	for _, p := range parcels {
		if p != nil {
			p.settle()
		}
	}
	return m.durable()
}

// append appends what is not stored yet.
func (p *parcel) append(lots []journal.Lot) []journal.Lot {
	for i, one := range p.posts {
		if l := p.letters[i]; len(one.events) > 0 && !p.box.has(l.Epoch, l.N, 0) { // a return is one event
			lots = append(lots, lotOf(one.events, letterName(p.id, l.Epoch, l.N), 0))
		}
	}
	return lots
}

// settle notes that all is stored.
func (p *parcel) settle() {
	for i, one := range p.posts {
		l := p.letters[i]
		if len(one.events) > 0 {
			p.box.set(mark{l.Epoch, l.N, 0})
		}
		if one.after != nil && one.refused == nil {
			one.after()
		}
	}
}

// tell is what the minion is told.
func (p *parcel) tell() []protocol.Delivery {
	told := make([]protocol.Delivery, len(p.posts))
	for i, one := range p.posts {
		told[i].Refused = one.refused
	}
	return told
}
