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
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/salt"
)

// Store reports whether the files of JetStream can be written. A failed store does not answer
// writers.
type Store interface {
	// Failed returns a channel that is closed while the store cannot be written. Once it can
	// again, Failed returns another one.
	Failed() <-chan struct{}
	// Err returns why it cannot be written; nil if it can.
	Err() error
	// Sync returns when everything acknowledged for the stream is on the disk, if Waits is
	// true; otherwise it only makes sure that this happens soon.
	Sync(stream string) error
	Waits() bool
	// Soon makes sure that it is on the disk within about a second.
	Soon(stream string)
	// Room makes sure that the disk has room for what the server writes when that many messages
	// are removed from the stream; otherwise the error wraps ENOSPC.
	Room(stream string, messages uint64) error
	Delays
}

// Delays is informed of each question to the store that got no answer for that long and is
// asked again.
type Delays interface {
	Late(what string, waited time.Duration)
}

// ErrStore is wrapped by the error of a Pending whose store cannot be written.
var ErrStore error = salt.Unwritten("the journal")

// Limits of what may be on its way to the store. The server queues 10,000 messages and 128 MiB
// for a stream, and drops what exceeds that.
const (
	maxPending      = 4096
	maxPendingBytes = 64 << 20
	// askEvery is how many messages are sent between two requests for an acknowledgement:
	// within a large batch these make room long before the limits.
	askEvery      = maxPending / 8
	askEveryBytes = maxPendingBytes / 8
	// stallWait is how long a writer waits for room.
	stallWait = 30 * time.Second
)

// writer stores messages over one connection, in the order of its calls. The server handles the
// messages of a connection in order, so the acknowledgement of the last message of a batch
// stands for all: one for each would cost as much as storing it.
type writer struct {
	nc     *nats.Conn
	inbox  string // prefix of the subjects of acknowledgements
	store  Store
	stream string
	closed <-chan struct{} // closed with the connection
	acked  chan struct{}   // signals an acknowledgement
	grown  chan struct{}   // the same, for keepNames

	fence   *fence             // nil for a stream that has no copies
	patient *patient           // its store
	missed  func(after uint64) // is told of messages that somebody else has stored; nil for nobody

	order    sync.Mutex      // held while a batch is sent; guards the next fields
	failed   <-chan struct{} // of the store when the latest batch began
	reserve  func(upto uint64) error
	reserved uint64 // the sequence up to which reserve was called

	mu         sync.Mutex // guards the rest
	sent, done tally      // messages sent, and acknowledged
	asked      []question // the oldest first
	tap        tap
	doubts     bool // a message was refused, or may remain without an answer
}

// tally counts messages and their bytes since the writer began.
type tally struct{ n, bytes uint64 }

// question is a message with a request for an acknowledgement.
type question struct {
	tally
	p    *Pending
	last bool // message of p; otherwise it only makes room
}

func newWriter(nc *nats.Conn, store Store, stream string) (*writer, error) {
	if store == nil {
		store = sound{}
	}
	w := &writer{nc: nc, stream: stream, inbox: nc.NewInbox() + ".", store: store, closed: closing(nc), failed: store.Failed(), acked: make(chan struct{}, 1), grown: make(chan struct{}, 1), tap: tap{begun: partial{}}}
	take := func(m *nats.Msg) {
		if w.fence != nil {
			w.answerFenced(m)
		} else {
			w.answer(m)
		}
	}
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
func (sound) Room(string, uint64) error  { return nil }
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
	of     *Pending   // for a piece: the Pending of its event or batch
	term   uint64     // of Batch
	writer *writer
	failed <-chan struct{} // of the store, when it began
	done   chan struct{}   // closed when the next fields are set
	seq    uint64
	again  bool // the last message was a duplicate
	err    error

	names   *names     // informed when these batches are stored; may be nil
	batches []namedEnd // stored by it
	repeats []known    // batches stored before it, or being stored
}

// namedEnd is a batch and the number of its last message, 0 for the last one of all.
type namedEnd struct {
	name string
	n    uint64
}

// stores adds the batch to those that p is for.
func (p *Pending) stores(l Batch, n uint64) {
	for _, name := range []string{l.Name, l.Also} {
		if name != "" {
			p.batches = append(p.batches, namedEnd{name, n})
		}
	}
}

// repetition returns p if all of its batches are stored already, or being stored.
func (p *Pending) repetition() *Pending {
	last := p.repeats[len(p.repeats)-1]
	if len(p.repeats) == 1 {
		return last.pending(p.writer)
	}
	p.seq, p.again = last.end, true
	close(p.done)
	return p
}

// Sequences returns the sequences of the pieces of the event, for Fetch, once Wait has returned
// nil.
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
	case <-p.failed: // a part of the batch may be lost, whatever happened to its last message
		if !p.settled() {
			err = p.writer.broken()
		}
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

// settled reports whether it is stored for sure, with all before it.
func (p *Pending) settled() bool {
	if p.writer.fence == nil {
		return false
	}
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Repeated reports, once Wait has returned nil, whether the last event was stored before.
func (p *Pending) Repeated() bool { return p.again }

func (p *Pending) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-p.failed:
		return nil // Wait sees it
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
	return fmt.Errorf("%w: %w", ErrStore, errMoment)
}

// errMoment is why something was not stored if the store can be written again by now.
const errMoment = salt.Unanswered("that was so for a moment only")

