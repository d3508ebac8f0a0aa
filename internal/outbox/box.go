// Package outbox is store-and-forward between a minion and its master: what is for the
// master's journal, returns and events, waits on the minion's disk until the master has
// stored it.
//
// Each message is named by an epoch, new with each start of the minion, and a number.
// The minion's end is a [Box], the master's the [Receiver], which remembers how far each
// epoch is stored: so a kill of either side at any moment loses nothing, and doubles
// nothing.
//
// It makes no connection and runs no job: how the master is reached is a [Master], and
// what a message becomes in the journal is for an [Opener].
package outbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/blockfile"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/eventbus"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// Master is a connection to a master, which takes batches.
type Master interface {
	Ask(ctx context.Context, op string, body, answer any) error
	Call(op string, body any) (*rpc.Stream, error)
	// Gone is closed when the connection has ended.
	Gone() <-chan struct{}
}

// Options are what the outboxes of a minion are opened with. All but MaxAge and Lost are
// required.
type Options struct {
	ID       salt.MinionID
	Dir      string           // of the minion's data
	Conn     *nats.Conn       // to its own bus
	Store    journal.Store    // of that
	MaxBytes int64            // that an outbox may hold
	MaxAge   time.Duration    // how long it keeps a message; 0 is for ever
	Lost     []blockfile.Lost // what of the store could not be read at this start
	Log      *slog.Logger
}

// Box is the minion's end: it carries what is for the master's journal. Everything
// goes through its queue, also while there is a master, so that the order of all is
// kept. It is safe for concurrent use.
type Box struct {
	name   string // "" or, of one of several, its master's address
	log    *slog.Logger
	master func() Master // the present one, nil for none
	queue  *journal.Queue
	dir    string // of bodies too large for the queue
	limit  int64
	age    time.Duration
	epoch  string
	own    string // the minion's own tag space on the master's bus
	ready  chan struct{}

	requests *requests
	// keep is read-held from when a message is put for a request with a name until
	// that is recorded, and held while messages are removed: until the record is
	// there, the queue itself must know the request again.
	keep sync.RWMutex

	head      sync.Mutex // held by who takes messages from the head; it guards what follows
	looked    time.Time  // when messages that are too old were looked for last
	uncleared int        // messages that have left and are still in the store
	files     []string   // theirs
	cleared   time.Time

	mu   sync.Mutex // guards the rest, and that numbers and sequences agree
	n    uint64     // of the newest message of this epoch
	span journal.Span
	asks map[uint64]chan Delivery // of senders that wait, by number
	left chan struct{}            // closed, and made anew, when messages have gone
	lost losses

	fresh      map[uint64]queued // messages of the queue that are in memory, by sequence
	freshBytes int               // their bodies
}

// kept is a message as it is kept.
type kept struct {
	Message
	File   string `json:"file,omitempty"`   // in the outbox's folder; it holds a large body
	Size   int64  `json:"size,omitempty"`   // of that file
	Events int    `json:"events,omitempty"` // that it carries; 0 for a return
}

// maxInline is the largest body that is kept in the queue itself: the message
// around it needs a little.
const maxInline = journal.MaxEntry - 4<<10

// answerTime bounds how long the master may take for one request, and the own
// server to store one message. A large body gets more, by slowest.
const answerTime = 10 * time.Second

// Patience is how long a sender waits to hear that the master has stored what it
// sent, beside the time that a large body takes. Then it is told that the outbox has
// it, which is as safe.
const Patience = 5 * time.Second

// What the outboxes are called in the data directory and in the own server.
const (
	boxFolder = "outbox"
	queueName = "OUTBOX"
)

// open opens the outbox of this name.
func open(ctx context.Context, o Options, name string, master func() Master) (*Box, error) {
	b := &Box{
		name: name, log: o.Log, master: master, dir: filepath.Join(o.Dir, boxFolder+name), limit: o.MaxBytes, age: o.MaxAge,
		epoch: bus.NewNonce(), own: "salt/minion/" + string(o.ID), ready: make(chan struct{}, 1), asks: map[uint64]chan Delivery{},
		left: make(chan struct{}), fresh: map[uint64]queued{},
	}
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return nil, err
	}
	var err error
	if b.queue, err = journal.OpenQueue(ctx, o.Conn, queueName+name, o.Store); err != nil {
		return nil, err
	}
	if b.span, err = b.queue.Span(ctx); err != nil {
		return nil, err
	}
	if err := b.sweep(ctx); err != nil {
		return nil, err
	}
	if b.lost, err = readLosses(filepath.Join(o.Dir, "outbox_lost"+name)); err != nil {
		return nil, err
	}
	if b.requests, err = openRequests(filepath.Join(o.Dir, "outbox_requests"+name)); err != nil {
		return nil, err
	}
	for _, l := range o.Lost {
		if l.Stream == queueName+name {
			b.damaged(l)
		}
	}
	return b, nil
}

