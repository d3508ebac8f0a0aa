package journal

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/brinebus/brine/internal/event"
)

// Order merges the events of several readers, each of its own journal, by the time of storing.
// Each journal keeps its order. If the clocks of two masters differ, only the order between
// their journals suffers.
type Order struct {
	mu    sync.Mutex
	at    []string      // the stamp of the latest event of each reader
	ended []bool        // it has read everything; no reader waits for it
	moved chan struct{} // closed when a reader moves on
}

// NewOrder is for that many readers, numbered from 0.
func NewOrder(readers int) *Order {
	return &Order{at: make([]string, readers), ended: make([]bool, readers), moved: make(chan struct{})}
}

// Turn waits until the reader may return an event with this stamp: until no other reader can
// still have an older one. An event without a stamp belongs to the one before it. flush returns
// what the reader has kept back, before another reader may pass it; nil if there is nothing.
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

// End marks the reader as done: no reader waits for it any more, and it waits for no others.
func (o *Order) End(reader int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended[reader] {
		o.ended[reader] = true
		o.tell()
	}
}

// passes reports whether the reader, once it is at stamp, must wait for another one, or another
// one waits for it.
func (o *Order) passes(reader int, stamp string) bool {
	for i, ended := range o.ended {
		if i != reader && !ended && o.at[i] <= stamp {
			return true
		}
	}
	return false
}

// first reports whether no other reader can still have an older event.
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

// All reads the own journal and those of others, mirrors or the journals of the other members of
// a cluster, as one. It holds one event of each in memory.
type All struct {
	Own     *Journal
	Mirrors func() []*Mirror // nil for none
	// Meet, if not nil, is called before something is read: it makes sure that Mirrors has the journal of
	// each member that runs.
	Meet func(context.Context) error
	Log  *slog.Logger
}

func (a All) meet(ctx context.Context) error {
	if a.Meet == nil {
		return nil
	}
	return a.Meet(ctx)
}

func (a All) mirrors() []*Mirror {
	if a.Mirrors == nil {
		return nil
	}
	return a.Mirrors()
}

// First returns the first event on subject of the first journal that has one, or false, and the
// name of the journal: "" for the own one. If a journal cannot be read, that is an error, since
// it might have one.
func (a All) First(ctx context.Context, subject string) (e event.Event, of string, ok bool, err error) {
	if e, ok, err = a.Own.First(ctx, subject); err != nil || ok {
		return e, "", ok, err
	}
	if err := a.meet(ctx); err != nil {
		return e, "", false, err
	}
	for _, m := range a.mirrors() {
		if e, ok, err = m.First(ctx, subject); err != nil {
			return e, "", false, fmt.Errorf("the journal of %s: %w", m.Name, err)
		}
		if ok {
			return e, m.Name, true, nil
		}
	}
	return e, "", false, nil
}

// Fetch is that of the journal of this name, "" for the own one.
func (a All) Fetch(ctx context.Context, of string, sequences []uint64) (event.Event, error) {
	if of == "" {
		return a.Own.Fetch(ctx, sequences)
	}
	if err := a.meet(ctx); err != nil {
		return event.Event{}, err
	}
	for _, m := range a.mirrors() {
		if m.Name == of {
			return m.Fetch(ctx, sequences)
		}
	}
	return event.Event{}, fmt.Errorf("there is no journal of %.40q here", of)
}

// Read is like Journal.Read, for queries that do not follow. Each journal has its own
// sequences, so FromSeq applies only to the own one; the mirrors are read from the start. In a
// cluster, a journal that cannot be read is an error, as with Whole; a mirror is left out.
func (a All) Read(ctx context.Context, q Query, f func(event.Event) error) error {
	if err := a.meet(ctx); err != nil {
		return err
	}
	mirrors := a.mirrors()
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
			case q.Whole, a.Own.copies > 0:
				cancel(fmt.Errorf("the journal of %s: %w", mirrors[i-1].Name, err))
			default: // the own journal can be read without the mirrors
				a.Log.Warn("the mirror of another master's journal cannot be read", "mirror", mirrors[i-1].Name, "err", err)
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

// merged calls one function with the events of several readers.
type merged struct {
	order *Order
	mu    sync.Mutex // held by f
	f     func(event.Event) error
	turn  sync.Mutex // held by long
	long  func(context.Context, int) error

	refused atomic.Bool // set when f has ended the reading
}

func (m *merged) hand(ctx context.Context, reader int, e event.Event) error {
	if err := m.order.Turn(ctx, reader, event.StampIn(e.Data), nil); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() != nil { // another reader has failed
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
