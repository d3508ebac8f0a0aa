package minion

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
	"sync/atomic"
	"time"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/blockfile"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/eventbus"
	"github.com/brinebus/brine/internal/journal"
	wire "github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/protocol"
)

// outbox carries what is for the master's journal: returns and events. Everything
// goes through its queue, also while there is a master, so that the order of all
// is kept and a kill of either side at any moment loses and doubles nothing.
//
// Each letter is named by an epoch, new with each start, and a number. The master
// remembers how far each epoch is stored.
type outbox struct {
	name  string // "" or, of one of several, its master's address
	log   *slog.Logger
	link  *atomic.Pointer[session]
	queue *journal.Queue
	dir   string        // of bodies too large for the queue
	limit int64         // bytes that the outbox may hold
	age   time.Duration // how long it keeps a letter; 0 is for ever
	epoch string
	own   string // the minion's own tag space on the master's bus
	ready chan struct{}

	requests *requests
	// keep is read-held from when a letter is put for a request with a name until
	// that is recorded, and held while letters are removed: until the record is
	// there, the queue itself must know the request again.
	keep sync.RWMutex

	head   sync.Mutex // held by who takes letters from the head; it guards what follows
	looked time.Time  // when letters that are too old were looked for last
	untidy int        // letters that have left and are still in the store
	files  []string   // theirs
	tidied time.Time

	mu   sync.Mutex // guards the rest, and that numbers and places agree
	n    uint64     // of the newest letter of this epoch
	span journal.Span
	asks map[uint64]chan wire.Delivery // of senders that wait, by number
	left chan struct{}                 // closed, and made anew, when letters have gone
	lost losses

	fresh      map[uint64]waitingLetter // letters of the queue that are in memory, by place
	freshBytes int                      // their bodies
}

// letter is one request for the master as it is kept.
type letter struct {
	wire.Message
	File   string `json:"file,omitempty"`   // in the outbox's folder; it holds a large body
	Size   int64  `json:"size,omitempty"`   // of that file
	Events int    `json:"events,omitempty"` // that it carries; 0 for a return
}

// maxInline is the largest body that is kept in the queue itself: the letter
// around it needs a little.
const maxInline = journal.MaxEntry - 4<<10

// answerTime bounds how long the master may take for one request, and the own
// server to store one letter. A large body gets more, by slowest.
const (
	answerTime = 10 * time.Second
	slowest    = 256 << 10 // bytes a second
)

// patience is how long a sender waits to hear that the master has stored what it
// sent, beside the time that a large body takes. Then it is told that the outbox has it, which is as safe.
const patience = 5 * time.Second

// What the outboxes are called in the data directory and in the own server.
const (
	boxFolder = "outbox"
	queueName = "OUTBOX"
)

// openOutbox opens the outbox of this name, for the master that link has a session
// with.
func openOutbox(ctx context.Context, m *Minion, link *atomic.Pointer[session], name string) (*outbox, error) {
	o := &outbox{
		name: name, log: m.log, link: link, dir: filepath.Join(m.cfg.CacheDir, boxFolder+name), limit: m.cfg.OutboxMaxBytes, age: m.cfg.OutboxMaxAge,
		epoch: bus.NewNonce(), own: "salt/minion/" + string(m.id), ready: make(chan struct{}, 1), asks: map[uint64]chan wire.Delivery{},
		left: make(chan struct{}), fresh: map[uint64]waitingLetter{},
	}
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return nil, err
	}
	var err error
	if o.queue, err = journal.OpenQueue(ctx, m.broker.Conn(), queueName+name, m.broker.Store()); err != nil {
		return nil, err
	}
	if o.span, err = o.queue.Span(ctx); err != nil {
		return nil, err
	}
	if err := o.sweep(ctx); err != nil {
		return nil, err
	}
	if o.requests, err = openRequests(filepath.Join(m.cfg.CacheDir, "outbox_requests"+name)); err != nil {
		return nil, err
	}
	m.undo = append(m.undo, o.requests.end)
	if o.lost, err = readLosses(filepath.Join(m.cfg.CacheDir, "outbox_lost"+name)); err != nil {
		return nil, err
	}
	now, _ := m.broker.Lost()
	for _, l := range now {
		if l.Stream == queueName+name {
			o.damaged(l)
		}
	}
	return o, nil
}

