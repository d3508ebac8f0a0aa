package journal

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/event"
)

// Store tells whether what JetStream writes to can be written. A failed one leaves
// writers without an answer.
type Store interface {
	// Failed returns a channel that is closed while the store cannot be written, and
	// another one once it can again.
	Failed() <-chan struct{}
	// Err is why it cannot be written; nil if it can.
	Err() error
	// Sync returns when what was acknowledged for the stream is on the disk, where that is
	// waited for, which Waits says; else it only sees to it that it soon is.
	Sync(stream string) error
	Waits() bool
	// Soon sees to it that it is on the disk within about a second.
	Soon(stream string)
	// Late is told what of the store has had no answer for so long, and is asked again.
	Late(what string, waited time.Duration)
}

// ErrStore is wrapped by the error of a Pending whose store cannot be written.
var ErrStore = errors.New("the journal cannot be written")

// Bounds of what may be on its way to the store. The server keeps 10,000 messages
// and 128 MiB for a stream, and drops what comes beyond that.
const (
	maxPending      = 4096
	maxPendingBytes = 64 << 20
	// askEvery is how many messages go between two questions: within a large batch they
	// make room, long before the bounds.
	askEvery      = maxPending / 8
	askEveryBytes = maxPendingBytes / 8
	// stallWait is how long a writer waits for room.
	stallWait = 30 * time.Second
)

// writer stores messages over one connection, in the order of its calls. The server
// takes the messages of a connection in their order, so the acknowledgement of the
// last one of a batch tells of all: one for each would cost as much as storing it.
type writer struct {
	nc     *nats.Conn
	inbox  string // begins the subjects of acknowledgements
	store  Store
	stream string
	closed <-chan struct{} // closed with the connection
	acked  chan struct{}   // something was acknowledged
	grown  chan struct{}   // and this, for who writes down what

	order    sync.Mutex      // held while a batch is sent; it guards what follows
	failed   <-chan struct{} // of the store, when the latest batch began
	reserve  func(upto uint64) error
	reserved uint64 // the sequence up to which it was called

	mu         sync.Mutex // guards the rest
	sent, done tally      // messages that were sent, and acknowledged
	asked      []question // the oldest first
	tap        tap
	doubts     bool // a message was refused, or may never be answered
}

// tally counts messages and their bytes since the writer began.
type tally struct{ n, bytes uint64 }

// question is a message that is to be acknowledged.
type question struct {
	tally
	p    *Pending
	last bool // message of p; else only room is asked for
}

func newWriter(nc *nats.Conn, store Store, stream string) (*writer, error) {
	if store == nil {
		store = sound{}
	}
	w := &writer{nc: nc, stream: stream, inbox: nc.NewInbox() + ".", store: store, closed: closing(nc), failed: store.Failed(), acked: make(chan struct{}, 1), grown: make(chan struct{}, 1), tap: tap{join: joiner{}}}
	take := w.answer
	if store.Waits() {
		b := &backlog{more: make(chan struct{}, 1)}
		take = b.add
		go w.finishBacklog(b) // ends with the connection
	}
	sub, err := nc.Subscribe(w.inbox+"*", take)
	if err != nil {
		return nil, err
	}
	return w, sub.SetPendingLimits(-1, -1)
}

// sound is a Store that never fails.
type sound struct{}

func (sound) Failed() <-chan struct{}    { return nil }
func (sound) Err() error                 { return nil }
func (sound) Sync(string) error          { return nil }
func (sound) Waits() bool                { return false }
func (sound) Soon(string)                {}
func (sound) Late(string, time.Duration) {}

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
	of     *Pending   // of a piece: that of its event, or of a whole batch
	writer *writer
	failed <-chan struct{} // of the store, when it began
	done   chan struct{}   // closed when what follows is known
	seq    uint64
	again  bool // the last message was a repetition
	err    error

	names   *names     // is told when it is stored, that these batches are; may be nil
	batches []namedEnd // that it stores
	repeats []known    // batches that were stored before it, or are being stored
}

// namedEnd is a batch and the number of its last message, 0 for the last one of all.
type namedEnd struct {
	name string
	n    uint64
}

// stores notes that the batch is among those that p is for.
func (p *Pending) stores(l Batch, n uint64) {
	if l.Name != "" {
		p.batches = append(p.batches, namedEnd{l.Name, n})
	}
}

