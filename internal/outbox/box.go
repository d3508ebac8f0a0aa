// Package outbox is store-and-forward between a minion and its master: messages for the
// master's journal, returns and events, wait on the minion's disk until the master has stored
// them.
//
// Each message has an epoch, new with each start of the minion, and a number. The minion's end
// is a [Box], the master's the [Receiver], which remembers how far each epoch is stored: so a
// kill of either side at any time loses nothing and duplicates nothing.
//
// It makes no connection and runs no job: a [Master] is the connection, and an [Opener] turns a
// message into records of the journal.
package outbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/blockfile"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// Master is a connection to a master, which receives batches.
type Master interface {
	Ask(ctx context.Context, op string, body, answer any) error
	Call(op string, body any) (*rpc.Stream, error)
	// Framed reports whether the master speaks protocol 1.
	Framed() bool
	// Gone is closed when the connection has ended.
	Gone() <-chan struct{}
	// TakesEarly reports whether the master answers OpEarly: one of a cluster does.
	TakesEarly() bool
}

// Options are the settings of a minion's outboxes. All but MaxAge and Lost are required.
type Options struct {
	ID       salt.MinionID
	Dir      string           // the minion's data directory
	Conn     *nats.Conn       // to the minion's own bus
	Store    journal.Store    // the store of that bus
	MaxBytes int64            // maximum size of an outbox
	MaxAge   time.Duration    // maximum age of a message; 0 is forever
	Lost     []blockfile.Lost // parts of the store that could not be read at this start
	Log      *slog.Logger
}

// Box is the minion's end: it delivers messages for the master's journal. All messages go
// through its queue, even while there is a master, to keep their order. It is safe for
// concurrent use.
type Box struct {
	route
	name  string // "", or with several outboxes the address of its master
	log   *slog.Logger
	queue *journal.Queue
	dir   string // for bodies too large for the queue
	limit int64
	age   time.Duration
	ran   runtime // its file is written with head held
	epoch string
	begun uint64 // messages up to this sequence are of earlier runs
	own   string // the minion's own tag space on the master's bus
	ready chan struct{}

	requests *requests
	// keep is read-locked from when the message of a request with an id is put until the
	// request is recorded, and locked while messages are removed: before the record exists, the
	// queue itself must recognise the request.
	keep sync.RWMutex

	head      headLock  // held while messages are taken from the head; guards the next fields
	looked    time.Time // when messages were last checked for their age
	uncleared int       // messages that were delivered and are still in the store
	files     []string  // their files
	cleared   time.Time
	mixed     bool // there are messages of several generations; only turn uses it

	mu   sync.Mutex // guards the rest, and keeps numbers and sequences in the same order
	n    uint64     // number of the newest message of the own epoch
	span journal.Span
	asks map[number]chan Delivery // channels of waiting senders
	left chan struct{}            // closed and replaced when messages have left
	lost losses

	recent recent // messages of the queue that are in memory
}

// route is where the messages of an outbox go.
type route struct {
	generation func() string                          // the present one of its connection
	master     func(generation string) Master         // the present one for messages of a generation, nil for none
	failed     func(generation string, master Master) // is told that one has not stored a request
	// enter waits until messages of a generation may be delivered; leave must follow. It fails only if ctx ends.
	enter func(ctx context.Context, generation string) (leave func(), err error)
}

// kept is a message as stored.
type kept struct {
	Message
	File   string `json:"file,omitempty"`   // file of a large body, in the outbox's directory
	Size   int64  `json:"size,omitempty"`   // of that file
	Events int    `json:"events,omitempty"` // number of events; 0 for a return
	// Generation is that of the connection for which it was put, see Links; "" is the first one.
	Generation string `json:"generation,omitempty"`
	// Put is the runtime of the outbox when it was put; an older minion stored none.
	Put time.Duration `json:"put,omitempty"`
}

// maxInline is the largest body that is stored in the queue itself, with some space for the
// rest of the message.
const maxInline = journal.MaxEntry - 4<<10

// answerTime limits how long the master may take for one request, and the minion's own server
// to store one message. A large body gets more, see slowest.
const answerTime = 10 * time.Second

// Patience is how long a sender waits for the master to store its message, plus time for a
// large body. After that the sender is told that the outbox has it, which is as safe.
const Patience = 5 * time.Second

// Names of the outboxes in the data directory and in the minion's own server.
const (
	boxFolder = "outbox"
	queueName = "OUTBOX"
)