// damaged counts letters that cannot be read any more: what they carried is not known.
func (o *outbox) damaged(l blockfile.Lost) {
	from, to := max(l.From, o.span.First), max(l.To, l.From)
	if to < from {
		return // it was delivered
	}
	o.change(func(now *losses) { now.Total += to - from + 1; now.Untold += to - from + 1 })
}

// outgoing is something for the master.
type outgoing struct {
	op     string // protocol.OpFire, OpReturn, or "ret." and the jid
	body   any
	events int    // how many the body fires; 0 for a return
	id     string // names it against a repetition by who asked for it; "" never repeats
}

// send hands something to the master, and waits a little for its word. It returns
// an error only when the master refuses it, or when it can not be kept.
func (o *outbox) send(ctx context.Context, out outgoing) (protocol.Fired, error) {
	return o.handOver(ctx, out, func(p placed) time.Duration { return patience + time.Duration(p.size/slowest)*time.Second })
}

// sendWhole is send that waits as long as the master is there.
func (o *outbox) sendWhole(ctx context.Context, out outgoing) (protocol.Fired, error) {
	return o.handOver(ctx, out, func(placed) time.Duration { return math.MaxInt64 })
}

// handOver waits for the master's word as long as patience says of what is in the queue.
func (o *outbox) handOver(ctx context.Context, out outgoing, patience func(placed) time.Duration) (protocol.Fired, error) {
	s := o.link.Load()
	p, err := o.put(ctx, out, s != nil)
	if err != nil || s == nil {
		return protocol.Fired{Outcome: protocol.Queued}, err
	}
	defer o.forget(p.n)
	o.await(ctx, s, p, patience(p))
	select {
	case d := <-p.told: // the word comes before the letter goes
		return told(d)
	default:
	}
	if o.isGone(p.seq) {
		return protocol.Fired{Outcome: protocol.Stored}, nil
	}
	return protocol.Fired{Outcome: protocol.Queued}, nil
}