// repetition is p where all of its batches are stored already, or being stored.
func (p *Pending) repetition() *Pending {
	last := p.repeats[len(p.repeats)-1]
	if len(p.repeats) == 1 {
		return last.pending(p.writer)
	}
	p.seq, p.again = last.end, true
	close(p.done)
	return p
}

// Sequences returns where the pieces of the event lie, for Fetch, once Wait has
// returned nil.
func (p *Pending) Sequences(ctx context.Context) ([]uint64, error) {
	sequences := make([]uint64, 0, len(p.before)+1)
	for _, one := range p.before {
		seq, err := one.Wait(ctx)
		if err != nil {
			return nil, err
		}
		sequences = append(sequences, seq)
	}
	p.before = nil
	return append(sequences, p.seq), nil
}

// Wait returns when the event is stored.
func (p *Pending) Wait(ctx context.Context) (uint64, error) {
	err := p.wait(ctx)
	select {
	case <-p.failed: // a part of the batch may be lost, whatever became of its last message
		err = p.writer.broken()
	default:
	}
	for _, k := range p.repeats {
		if k.p != nil && err == nil {
			_, err = k.p.Wait(ctx)
		}
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

// begin is called before the messages of a batch, with the order held.
func (w *writer) begin() (*Pending, error) {
	p := &Pending{writer: w, failed: w.store.Failed(), done: make(chan struct{})}
	if p.failed != w.failed { // what was under way then is never answered
		w.forget()
		w.failed = p.failed
	}
	select {
	case <-p.failed: // it would be lost, or worse: stored without what was before it
		return nil, fmt.Errorf("store the event: %w", w.broken())
	default:
		return p, nil
	}
}

// send sends one message.
func (w *writer) send(m *nats.Msg) (*Pending, error) {
	w.order.Lock()
	defer w.order.Unlock()
	p, err := w.begin()
	if err != nil {
		return nil, err
	}
	return p, w.put(m, p, true)
}

// put sends a message when there is room for it. p is told of the last one.
func (w *writer) put(m *nats.Msg, p *Pending, last bool) error {
	err := w.wait(p)
	if err == nil {
		err = w.ahead()
	}
	if err == nil {
		err = w.one(m, p, last)
	}
	if err != nil {
		return fmt.Errorf("store the event: %w", err)
	}
	return nil
}

// reserveStep is how many sequences are reserved at once, and reserveLeft how many are left
// when the next are: more than what may be under way when an answer is missing.
const (
	reserveStep = 1 << 20
	reserveLeft = 1 << 16
)

// ahead reserves the sequence of the next message, which is known only about.
func (w *writer) ahead() error {
	if w.reserve == nil {
		return nil
	}
	w.mu.Lock()
	next := w.tap.seq + (w.sent.n - w.tap.n) + 1
	w.mu.Unlock()
	if next+reserveLeft <= w.reserved {
		return nil
	}
	if err := w.reserve(next + reserveStep); err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	w.reserved = next + reserveStep
	return nil
}

func (w *writer) one(m *nats.Msg, p *Pending, last bool) error {
	w.mu.Lock()
	w.sent.n++
	w.sent.bytes += uint64(len(m.Data))
	w.tap.sent(m)
	known := w.done
	if n := len(w.asked); n > 0 {
		known = w.asked[n-1].tally
	}
	if last || w.sent.n-known.n >= askEvery || w.sent.bytes-known.bytes >= askEveryBytes {
		q := question{w.sent, p, last}
		w.asked = append(w.asked, q)
		m.Reply = w.inbox + strconv.FormatUint(q.n, 36)
	}
	w.mu.Unlock()
	return w.nc.PublishMsg(m)
}

var errMute = errors.New("it does not answer")

// wait returns when there is room for one more message.
func (w *writer) wait(p *Pending) error {
	select {
	case <-p.failed: // no more of the batch: it could be stored without what was before it
		return w.broken()
	default:
	}
	var limit <-chan time.Time
	for w.full() {
		if limit == nil {
			t := time.NewTimer(stallWait)
			defer t.Stop()
			limit = t.C
		}
		select {
		case <-w.acked:
		case <-p.failed:
			return w.broken()
		case <-w.closed:
			return nats.ErrConnectionClosed
		case <-limit:
			w.forget()
			return errMute
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
	w.done, w.asked, w.doubts = w.sent, nil, true
	w.tap.forget(w.sent.n)
}

// doubt says that what was sent may not be stored, trust that it is known again what is.
func (w *writer) doubt() { w.setDoubts(true) }
func (w *writer) trust() { w.setDoubts(false) }

func (w *writer) setDoubts(to bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.doubts = to
}

func (w *writer) doubted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.doubts
}

// number is that of the message that was sent last.
func (w *writer) number() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent.n
}

// latest is the sequence that the message which was sent last will have, if none is refused.
func (w *writer) latest() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tap.seq + w.sent.n - w.tap.n
}

// underWay is how many bytes were sent and are not known to be stored, about.
func (w *writer) underWay() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return int64(w.sent.bytes - w.done.bytes)
}

