package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Store tells whether what JetStream writes to can be written. A failed one leaves
// writers without an answer.
type Store interface {
	// Failed returns a channel that is closed while the store can not be written, and
	// another one once it can again.
	Failed() <-chan struct{}
	// Err is why it can not be written; nil if it can.
	Err() error
}

// ErrStore is wrapped by the error of a Pending whose store can not be written.
var ErrStore = errors.New("the journal can not be written")

// Bounds of what may be on its way to the store. The server keeps 10,000 messages
// and 128 MiB for a stream, and drops what comes beyond that.
const (
	maxPending      = 4096
	maxPendingBytes = 64 << 20
	// askEvery is how many messages go between two questions: within a large lot they
	// make room, long before the bounds.
	askEvery      = maxPending / 8
	askEveryBytes = maxPendingBytes / 8
	// stallWait is how long a writer waits for room.
	stallWait = 30 * time.Second
)

// writer stores messages over one connection, in the order of its calls. The server
// takes the messages of a connection in their order, so the acknowledgement of the
// last one of a lot tells of all: one for each would cost as much as storing it.
type writer struct {
	nc     *nats.Conn
	inbox  string // begins the subjects of acknowledgements
	store  Store
	closed <-chan struct{} // closed with the connection
	room   chan struct{}   // something was acknowledged

	order  sync.Mutex      // held while a lot is sent; it guards failed
	failed <-chan struct{} // of the store, when the latest lot began

	mu         sync.Mutex // guards the rest
	sent, done mark       // messages that were sent, and acknowledged
	asked      []question // the oldest first
	tap        tap
}

// mark counts messages and their bytes since the writer began.
type mark struct{ n, bytes uint64 }

// question is a message that is to be acknowledged.
type question struct {
	mark
	p *Pending // nil if only room is asked for
}

func newWriter(nc *nats.Conn, store Store) (*writer, error) {
	if store == nil {
		store = sound{}
	}
	w := &writer{nc: nc, inbox: nc.NewInbox() + ".", store: store, closed: closing(nc), room: make(chan struct{}, 1), tap: tap{join: joiner{}}}
	sub, err := nc.Subscribe(w.inbox+"*", w.answer)
	if err != nil {
		return nil, err
	}
	return w, sub.SetPendingLimits(-1, -1)
}

// sound is a Store that never fails.
type sound struct{}

func (sound) Failed() <-chan struct{} { return nil }
func (sound) Err() error              { return nil }

// closing returns a channel that is closed when nc is.
func closing(nc *nats.Conn) <-chan struct{} {
	status := nc.StatusChanged(nats.CLOSED)
	closed := make(chan struct{})
	go func() { // ends with the connection
		if !nc.IsClosed() {
			<-status
		}
		close(closed)
	}()
	return closed
}

// Pending is an append under way.
type Pending struct {
	before []*Pending // of the pieces before the last one
	writer *writer
	failed <-chan struct{} // of the store, when it began
	done   chan struct{}   // closed when what follows is known
	seq    uint64
	again  bool // the last message was a repetition
	err    error
}

// Places returns where the pieces of the event lie, for Fetch, once Wait has
// returned nil.
func (p *Pending) Places(ctx context.Context) ([]uint64, error) {
	places := make([]uint64, 0, len(p.before)+1)
	for _, one := range p.before {
		seq, err := one.Wait(ctx)
		if err != nil {
			return nil, err
		}
		places = append(places, seq)
	}
	p.before = nil
	return append(places, p.seq), nil
}

// Wait returns when the event is stored.
func (p *Pending) Wait(ctx context.Context) (uint64, error) {
	err := p.wait(ctx)
	select {
	case <-p.failed: // a part of the lot may be lost, whatever became of its last message
		err = p.writer.broken()
	default:
	}
	if err != nil {
		return 0, fmt.Errorf("store the event: %w", err)
	}
	return p.seq, nil
}

// Repeated says, once Wait has returned nil, whether the last event was stored before.
func (p *Pending) Repeated() bool { return p.again }

func (p *Pending) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-p.failed:
		return nil // which Wait sees
	case <-p.writer.closed:
		return nats.ErrConnectionClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *writer) broken() error {
	if err := w.store.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	return ErrStore // by now it can, again
}

// send sends one message.
func (w *writer) send(m *nats.Msg) (*Pending, error) {
	return w.sendAll(func(yield func(*nats.Msg) bool) { yield(m) })
}