// Name is "", or of one of several that of its master's address.
func (b *Box) Name() string { return b.name }

// close is the last use: a job that did not end in time may still try to put something.
func (b *Box) close() { b.requests.end() }

// damaged notes messages that cannot be read any more.
func (b *Box) damaged(l blockfile.Lost) {
	from, to := max(l.From, b.span.First), max(l.To, l.From)
	if to < from {
		return // it was delivered
	}
	b.change(func(now *losses) { now.damaged(Damage{From: from, To: to, After: l.After, Before: l.Before}) })
	b.log.Error("messages in the outbox are damaged and lost", "from", from, "to", to, "after", l.After, "before", l.Before)
}

// Outgoing is something for the master.
type Outgoing struct {
	Op     string // protocol.OpFire, OpReturn, or "ret." and the jid
	Body   any
	Events int    // how many the body fires; 0 for a return
	ID     string // names it against a repetition by who asked for it; "" never repeats
}

// Send hands something to the master, and waits a little for its word. It returns
// an error only when the master refuses it, or when it cannot be kept.
func (b *Box) Send(ctx context.Context, out Outgoing) (protocol.Fired, error) {
	return b.handOver(ctx, out, func(p placed) time.Duration { return Patience + time.Duration(p.size/slowest)*time.Second })
}

// SendWhole is Send that waits as long as the master is there.
func (b *Box) SendWhole(ctx context.Context, out Outgoing) (protocol.Fired, error) {
	return b.handOver(ctx, out, func(placed) time.Duration { return math.MaxInt64 })
}

// handOver waits for the master's word as long as patience says of what is in the queue.
func (b *Box) handOver(ctx context.Context, out Outgoing, patience func(placed) time.Duration) (protocol.Fired, error) {
	master := b.master()
	p, err := b.put(ctx, out, master != nil)
	if err != nil || master == nil {
		return protocol.Fired{Outcome: protocol.Queued}, err
	}
	defer b.forget(p.n)
	b.await(ctx, master, p, patience(p))
	select {
	case d := <-p.outcome: // the word comes before the message goes
		return outcome(d)
	default:
	}
	if b.isGone(p.seq) {
		return protocol.Fired{Outcome: protocol.Stored}, nil
	}
	return protocol.Fired{Outcome: protocol.Queued}, nil
}

