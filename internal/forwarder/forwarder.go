// Package forwarder passes events of a minion on to its masters: events with the tag
// fire_master on the minion's own bus, events that programs or functions of this machine fire
// there, and those of the minion itself. It refuses what a master would refuse, so that the
// sender gets the error at once, even while there is no master.
//
// Package outbox keeps events for their master; the caller decides who may fire on the minion's
// own bus.
package forwarder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/internal/value"
)

// Bus is the minion's own bus.
type Bus interface {
	// Look checks events before the first is stored.
	Look(q protocol.Fire, check func(tag string) error) error
	// Put stores events with this sender, "" for the daemon itself.
	Put(ctx context.Context, q protocol.Fire, sender string) (protocol.Fired, error)
}

// Options are the settings of a Forwarder. All but MaxEventSize are required.
type Options struct {
	ID           salt.MinionID
	MaxEventSize int64 // bytes of the data of one event; 0 means no limit
	Bus          Bus
	Masters      *upstream.Uplinks
	Boxes        *outbox.Boxes // one for each uplink
	Log          *slog.Logger
}

// Forwarder passes events on. It is safe for concurrent use.
type Forwarder struct {
	Options
	ctx     context.Context  // of the daemon
	refused logging.Throttle // of refusals reported to a master
	telling sync.WaitGroup
}

// New returns a Forwarder whose own messages end with ctx.
func New(ctx context.Context, o Options) *Forwarder { return &Forwarder{Options: o, ctx: ctx} }

// Wait waits, after ctx has ended, for what is under way.
func (w *Forwarder) Wait() { w.telling.Wait() }

// Source is the sender of events on the minion's own bus.
type Source struct {
	Sender string // for the envelope; "" is the daemon itself
	ID     string // id of the request against duplicates; "" is never a duplicate
	Check  func(tag string) error
	Decide func() error // decides about all tags that Check has seen; nil for the daemon itself
}

// maxName is the longest id of a request: a nonce and more.
const maxName = 64

// maxForward is about how many bytes of events one message of the outbox has.
const maxForward = 256 << 10

// Fire stores events on the minion's own bus and passes on those whose tag begins with
// fire_master. All are checked before the first is stored: with a mistake in one, the sender
// gets an error and none of them is stored or passed on.
func (w *Forwarder) Fire(ctx context.Context, q protocol.Fire, who Source) (protocol.Fired, error) {
	if len(q.ID) > maxName {
		return protocol.Fired{}, rpc.Errorf(rpc.Usage, "the name of the events has %d bytes: the limit is %d", len(q.ID), maxName)
	}
	messages, err := w.forwards(q.Events, who.Check)
	if err == nil && q.Live && len(messages) > 0 {
		err = errLive()
	}
	if err == nil && len(messages) > 0 && w.Boxes.Count() == 0 {
		err = errDisabled()
	}
	if err == nil {
		err = w.Bus.Look(q, who.Check)
	}
	if err == nil && who.Decide != nil {
		err = who.Decide()
	}
	switch {
	case err != nil:
		return protocol.Fired{}, err
	case len(messages) == 0:
		return w.Bus.Put(ctx, q, who.Sender)
	}
	return w.putAndPass(ctx, q, messages, who)
}

// putAndPass stores events here while those for the master, which takes longer, are passed on.
// If one of the two fails, repeating the request does what is missing, and nothing twice.
func (w *Forwarder) putAndPass(ctx context.Context, q protocol.Fire, messages []protocol.Fire, who Source) (protocol.Fired, error) {
	var fired protocol.Fired
	var errHere error
	var here sync.WaitGroup
	here.Go(func() { fired, errHere = w.Bus.Put(ctx, q, who.Sender) })
	passed, err := w.passAll(ctx, messages, who.ID)
	here.Wait()
	if err = cmp.Or(err, errHere); err != nil {
		return protocol.Fired{}, err
	}
	fired.Outcome, fired.Masters = passed.Outcome, passed.Masters
	return fired, nil
}

// passAll is pass for several requests, in order; it returns the result of the last.
func (w *Forwarder) passAll(ctx context.Context, messages []protocol.Fire, id string) (passed protocol.Fired, err error) {
	for i, f := range messages {
		if passed, err = w.pass(ctx, f, partOf(id, i)); err != nil {
			return protocol.Fired{}, err
		}
	}
	return passed, nil
}

func partOf(id string, i int) string {
	if id == "" {
		return ""
	}
	return id + "/" + strconv.Itoa(i)
}

// forwards returns the events for the master as they go into the outbox: consecutive events
// with the same form and pretag together.
func (w *Forwarder) forwards(events []event.Item, check func(tag string) error) ([]protocol.Fire, error) {
	var messages []protocol.Fire
	size := 0
	for _, e := range events {
		if !event.Forwarded(e.Tag) {
			continue
		}
		if err := check(e.Tag); err != nil {
			return nil, err // before its data is checked
		}
		forward, err := event.ParseForward(e.Data)
		if err != nil {
			return nil, rpc.Errorf(rpc.Usage, "event %q: %w", e.Tag, err)
		}
		f := asFire(forward)
		if err := w.checkValid(f); err != nil { // ParseForward has checked the data
			return nil, err
		}
		size += len(e.Data)
		if n := len(messages); n > 0 && size < maxForward && together(messages[n-1], f) {
			messages[n-1].Events = append(messages[n-1].Events, f.Events...)
			continue
		}
		messages, size = append(messages, f), len(e.Data)
	}
	return messages, nil
}

func asFire(f event.Forward) protocol.Fire {
	q := protocol.Fire{Form: protocol.FormPlain, Pretag: f.Pretag, Events: make([]event.Item, len(f.Items))}
	if f.Single {
		q.Form = protocol.FormSingle
	}
	for i, item := range f.Items {
		q.Events[i] = event.Item(item)
	}
	return q
}

