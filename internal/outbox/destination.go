package outbox

import (
	"context"

	"github.com/brinebus/brine/internal/protocol"
)

// Destination is an outbox as the one for a system. What is put there later is for that system, too, even if the master of
// this outbox has shown meanwhile that it is of another one.
type Destination struct {
	Box        *Box
	generation string // of its connection
}

// Name is that of the outbox, and which system it is for; see [Boxes.Named].
func (d Destination) Name() string {
	if d.generation == "" {
		return d.Box.name
	}
	return d.Box.name + " " + d.generation
}

// of returns the message as one for this system.
func (d Destination) of(out Outgoing) Outgoing {
	out.generation = d.generation
	return out
}

// Put is [Box.Put].
func (d Destination) Put(ctx context.Context, out Outgoing) error { return d.Box.Put(ctx, d.of(out)) }

// Send is [Box.Send].
func (d Destination) Send(ctx context.Context, out Outgoing) (protocol.Fired, error) {
	return d.Box.Send(ctx, d.of(out))
}

// SendWhole is [Box.SendWhole].
func (d Destination) SendWhole(ctx context.Context, out Outgoing) (protocol.Fired, error) {
	return d.Box.SendWhole(ctx, d.of(out))
}