// await returns when the message has left the queue, or there is no use in waiting
// any longer.
func (b *Box) await(ctx context.Context, master Master, p placed, patience time.Duration) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		b.mu.Lock()
		gone, left := p.seq < b.span.First, b.left
		b.mu.Unlock()
		if gone {
			return
		}
		select {
		case <-left:
		case <-master.Gone():
			return
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func outcome(d Delivery) (protocol.Fired, error) {
	if d.Refused != nil {
		return protocol.Fired{}, d.Refused
	}
	return protocol.Fired{Outcome: protocol.Stored, Seq: d.Seq}, nil
}

// placed is a message that is in the queue.
type placed struct {
	n, seq  uint64
	size    int
	outcome chan Delivery // nil unless it is watched
}

// Put stores something at the end of the queue. When it returns nil it survives a kill
// of the process.
func (b *Box) Put(ctx context.Context, out Outgoing) error {
	_, err := b.put(ctx, out, false)
	return err
}

// put stores a message at the end of the queue. When it returns nil the message
// survives a kill of the process.
func (b *Box) put(ctx context.Context, out Outgoing, watch bool) (placed, error) {
	if seq, known := b.requests.find(out.ID); known {
		return placed{seq: seq}, nil
	}
	body, err := protocol.Encode(out.Body)
	if err != nil {
		return placed{}, err
	}
	k := kept{Message: Message{Op: out.Op, Body: body}, Events: out.Events}
	// What is under way is finished, even if who asked for it is gone.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime+time.Duration(len(body)/slowest)*time.Second)
	defer cancel()
	if err := b.makeSpace(ctx, int64(len(body))); err != nil {
		return placed{}, err
	}
	if len(body) > maxInline {
		if err := b.toFile(&k); err != nil {
			return placed{}, eventbus.NotStored(err)
		}
	}
	p, err := b.store(ctx, k, out.ID, watch)
	if err != nil {
		b.forget(p.n)
		return placed{}, eventbus.NotStored(fmt.Errorf("keep it in the outbox: %w", err))
	}
	b.Wake()
	p.size = len(body)
	return p, nil
}

// store puts the message into the queue, and its request into the record.
func (b *Box) store(ctx context.Context, k kept, id string, watch bool) (placed, error) {
	b.keep.RLock()
	defer b.keep.RUnlock()
	p, k, pending, size, err := b.begin(k, id, watch)
	if err == nil {
		p.seq, err = pending.Wait(ctx)
	}
	if err == nil && id != "" {
		err = b.requests.add(id, p.seq)
	}
	if err != nil {
		return p, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.span.Last = max(b.span.Last, p.seq)
	b.span.Bytes += size
	if !pending.Repeated() {
		b.remember(queued{kept: k, entry: journal.Entry{Seq: p.seq, Stored: time.Now(), Size: size - k.Size}})
	}
	return p, nil
}

// remember keeps a message that is in the queue in memory, too, if there is room: one that
// is delivered at once need not be read back. Its caller holds mu.
func (b *Box) remember(m queued) {
	if m.entry.Seq < b.span.First || len(b.fresh) >= MaxBatch || b.freshBytes+len(m.Body) > readBytes {
		return
	}
	b.fresh[m.entry.Seq] = m
	b.freshBytes += len(m.Body)
}

// atHead returns the messages at the head of the queue that are in memory.
func (b *Box) atHead() (batch []queued) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for seq := b.span.First; ; seq++ {
		m, here := b.fresh[seq]
		if !here {
			return batch
		}
		batch = append(batch, m)
	}
}

// toFile moves the body into a file of its own.
func (b *Box) toFile(k *kept) error {
	k.File, k.Size = bus.NewNonce(), int64(len(k.Body))
	if err := atomicfile.Write(filepath.Join(b.dir, k.File), k.Body, 0o600); err != nil {
		return err
	}
	k.Body = nil
	return nil
}

// begin gives the message its number and its sequence, in one step: the master takes a
// lower number after a higher one for a repetition.
func (b *Box) begin(k kept, id string, watch bool) (p placed, numbered kept, pending *journal.Pending, size int64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n++
	k.Epoch, k.N = b.epoch, b.n
	packed, err := k.pack()
	if err != nil {
		return p, k, nil, 0, err
	}
	p.n = k.N
	if watch {
		p.outcome = make(chan Delivery, 1)
		b.asks[p.n] = p.outcome
	}
	pending, err = b.queue.Begin(packed, id)
	return p, k, pending, b.queue.Size(packed) + k.Size, err
}

func (b *Box) forget(n uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.asks, n)
}

// tell tells the sender of a message what became of it, if it waits.
func (b *Box) tell(k kept, d Delivery) {
	if k.Epoch != b.epoch {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.asks[k.N]; c != nil {
		c <- d // it has room for the one word there is
		delete(b.asks, k.N)
	}
}

func (b *Box) isGone(seq uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return seq < b.span.First
}

// Waiting is how many messages are in the queue.
func (b *Box) Waiting() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.span.Last + 1 - min(b.span.First, b.span.Last+1)
}

// Wake tells Drain to look again: there is a master.
func (b *Box) Wake() {
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// path is where a large body lies. The name comes from the own queue, but it is
// kept to the folder all the same.
func (b *Box) path(k kept) string { return filepath.Join(b.dir, filepath.Base(k.File)) }

// sweep removes files that no message names: of messages that were delivered, or
// never put, when the process was killed. It counts the others.
func (b *Box) sweep(ctx context.Context) error {
	files, err := os.ReadDir(b.dir)
	if err != nil || len(files) == 0 {
		return err
	}
	named := map[string]bool{}
	for from := b.span.First; ; {
		entries, err := b.queue.Read(ctx, from, MaxBatch, readBytes)
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			break
		}
		for _, e := range entries {
			if k, err := unpack(e); err == nil && k.File != "" {
				named[filepath.Base(k.File)] = true
				b.span.Bytes += k.Size
			}
			from = e.Seq + 1
		}
	}
	for _, f := range files {
		if !named[f.Name()] {
			err = errors.Join(err, os.RemoveAll(filepath.Join(b.dir, f.Name())))
		}
	}
	return err
}

// pack writes a line with all but the body, and the body.
func (k kept) pack() ([]byte, error) {
	body := k.Body
	k.Body = nil
	head, err := json.Marshal(k)
	if err != nil {
		return nil, err
	}
	return append(append(append(make([]byte, 0, len(head)+1+len(body)), head...), '\n'), body...), nil
}

// unpack reads it, or a JSON document, which has no line ends: an older minion kept
// messages like that.
func unpack(e journal.Entry) (k kept, err error) {
	head, body, lines := bytes.Cut(e.Body, []byte("\n"))
	if err = json.Unmarshal(head, &k); err == nil && lines {
		k.Body = body
	}
	return k, err
}
