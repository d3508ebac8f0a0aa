package forwarder

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/brinebus/brine/internal/beacon"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/internal/value"
)

// put checks events and puts them into all outboxes.
func (w *Forwarder) put(ctx context.Context, f protocol.Fire) error {
	if err := w.checkOutgoing(f); err != nil {
		return err
	}
	return w.Boxes.Put(ctx, outbox.Outgoing{Op: protocol.OpFire, Body: f, Events: len(f.Events)})
}

// FireReturn puts an event of a returner, for the master's bus, into the outbox.
func (w *Forwarder) FireReturn(ctx context.Context, tag string, data any) error {
	raw, err := value.Encode(data)
	if err != nil {
		return fmt.Errorf("event %q: %w", tag, err)
	}
	return w.put(ctx, protocol.Fire{Events: []event.Item{{Tag: tag, Data: raw}}})
}

// FireBeacon fires events of a beacon on the minion's own bus and, through the outbox, on the
// master's, with Salt's tags.
func (w *Forwarder) FireBeacon(ctx context.Context, name string, seen []beacon.Event) error {
	var q protocol.Fire
	for _, e := range seen {
		data := maps.Clone(e.Data)
		data["id"], data["beacon_name"] = string(w.ID), name
		raw, err := value.Encode(data)
		if err != nil {
			return err
		}
		q.Events = append(q.Events, event.Item{Tag: "salt/beacon/" + string(w.ID) + "/" + name + "/" + e.Tag, Data: raw})
	}
	if _, err := w.Bus.Put(ctx, q, ""); err != nil {
		return err
	}
	if w.Boxes.Count() == 0 {
		return nil
	}
	return w.put(ctx, q)
}

// FireStart fires Salt's start events of a minion for the masters of an uplink. To the members of a cluster those for
// several uplinks are the same.
func (w *Forwarder) FireStart(ctx context.Context, u *upstream.Uplink, legacy bool) {
	text := fmt.Sprintf("%q", "Minion "+string(w.ID)+" started at "+time.Now().Format(time.ANSIC))
	tags := []string{"salt/minion/" + string(w.ID) + "/start"}
	if legacy {
		tags = append([]string{"minion_start"}, tags...)
	}
	for i, tag := range tags {
		f := protocol.Fire{Form: protocol.FormSingle, Events: []event.Item{{Tag: tag, Data: []byte(text)}}}
		if err := w.Boxes.PutOnce(ctx, u.Number, i+1, outbox.Outgoing{Op: protocol.OpFire, Body: f, Events: 1}); err != nil {
			w.Log.Warn("start not announced", "tag", tag, "err", err)
		}
	}
}
