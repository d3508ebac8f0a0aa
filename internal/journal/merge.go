package journal

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/brinebus/brine/internal/event"
)

// Order merges what several readers have, each of a journal of its own, by the moments at
// which it was stored. Each journal keeps its order. The clocks of two masters may differ:
// then so does the order between them, and nothing else.
type Order struct {
	mu    sync.Mutex
	at    []string      // the stamp of the latest event of each reader
	ended []bool        // it has had all, and nobody waits for it
	moved chan struct{} // closed when one of them goes on
}

// NewOrder is for so many readers, which are numbered from 0.
func NewOrder(readers int) *Order {
	return &Order{at: make([]string, readers), ended: make([]bool, readers), moved: make(chan struct{})}
}

// Turn returns when the reader may hand out an event with this stamp: no other one may
// still have an older. One without a stamp comes with the one before it. flush hands out
// what the reader has kept back, before another one may pass it; nil is for nothing.
func (o *Order) Turn(ctx context.Context, reader int, stamp string, flush func(context.Context) error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended[reader] || stamp <= o.at[reader] {
		return nil
	}
	if flush != nil && o.passes(reader, stamp) {
		o.mu.Unlock()
		err := flush(ctx)
		o.mu.Lock()
		if err != nil {
			return err
		}
	}
	o.at[reader] = stamp
	o.tell()
	for !o.first(reader) {
		moved := o.moved
		o.mu.Unlock()
		var err error
		select {
		case <-moved:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		o.mu.Lock()
		if err != nil {
			return err
		}
	}
	return nil
}

// End says that nobody need wait for the reader any more, nor it for others.
func (o *Order) End(reader int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended[reader] {
		o.ended[reader] = true
		o.tell()
	}
}

// passes says that the reader, once it has come to stamp, waits for another one, or that
// one has waited for it.
func (o *Order) passes(reader int, stamp string) bool {
	for i, ended := range o.ended {
		if i != reader && !ended && o.at[i] <= stamp {
			return true
		}
	}
	return false
}

// first says that no other reader may still have something older.
func (o *Order) first(reader int) bool {
	for i, ended := range o.ended {
		if i != reader && !ended && (o.at[i] < o.at[reader] || o.at[i] == o.at[reader] && i < reader) {
			return false
		}
	}
	return true
}

func (o *Order) tell() {
	close(o.moved)
	o.moved = make(chan struct{})
}

// All reads the own journal and the mirrors of others as one. It keeps one event of each.
type All struct {
	Own     *Journal
	Mirrors func() []*Mirror
	Log     *slog.Logger
}

// Read is that of a journal, for queries that do not follow: sequences are of each journal,
// so FromSeq is of the own one alone, and of the others everything is read.
func (a All) Read(ctx context.Context, q Query, f func(event.Event) error) error {
	mirrors := a.Mirrors()
	if len(mirrors) == 0 {
		return a.Own.Read(ctx, q, f)
	}
	sources := []*source{&a.Own.source}
	for _, m := range mirrors {
		sources = append(sources, &m.source)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	m := merged{order: NewOrder(len(sources)), f: f, long: q.Long}
	if q.Long != nil {
		q.Long = m.begin
	}
	var running sync.WaitGroup
	for i, s := range sources {
		q := q
		if i > 0 {
			q.FromSeq = 0
		}
		running.Go(func() {
			defer m.order.End(i)
			err := s.Read(ctx, q, func(e event.Event) error { return m.hand(ctx, i, e) })
			switch {
			case err == nil:
			case i == 0 || m.refused.Load() || ctx.Err() != nil:
				cancel(err)
			default: // what the own journal has is told all the same
				a.Log.Warn("the mirror of another master's journal cannot be read", "mirror", mirrors[i-1].Name, "err", err)
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

// merged calls one function for what several readers have.
type merged struct {
	order *Order
	mu    sync.Mutex // held by f
	f     func(event.Event) error
	turn  sync.Mutex // held by long
	long  func(context.Context, int) error

	refused atomic.Bool // f has ended the reading
}

func (m *merged) hand(ctx context.Context, reader int, e event.Event) error {
	if err := m.order.Turn(ctx, reader, event.StampIn(e.Data), nil); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() != nil { // another one has failed
		return context.Cause(ctx)
	}
	err := m.f(e)
	if err != nil {
		m.refused.Store(true)
	}
	return err
}

func (m *merged) begin(ctx context.Context, size int) error {
	m.turn.Lock()
	defer m.turn.Unlock()
	return m.long(ctx, size)
}