// await returns when the letter has left the queue, or there is no use in waiting
// any longer.
func (o *outbox) await(ctx context.Context, s *session, p placed, patience time.Duration) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		o.mu.Lock()
		gone, left := p.seq < o.span.First, o.left
		o.mu.Unlock()
		if gone {
			return
		}
		select {
		case <-left:
		case <-s.Closed:
			return
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func told(d wire.Delivery) (protocol.Fired, error) {
	if d.Refused != nil {
		return protocol.Fired{}, d.Refused
	}
	return protocol.Fired{Outcome: protocol.Stored, Seq: d.Seq}, nil
}

// placed is a letter that is in the queue.
type placed struct {
	n, seq uint64
	size   int
	told   chan wire.Delivery // nil unless it is watched
}

// put stores a letter at the end of the queue. When it returns nil the letter
// survives a kill of the process.
func (o *outbox) put(ctx context.Context, out outgoing, watch bool) (placed, error) {
	if seq, known := o.requests.find(out.id); known {
		return placed{seq: seq}, nil
	}
	body, err := protocol.Encode(out.body)
	if err != nil {
		return placed{}, err
	}
	l := letter{Message: wire.Message{Op: out.op, Body: body}, Events: out.events}
	// What is under way is finished, even if who asked for it is gone.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime+time.Duration(len(body)/slowest)*time.Second)
	defer cancel()
	if err := o.makeRoom(ctx, int64(len(body))); err != nil {
		return placed{}, err
	}
	if len(body) > maxInline {
		if err := o.toFile(&l); err != nil {
			return placed{}, eventbus.NotStored(err)
		}
	}
	p, err := o.store(ctx, l, out.id, watch)
	if err != nil {
		o.forget(p.n)
		return placed{}, eventbus.NotStored(fmt.Errorf("keep it in the outbox: %w", err))
	}
	o.wake()
	p.size = len(body)
	return p, nil
}

// store puts the letter into the queue, and its request into the record.
func (o *outbox) store(ctx context.Context, l letter, id string, watch bool) (placed, error) {
	o.keep.RLock()
	defer o.keep.RUnlock()
	p, l, pending, size, err := o.begin(l, id, watch)
	if err == nil {
		p.seq, err = pending.Wait(ctx)
	}
	if err == nil && id != "" {
		err = o.requests.add(id, p.seq)
	}
	if err != nil {
		return p, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.span.Last = max(o.span.Last, p.seq)
	o.span.Bytes += size
	if !pending.Repeated() {
		o.remember(waitingLetter{l, journal.Entry{Seq: p.seq, Stored: time.Now(), Size: size - l.Size}})
	}
	return p, nil
}

// remember keeps a letter that is in the queue in memory, too, if there is room: one that
// is delivered at once need not be read back. Its caller holds mu.
func (o *outbox) remember(l waitingLetter) {
	if l.entry.Seq < o.span.First || len(o.fresh) >= wire.MaxBatch || o.freshBytes+len(l.Body) > readBytes {
		return
	}
	o.fresh[l.entry.Seq] = l
	o.freshBytes += len(l.Body)
}

// atHead returns the letters at the head of the queue that are in memory.
func (o *outbox) atHead() (batch []waitingLetter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for seq := o.span.First; ; seq++ {
		l, here := o.fresh[seq]
		if !here {
			return batch
		}
		batch = append(batch, l)
	}
}

// toFile moves the body into a file of its own.
func (o *outbox) toFile(l *letter) error {
	l.File, l.Size = bus.NewNonce(), int64(len(l.Body))
	if err := atomicfile.Write(filepath.Join(o.dir, l.File), l.Body, 0o600); err != nil {
		return err
	}
	l.Body = nil
	return nil
}

// begin gives the letter its number and its place, in one step: the master takes a
// lower number after a higher one for a repetition.
func (o *outbox) begin(l letter, id string, watch bool) (p placed, numbered letter, pending *journal.Pending, size int64, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n++
	l.Epoch, l.N = o.epoch, o.n
	b, err := l.pack()
	if err != nil {
		return p, l, nil, 0, err
	}
	p.n = l.N
	if watch {
		p.told = make(chan wire.Delivery, 1)
		o.asks[p.n] = p.told
	}
	pending, err = o.queue.Begin(b, id)
	return p, l, pending, o.queue.Size(b) + l.Size, err
}

func (o *outbox) forget(n uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.asks, n)
}

// tell tells the sender of a letter what became of it, if it waits.
func (o *outbox) tell(l letter, d wire.Delivery) {
	if l.Epoch != o.epoch {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := o.asks[l.N]; c != nil {
		c <- d // it has room for the one word there is
		delete(o.asks, l.N)
	}
}

func (o *outbox) isGone(seq uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return seq < o.span.First
}

// waiting is how many letters are in the queue.
func (o *outbox) waiting() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.span.Last + 1 - min(o.span.First, o.span.Last+1)
}

// wake tells drain to look again.
func (o *outbox) wake() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

// path is where a large body lies. The name comes from the own queue, but it is
// kept to the folder all the same.
func (o *outbox) path(l letter) string { return filepath.Join(o.dir, filepath.Base(l.File)) }

// sweep removes files that no letter names: of letters that were delivered, or
// never put, when the process was killed. It counts the others.
func (o *outbox) sweep(ctx context.Context) error {
	files, err := os.ReadDir(o.dir)
	if err != nil || len(files) == 0 {
		return err
	}
	named := map[string]bool{}
	for from := o.span.First; ; {
		entries, err := o.queue.Read(ctx, from, wire.MaxBatch, readBytes)
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			break
		}
		for _, e := range entries {
			if l, err := unpack(e); err == nil && l.File != "" {
				named[filepath.Base(l.File)] = true
				o.span.Bytes += l.Size
			}
			from = e.Seq + 1
		}
	}
	for _, f := range files {
		if !named[f.Name()] {
			err = errors.Join(err, os.RemoveAll(filepath.Join(o.dir, f.Name())))
		}
	}
	return err
}

// pack writes a letter as it is kept: a line with all but its body, and the body.
func (l letter) pack() ([]byte, error) {
	body := l.Body
	l.Body = nil
	head, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	return append(append(append(make([]byte, 0, len(head)+1+len(body)), head...), '\n'), body...), nil
}

// unpack reads it, or a JSON document, which has no line ends: an older minion kept
// letters like that.
func unpack(e journal.Entry) (l letter, err error) {
	head, body, lines := bytes.Cut(e.Body, []byte("\n"))
	if err = json.Unmarshal(head, &l); err == nil && lines {
		l.Body = body
	}
	return l, err
}