// stored is the sequence of the latest message that is known to be stored.
func (w *writer) stored() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tap.seq
}

// drain returns when the server has taken, or dropped, everything that was sent: it
// takes a message that it cannot store in its turn.
func (w *writer) drain(ctx context.Context, stream string) error {
	m := &nats.Msg{Subject: event.Root + ".nothing", Header: nats.Header{jetstream.ExpectedStreamHeader: {"not " + stream}}}
	_, err := w.nc.RequestMsgWithContext(ctx, m)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil // the store was closed, and is opened
	}
	return err
}

// backlog is acknowledgements that wait until what they acknowledge is on the disk: all
// that come while that is written share the next sync.
type backlog struct {
	mu   sync.Mutex
	list []*nats.Msg
	more chan struct{}
}

func (b *backlog) add(m *nats.Msg) {
	b.mu.Lock()
	b.list = append(b.list, m)
	b.mu.Unlock()
	select {
	case b.more <- struct{}{}:
	default:
	}
}

func (b *backlog) take() (list []*nats.Msg) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list, b.list = b.list, nil
	return list
}

func (w *writer) finishBacklog(b *backlog) {
	for {
		select {
		case <-b.more:
		case <-w.closed:
			return
		}
		list := b.take()
		if len(list) == 0 {
			continue
		}
		err := w.store.Sync(w.stream)
		for _, m := range list {
			w.finishOne(m, err)
		}
	}
}

// answer takes one acknowledgement, or a refusal, where nobody waits for the disk.
func (w *writer) answer(m *nats.Msg) {
	w.finishOne(m, w.store.Sync(w.stream))
}

// finishOne tells who waits what became of a message; synced is why it is not on the
// disk, if it is not.
func (w *writer) finishOne(m *nats.Msg, synced error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, w.inbox), 36, 64)
	if err != nil {
		return // nobody was asked for it
	}
	seq, err := acknowledged(m)
	if err == nil && synced != nil {
		err = fmt.Errorf("%w: %w", ErrStore, synced)
	}
	again := bytes.Contains(m.Data, []byte(`"duplicate":`))
	q := w.take(n)
	if err = w.tap.stored(&w.mu, n, seq, err); again && errors.Is(err, errRefused) {
		err = nil
	}
	if err != nil {
		w.doubt()
	}
	select {
	case w.acked <- struct{}{}:
	default:
	}
	for p := q.p; p != nil; p = p.of {
		p.err = cmp.Or(p.err, err)
	}
	if q.p != nil && q.last {
		q.p.end(q.n, seq, again)
	}
	select {
	case w.grown <- struct{}{}:
	default:
	}
}

// end is called when all is known: message n, the last one, is at the sequence seq.
func (p *Pending) end(n, seq uint64, again bool) {
	p.seq, p.again = seq, again
	if p.err == nil {
		for _, l := range p.batches {
			behind := uint64(0)
			if l.n > 0 {
				behind = n - l.n
			}
			p.names.stored(l.name, p, seq-behind)
		}
	}
	close(p.done)
}

// take removes the question n and returns it.
func (w *writer) take(n uint64) question {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.asked, func(q question) bool { return q.n == n })
	if i < 0 {
		return question{} // it was forgotten
	}
	q := w.asked[i]
	if i == 0 { // as nearly always
		w.asked = w.asked[1:]
	} else {
		w.asked = slices.Delete(w.asked, i, i+1)
	}
	if q.n > w.done.n {
		w.done = q.tally
	}
	return q
}

// acknowledged reads the server's word on one message.
func acknowledged(m *nats.Msg) (seq uint64, err error) {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return 0, nats.ErrNoResponders
	}
	if seq, ok := quickSeq(m.Data); ok {
		return seq, nil
	}
	var ack struct {
		Error *jetstream.APIError `json:"error"`
		Seq   uint64              `json:"seq"`
	}
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		return 0, fmt.Errorf("unreadable acknowledgement: %w", err)
	}
	if ack.Error != nil {
		return 0, storageError(ack.Error)
	}
	return ack.Seq, nil
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
