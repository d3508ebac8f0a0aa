package outbox

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
)

// Boxes are the outboxes of a minion: one, or one for each of the masters that it is connected
// to at the same time.
type Boxes []*Box

// plainBox is the name of the outbox of a minion with one connection.
const plainBox = ""

// Open opens an outbox for each connection of a minion to masters. addresses has, for each
// connection, the host and port of its only or first master. master returns the present
// connection of that number, nil for none. If there are several, each outbox is named by its
// address. Waiting messages in outboxes of other addresses are logged. After an error nothing
// is left open.
func Open(ctx context.Context, o Options, addresses []string, master func(i int) Master) (boxes Boxes, err error) {
	defer func() {
		if err != nil {
			boxes.Close()
			boxes = nil
		}
	}()
	adopt, err := o.plainWaits(ctx, len(addresses))
	if err != nil {
		return nil, err
	}
	for i, address := range addresses {
		name := plainBox
		if len(addresses) > 1 && !(i == 0 && adopt) {
			name = "_" + event.Escape(address)
		}
		b, err := open(ctx, o, name, func() Master { return master(i) })
		if err != nil {
			return boxes, err
		}
		boxes = append(boxes, b)
	}
	return boxes, boxes.warnOfOthers(ctx, o)
}

// Close is the last call of all. Drain has returned, or is not running.
func (boxes Boxes) Close() {
	for _, b := range boxes {
		b.close()
	}
}

// Put puts a message into all outboxes.
func (boxes Boxes) Put(ctx context.Context, out Outgoing) error {
	var failed error
	for _, b := range boxes {
		failed = errors.Join(failed, b.Put(ctx, out))
	}
	return failed
}

// Named returns the outbox of that name, or else the first.
func (boxes Boxes) Named(name string) *Box {
	if i := boxes.index(name); i >= 0 {
		return boxes[i]
	}
	return boxes[0]
}

func (boxes Boxes) index(name string) int {
	return slices.IndexFunc(boxes, func(b *Box) bool { return b.name == name })
}

// plainWaits reports whether messages wait in the outbox of a single connection although there
// are now several: the first outbox then delivers them.
func (o Options) plainWaits(ctx context.Context, connections int) (bool, error) {
	if connections < 2 {
		return false, nil
	}
	n, err := o.waitingIn(ctx, plainBox)
	return n > 0, err
}

// waitingIn returns how many messages wait in the outbox of this name.
func (o Options) waitingIn(ctx context.Context, name string) (uint64, error) {
	q, err := journal.OpenQueue(ctx, o.Conn, queueName+name, o.Store)
	if err != nil {
		return 0, err
	}
	span, err := q.Span(ctx)
	return span.Last + 1 - min(span.First, span.Last+1), err
}

// warnOfOthers logs outboxes with messages for a master that is no longer in the configuration.
func (boxes Boxes) warnOfOthers(ctx context.Context, o Options) error {
	entries, err := os.ReadDir(o.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		token, ok := strings.CutPrefix(e.Name(), boxFolder+"_")
		address, escaped := event.Unescape(token)
		if !ok || !escaped || !e.IsDir() || boxes.index("_"+token) >= 0 {
			continue
		}
		n, err := o.waitingIn(ctx, "_"+token)
		if err != nil {
			return err
		}
		if n > 0 {
			o.Log.Warn("events and returns wait for a master that is not in the configuration any more; name it again to have them delivered", "master", address, "count", n)
		}
	}
	return nil
}