// sendAll sends the messages of a lot, which are made as they are sent. Its Pending is
// told when the last one is stored.
func (w *writer) sendAll(lot iter.Seq[*nats.Msg]) (*Pending, error) {
	p := &Pending{writer: w, failed: w.store.Failed(), done: make(chan struct{})}
	w.order.Lock()
	defer w.order.Unlock()
	if p.failed != w.failed { // what was under way then is never answered
		w.forget()
		w.failed = p.failed
	}
	var held *nats.Msg // the latest, of which is not known yet whether it is the last
	for m := range lot {
		if err := w.put(held, p, false); err != nil {
			return nil, err
		}
		held = m
	}
	return p, w.put(held, p, true)
}

// put sends a message when there is room for it; nil is none.
func (w *writer) put(m *nats.Msg, p *Pending, last bool) error {
	if m == nil {
		return nil
	}
	err := w.wait(p)
	if err == nil {
		err = w.one(m, p, last)
	}
	if err != nil {
		return fmt.Errorf("store the event: %w", err)
	}
	return nil
}

func (w *writer) one(m *nats.Msg, p *Pending, last bool) error {
	w.mu.Lock()
	w.sent.n++
	w.sent.bytes += uint64(len(m.Data))
	w.tap.sent(m)
	known := w.done
	if n := len(w.asked); n > 0 {
		known = w.asked[n-1].mark
	}
	if last || w.sent.n-known.n >= askEvery || w.sent.bytes-known.bytes >= askEveryBytes {
		q := question{mark: w.sent}
		if last {
			q.p = p
		}
		w.asked = append(w.asked, q)
		m.Reply = w.inbox + strconv.FormatUint(q.n, 36)
	}
	w.mu.Unlock()
	return w.nc.PublishMsg(m)
}

// wait returns when there is room for one more message.
func (w *writer) wait(p *Pending) error {
	var limit <-chan time.Time
	for w.full() {
		if limit == nil {
			t := time.NewTimer(stallWait)
			defer t.Stop()
			limit = t.C
		}
		select {
		case <-w.room:
		case <-p.failed:
			return w.broken()
		case <-w.closed:
			return nats.ErrConnectionClosed
		case <-limit:
			w.forget()
			return errors.New("it does not answer")
		}
	}
	return nil
}

func (w *writer) full() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent.n-w.done.n >= maxPending || w.sent.bytes-w.done.bytes >= maxPendingBytes
}

func (w *writer) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done, w.asked = w.sent, nil
	w.tap.forget(w.sent.n)
}

// answer takes one acknowledgement, or a refusal.
func (w *writer) answer(m *nats.Msg) {
	n, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, w.inbox), 36, 64)
	if err != nil {
		return // nobody was asked for it
	}
	seq, err := acknowledged(m)
	p := w.take(n)
	w.tap.stored(&w.mu, n, seq, err)
	select {
	case w.room <- struct{}{}:
	default:
	}
	if p != nil {
		p.seq, p.err, p.again = seq, err, bytes.Contains(m.Data, []byte(`"duplicate":true`))
		close(p.done)
	}
}

// take removes the question n and returns who waits for it.
func (w *writer) take(n uint64) *Pending {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.asked, func(q question) bool { return q.n == n })
	if i < 0 {
		return nil // it was forgotten
	}
	q := w.asked[i]
	if i == 0 { // as nearly always
		w.asked = w.asked[1:]
	} else {
		w.asked = slices.Delete(w.asked, i, i+1)
	}
	if q.n > w.done.n {
		w.done = q.mark
	}
	return q.p
}

// acknowledged reads the server's word on one message.
func acknowledged(m *nats.Msg) (seq uint64, err error) {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return 0, nats.ErrNoResponders
	}
	if seq, ok := quickSeq(m.Data); ok {
		return seq, nil
	}
	var told struct {
		Error *jetstream.APIError `json:"error"`
		Seq   uint64              `json:"seq"`
	}
	if err := json.Unmarshal(m.Data, &told); err != nil {
		return 0, fmt.Errorf("unreadable acknowledgement: %w", err)
	}
	if told.Error != nil {
		return 0, storageError(told.Error)
	}
	return told.Seq, nil
}

// quickSeq reads the usual acknowledgement, {"stream":"NAME","seq":1}.
func quickSeq(b []byte) (uint64, bool) {
	_, rest, ok := bytes.Cut(b, []byte(`","seq":`))
	if !ok || !bytes.HasPrefix(b, []byte(`{"stream":"`)) {
		return 0, false
	}
	end := bytes.IndexAny(rest, ",}")
	if end < 0 {
		return 0, false
	}
	seq, err := strconv.ParseUint(string(rest[:end]), 10, 64)
	return seq, err == nil && seq > 0
}