// begin is called before the messages of a batch; the caller holds order.
func (w *writer) begin() (*Pending, error) {
	p := &Pending{writer: w, failed: w.store.Failed(), done: make(chan struct{})}
	if p.failed != w.failed {
		if w.fence == nil { // messages that were under way are never answered
			w.forget()
		}
		w.failed = p.failed
	}
	select {
	case <-p.failed: // it would be lost, or even stored without the messages before it
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
	return p, w.put(m, inFlight{text: m.Data}, p, true)
}

// put sends a message when there is room for it, and keeps nothing of it but what a tap needs.
// p is informed of the last message.
func (w *writer) put(m *nats.Msg, f inFlight, p *Pending, last bool) error {
	err := w.wait(p)
	if err == nil {
		err = w.ahead()
	}
	if err == nil {
		err = w.one(m, f, p, last)
	}
	if err != nil {
		return fmt.Errorf("store the event: %w", err)
	}
	return nil
}

// reserveStep is how many sequences are reserved at once, and reserveLeft how many are left
// when the next are reserved: more than can be under way when an answer is missing.
const (
	reserveStep = 1 << 20
	reserveLeft = 1 << 16
)

// ahead reserves the sequence of the next message, which is known only approximately.
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

func (w *writer) one(m *nats.Msg, f inFlight, p *Pending, last bool) error {
	if w.fence != nil {
		return w.sendFenced(m, f, p, last)
	}
	w.mu.Lock()
	w.count(m, f, p, last)
	w.mu.Unlock()
	return w.nc.PublishMsg(m)
}

// count counts a message, and asks for an acknowledgement where one is due. The caller holds
// the lock.
func (w *writer) count(m *nats.Msg, f inFlight, p *Pending, last bool) {
	w.sent.n++
	w.sent.bytes += uint64(len(m.Data))
	w.tap.sent(f)
	known := w.done
	if n := len(w.asked); n > 0 {
		known = w.asked[n-1].tally
	}
	if last || w.sent.n-known.n >= askEvery || w.sent.bytes-known.bytes >= askEveryBytes {
		q := question{w.sent, p, last}
		w.asked = append(w.asked, q)
		m.Reply = w.reply(q.n)
	}
}

var errMute = errors.New("the store does not answer")

// wait returns when there is room for one more message.
func (w *writer) wait(p *Pending) error {
	select {
	case <-p.failed: // no more of the batch: it could be stored without the messages before it
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
	if w.fence != nil { // what is under way is stored later
		w.doubts = true
		return
	}
	w.done, w.asked, w.doubts = w.sent, nil, true
	w.tap.forget(w.sent.n)
}

// doubt records that messages sent may not be stored; trust, that it is known again what is.
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

// number returns the number of the message that was sent last.
func (w *writer) number() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent.n
}

// latest returns the sequence that the latest sent message will have if none is refused.
func (w *writer) latest() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tap.seq + w.sent.n - w.tap.n
}

// underWay returns about how many bytes were sent and are not known to be stored.
func (w *writer) underWay() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return int64(w.sent.bytes - w.done.bytes)
}

// stored returns the sequence of the latest message that is known to be stored.
func (w *writer) stored() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tap.seq
}

// drain returns when the server has stored or dropped everything that was sent: it handles a
// message that it cannot store in its turn, too.
func (w *writer) drain(ctx context.Context, stream string) error {
	if w.fence != nil {
		return w.settled(ctx)
	}
	m := &nats.Msg{Subject: event.Root + ".nothing", Header: nats.Header{jetstream.ExpectedStreamHeader: {"not " + stream}}}
	_, err := w.nc.RequestMsgWithContext(ctx, m)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil // the store was closed, and is open again
	}
	return err
}

// backlog is acknowledgements that wait until their messages are on the disk. All that arrive
// during a sync share the next one.
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

// synced returns when everything that the store shows is on the disk, if writers wait for that: whoever stores it again
// is told that it is stored.
func (w *writer) synced(ctx context.Context) error {
	if !w.store.Waits() {
		return nil
	}
	done := make(chan error, 1)
	go func() { done <- w.store.Sync(w.stream) }() // it ends when the disk answers
	select {
	case err := <-done:
		if err != nil {
			err = fmt.Errorf("%w: %w", ErrStore, err)
		}
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// answer handles an acknowledgement, or a refusal, if nobody waits for the disk.
func (w *writer) answer(m *nats.Msg) {
	w.finishOne(m, w.store.Sync(w.stream))
}

// finishOne reports the result of a message; synced is the error if it is not on the disk.
func (w *writer) finishOne(m *nats.Msg, synced error) {
	n, _, err := w.numberIn(m.Subject)
	if err != nil {
		return // no acknowledgement was requested
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

// end is called when all is known: message n, the last one, has the sequence seq.
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

// take removes question n and returns it.
func (w *writer) take(n uint64) question {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.asked, func(q question) bool { return q.n == n })
	if i < 0 {
		return question{} // it was dropped
	}
	q := w.asked[i]
	if i == 0 { // nearly always
		w.asked = w.asked[1:]
	} else {
		w.asked = slices.Delete(w.asked, i, i+1)
	}
	if q.n > w.done.n {
		w.done = q.tally
	}
	return q
}

// acknowledged parses the server's answer to one message.
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

// quickSeq parses the usual acknowledgement, {"stream":"NAME","seq":1}.
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