// open opens the outbox of this name.
func open(ctx context.Context, o Options, name string, r route) (*Box, error) {
	b := &Box{
		route: r, name: name, log: o.Log, dir: filepath.Join(o.Dir, boxFolder+name), limit: o.MaxBytes, age: o.MaxAge,
		epoch: bus.NewNonce(), own: "salt/minion/" + string(o.ID), ready: make(chan struct{}, 1), asks: map[number]chan Delivery{},
		head: make(headLock, 1), left: make(chan struct{}), recent: newRecent(),
		ran: openRuntime(filepath.Join(o.Dir, "outbox_ran"+name), o.Log),
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
	b.begun = b.span.Last
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
	return b, recollect(ctx, b)
}

// maxRecollected is how many of the newest messages recollect looks at: more than come in the half minute for which a
// system may keep what was written to a file from the disk.
const maxRecollected = 8192

// recollect records the requests of messages in the queue that the file lacks, since a power cut has taken their records. The
// store recognises a request that is repeated for two minutes, by the time of its message, and the clock may have been set since.
func recollect(ctx context.Context, b *Box) error {
	from := b.span.First
	if b.span.Last > maxRecollected {
		from = max(from, b.span.Last-maxRecollected+1)
	}
	for from <= b.span.Last {
		entries, err := b.queue.Read(ctx, from, MaxBatch, readBytes)
		if err != nil || len(entries) == 0 {
			return err
		}
		for _, e := range entries {
			from = e.Seq + 1
			if _, known := b.requests.find(e.ID); e.ID == "" || known {
				continue
			}
			if err := b.record(e.ID, e.Seq); err != nil {
				return err
			}
		}
	}
	return nil
}

// Name is "", or with several outboxes the address of its master.
func (b *Box) Name() string { return b.name }

// close is the last call: a job that did not end in time may still try to put something.
func (b *Box) close() {
	b.requests.end()
	b.head.Lock()
	defer b.head.Unlock()
	b.keepRuntime()
}

// damaged records messages that can no longer be read.
func (b *Box) damaged(l blockfile.Lost) {
	from, to := max(l.From, b.span.First), max(l.To, l.From)
	if to < from {
		return // they were delivered
	}
	b.change(func(now *losses) { now.damaged(Damage{From: from, To: to, After: l.After, Before: l.Before}) })
	b.log.Error("messages in the outbox are damaged and lost", "from", from, "to", to, "after", l.After, "before", l.Before)
}

// Outgoing is a message for the master.
type Outgoing struct {
	Op     string // protocol.OpFire, OpReturn, or "ret." and the jid
	Body   any
	Events int    // number of events in the body; 0 for a return
	ID     string // the caller's id against duplicates; "" is never a duplicate

	generation string // of the connection for which it is
}

// Send puts a message for the master into the outbox, and waits a short time for its answer. It
// fails only if the master refuses the message, or it cannot be stored.
func (b *Box) Send(ctx context.Context, out Outgoing) (protocol.Fired, error) {
	return b.handOver(ctx, out, patience)
}

// patience is how long a sender waits for the answer to a message: a large body takes longer.
func patience(p placed) time.Duration {
	return Patience + time.Duration(p.size/slowest)*time.Second
}

// SendWhole is Send, but waits as long as the master is connected.
func (b *Box) SendWhole(ctx context.Context, out Outgoing) (protocol.Fired, error) {
	return b.handOver(ctx, out, func(placed) time.Duration { return math.MaxInt64 })
}

// handOver puts a message and waits for the master's answer as long as patience returns.
func (b *Box) handOver(ctx context.Context, out Outgoing, patience func(placed) time.Duration) (protocol.Fired, error) {
	master := b.master(out.generation)
	p, err := b.put(ctx, out, master != nil)
	if err != nil {
		return protocol.Fired{}, err
	}
	return b.answer(ctx, master, p, patience(p))
}

// answer waits for the answer of a master, nil for none, to a message in the queue.
func (b *Box) answer(ctx context.Context, master Master, p placed, patience time.Duration) (protocol.Fired, error) {
	if master == nil {
		return protocol.Fired{Outcome: protocol.Queued}, nil
	}
	defer b.forget(p.number)
	b.await(ctx, master, p, patience)
	select {
	case d := <-p.outcome: // the answer comes before the message is removed
		return outcome(d)
	default:
	}
	if b.isGone(p.seq) {
		return protocol.Fired{Outcome: protocol.Stored}, nil
	}
	return protocol.Fired{Outcome: protocol.Queued}, nil
}

// await returns when the message has left the queue, or it makes no sense to wait longer.
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
	number
	seq     uint64
	size    int
	outcome chan Delivery // nil unless someone waits for it
}

// number identifies a message of this run: its epoch, and its number in that.
type number struct {
	epoch string
	n     uint64
}

func (b *Box) forget(of number) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.asks, of)
}

// tell informs the sender of a message about its outcome, if it waits.
func (b *Box) tell(k kept, d Delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	of := number{k.Epoch, k.N}
	if c := b.asks[of]; c != nil {
		c <- d // it has capacity for the only answer
		delete(b.asks, of)
	}
}

func (b *Box) isGone(seq uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return seq < b.span.First
}

// Waiting returns how many messages are in the queue.
func (b *Box) Waiting() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.span.Last + 1 - min(b.span.First, b.span.Last+1)
}

// Wake makes Drain look again: there is a master.
func (b *Box) Wake() {
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// path returns the file of a large body. The name comes from our own queue, but is restricted
// to the directory nevertheless.
func (b *Box) path(k kept) string { return filepath.Join(b.dir, filepath.Base(k.File)) }

// sweep removes files without a message: of messages that were delivered, or never put, when
// the process was killed. It counts the others.
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

// pack writes a line with everything but the body, and then the body.
func (k kept) pack() ([]byte, error) {
	body := k.Body
	k.Body = nil
	head, err := json.Marshal(k)
	if err != nil {
		return nil, err
	}
	return append(append(append(make([]byte, 0, len(head)+1+len(body)), head...), '\n'), body...), nil
}

// unpack reads that, or a JSON document, which has no line ends: an older minion stored
// messages like that.
func unpack(e journal.Entry) (k kept, err error) {
	head, body, lines := bytes.Cut(e.Body, []byte("\n"))
	if err = json.Unmarshal(head, &k); err == nil && lines {
		k.Body = body
	}
	return k, err
}