// together reports whether two requests can be merged.
func together(a, b protocol.Fire) bool {
	const most = 1000 // events of one message
	same := a.Pretag == nil && b.Pretag == nil || a.Pretag != nil && b.Pretag != nil && *a.Pretag == *b.Pretag
	return same && a.Form == b.Form && len(a.Events)+len(b.Events) <= most
}

// checkOutgoing refuses what the master would refuse, so that the sender gets the error at
// once, even while there is no master.
func (w *Forwarder) checkOutgoing(f protocol.Fire) error {
	for _, e := range f.Events {
		if len(e.Data) > 0 && !value.Valid(e.Data) {
			return rpc.Errorf(rpc.Usage, "the data of event %q is not JSON", e.Tag)
		}
	}
	return w.checkValid(f)
}

// checkValid is checkOutgoing for events whose data is known to be JSON.
func (w *Forwarder) checkValid(f protocol.Fire) error {
	if len(f.Events) == 0 {
		return rpc.Errorf(rpc.Usage, "there is no event to fire")
	}
	forward := event.Forward{Single: f.Form == protocol.FormSingle, Pretag: f.Pretag, Items: f.Events}
	for _, item := range forward.Outlines(w.ID) {
		if err := event.CheckMinionTag(w.ID, item.Tag); err != nil {
			code := rpc.Usage
			if errors.Is(err, event.ErrReserved) {
				code = rpc.Denied
				w.tellRefused(item.Tag)
			}
			w.Log.Warn("event for the master refused", "tag", item.Tag, "err", err)
			return rpc.Errorf(code, "minion %s may not fire this event: %w", w.ID, err)
		}
		if limit := w.MaxEventSize; limit > 0 && int64(item.Size) > limit {
			return rpc.Errorf(rpc.Usage, "event %q has %d bytes of data: the limit is %d", item.Tag, item.Size, limit).
				WithHint("max_event_size in the configuration is the limit, of the minion and of the master")
		}
	}
	return nil
}

// tellRefused reports to the master, whose log and audit log have all refusals, that an event
// was refused here already; limited for each tag.
func (w *Forwarder) tellRefused(tag string) {
	if !w.refused.First(tag, time.Now()) {
		return
	}
	w.telling.Go(func() {
		out := outbox.Outgoing{Op: outbox.OpRefused, Body: event.Item{Tag: tag}}
		if err := w.Boxes.Put(w.ctx, out); err != nil {
			w.Log.Error("cannot report a refused event to the master", "tag", tag, "err", err)
		}
	})
}

// FireMaster sends events to the master's bus, or keeps them for it. A second request with the
// same id has no effect; "" is never a duplicate.
func (w *Forwarder) FireMaster(ctx context.Context, f protocol.Fire, id string) (protocol.Fired, error) {
	if len(f.ID) > maxName {
		return protocol.Fired{}, rpc.Errorf(rpc.Usage, "the name of the events has %d bytes: the limit is %d", len(f.ID), maxName)
	}
	if f.Live {
		return protocol.Fired{}, errLive()
	}
	if err := w.checkOutgoing(f); err != nil {
		return protocol.Fired{}, err
	}
	return w.pass(ctx, f, id)
}

// errLive refuses an event for the master that is not to be stored: on its way it would be
// stored in the outbox.
func errLive() error {
	return rpc.Errorf(rpc.Usage, "events for the master are stored: those that are not stay on the minion's bus").WithHint("leave --no-store out")
}

func errDisabled() error {
	return rpc.Errorf(rpc.Unavailable, "there is no master to fire to: master_type is disable")
}

// straggler is how long a master without an answer is waited for once another one has stored
// the events, so that an absent one does not delay the sender.
const straggler = 300 * time.Millisecond

// pass sends events to all masters in parallel, or keeps them for those that are away; to several of one cluster it
// sends them once. The answer has the result for each; an error is that of a master that refuses.
func (w *Forwarder) pass(ctx context.Context, f protocol.Fire, id string) (protocol.Fired, error) {
	if w.Boxes.Count() == 0 {
		return protocol.Fired{}, errDisabled()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sent, err := w.Boxes.Send(ctx, outbox.Outgoing{Op: protocol.OpFire, Body: f, Events: len(f.Events), ID: id}, func() { time.AfterFunc(straggler, cancel) })
	if err != nil {
		return protocol.Fired{}, err
	}
	masters, errs := make([]protocol.MasterFired, len(sent)), make([]error, len(sent))
	for i, one := range sent {
		masters[i], errs[i] = protocol.MasterFired{Master: w.name(one.Number), Outcome: one.Outcome, Seq: one.Seq}, one.Err
	}
	return sumUp(masters, errs)
}

// name is that of the first connected master of the system of an uplink, or else of its own.
func (w *Forwarder) name(uplink int) string {
	for _, s := range w.Masters.System(uplink) {
		return s.Name
	}
	return w.Masters.All()[uplink].Name()
}

// sumUp makes one answer of the results for each master: the events are stored when all have
// stored them.
func sumUp(masters []protocol.MasterFired, errs []error) (protocol.Fired, error) {
	fired := protocol.Fired{Outcome: protocol.Stored, Masters: masters}
	for i, t := range masters {
		if err := errs[i]; err != nil {
			return protocol.Fired{}, fmt.Errorf("fire to the master %s: %w", t.Master, err)
		}
		if t.Outcome != protocol.Stored {
			fired.Outcome = t.Outcome
		}
		fired.Seq = t.Seq
	}
	return fired, nil
}
