package outbox

import (
	"context"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// delivery is the batch of one minion, stored together with those of others.
type delivery struct {
	id       salt.MinionID
	messages []*incoming
	from     *sender // this delivery holds its turn
	end      func()  // ends what was said of its returns
}

// DeliverEach is Deliver for batches of many minions that came together, as the returns of a
// job do: their contents are stored with a single wait for the journal. Batches that are not
// quick are handled alone.
func (r *Receiver) DeliverEach(ctx context.Context, requests []*rpc.Request) []error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
	defer cancel()
	errs, deliveries := make([]error, len(requests)), make([]*delivery, len(requests))
	for i, req := range requests {
		if deliveries[i] = r.quick(ctx, req); deliveries[i] == nil {
			errs[i] = rpc.ErrAlone
		}
	}
	err := r.storeEach(ctx, deliveries)
	for i, d := range deliveries {
		if d == nil {
			continue
		}
		if errs[i] = err; err != nil {
			d.from.fails()
		} else {
			errs[i] = requests[i].Last(ctx, answer(requests[i].Op, d.outcome()))
		}
		d.from.end()
		d.end()
	}
	return errs
}

// quick reads a batch that can be stored together with others. For any other batch it returns
// nil.
func (r *Receiver) quick(ctx context.Context, req *rpc.Request) *delivery {
	var q Batch
	if err := req.Decode(&q); err != nil || len(q.Messages) == 0 || len(q.Messages) > MaxBatch || r.Returns.WithoutQuorum() != nil {
		return nil
	}
	id := salt.MinionID(req.From.Name)
	for _, m := range q.Messages {
		if !r.quickOne(m) {
			return nil
		}
	}
	from := r.watermarks.tryBegin(id)
	if from == nil {
		return nil
	}
	if !r.knows(from, connection{req.Inbox(), r.Journal.Term()}) {
		from.end()
		return nil
	}
	d := &delivery{id: id, from: from}
	for _, m := range q.Messages {
		in, err := r.open(ctx, id, m)
		if err != nil {
			from.end()
			return nil
		}
		d.messages = append(d.messages, in)
	}
	d.end = r.arrived(ctx, id, q.Messages)
	return d
}

// storeEach stores what is not stored already, and informs those who wait for it.
func (r *Receiver) storeEach(ctx context.Context, deliveries []*delivery) error {
	var batches []journal.Batch
	for _, d := range deliveries {
		if d != nil {
			batches = d.append(batches)
		}
	}
	if len(batches) > 0 {
		pending, err := r.Journal.BeginEach(batches)
		if err == nil {
			_, err = pending.Wait(ctx)
		}
		if err != nil {
			return err
		}
	}
	for _, d := range deliveries {
		if d != nil {
			d.stored()
		}
	}
	return r.Durable()
}

// append appends what is not stored yet.
func (d *delivery) append(batches []journal.Batch) []journal.Batch {
	for _, in := range d.messages {
		if len(in.Events) > 0 && !d.from.has(in.Epoch, in.N, 0) { // a quick batch has one event
			batches = append(batches, in.batch(d.id, 0, d.from.term))
		}
	}
	return batches
}

// stored records that all is stored.
func (d *delivery) stored() {
	for _, in := range d.messages {
		if len(in.Events) > 0 {
			d.from.set(Watermark{in.Epoch, in.N, 0})
		}
		in.after()
	}
}

// outcome returns the answer for the minion.
func (d *delivery) outcome() []Delivery {
	deliveries := make([]Delivery, len(d.messages))
	for i, in := range d.messages {
		deliveries[i].Refused = in.refused
	}
	return deliveries
}
