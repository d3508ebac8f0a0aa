package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Queue is a durable queue: messages stay, in order, until they are removed from the head. It
// has no limits of its own, since its user must count what is dropped. Its methods may be
// called concurrently.
type Queue struct {
	nc      *nats.Conn
	writer  *writer
	stream  jetstream.Stream
	name    string
	subject string
	closed  <-chan struct{}
	known   atomic.Uint64 // the last sequence that a leader has named
	far     bool          // its leader is another member: several messages are asked for at once
}

// Entry is one message of a queue.
type Entry struct {
	Seq    uint64 // its sequence, from 1, never used again
	Stored time.Time
	ID     string // given to Begin
	Body   []byte
	Size   int64 // its bytes in the store
}

// MaxEntry is the largest body that a queue accepts.
const MaxEntry = maxPart

// repeatWindow is how long a queue remembers ids, for duplicates.
const repeatWindow = 2 * time.Minute

// OpenQueue opens the queue of this name, made of capital letters, in the
// JetStream that nc is connected to. The store may be nil.
func OpenQueue(ctx context.Context, nc *nats.Conn, name string, store Store) (*Queue, error) {
	return openQueue(ctx, nc, name, store, 0, nil)
}

// Queue opens a queue of this member alone, with as many copies as its journal. It does not
// support message ids.
func (j *Journal) Queue(ctx context.Context, name string, store Store) (*Queue, error) {
	if j.copies == 0 {
		return openQueue(ctx, j.js.Conn(), name, store, 0, nil)
	}
	q, err := openQueue(ctx, j.js.Conn(), name+"_"+j.member, store, j.copies, j.turn)
	if err == nil {
		j.led.add(q.stream)
	}
	return q, err
}

func openQueue(ctx context.Context, nc *nats.Conn, name string, store Store, copies int, turn *Turn) (*Queue, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	w, err := newWriter(nc, store, name)
	if err != nil {
		return nil, fmt.Errorf("open the queue %s: %w", name, err)
	}
	q := &Queue{nc: nc, name: name, subject: queueRoot + name, writer: w, closed: w.closed}
	q.stream, err = openStream(ctx, js, w.store, name, func(c *jetstream.StreamConfig) { configureQueue(c, name, copies) })
	if err != nil {
		return nil, fmt.Errorf("open the queue %s: %w", name, err)
	}
	if copies > 0 {
		f := newFence(q.stream, js, "", turn)
		last, err := f.openQueue(ctx, w.store, q.stream.CachedInfo().State.LastSeq, func(ctx context.Context, last, newest uint64) (uint64, error) {
			return q.mark(ctx, turn, last, newest)
		})
		if err != nil {
			return nil, fmt.Errorf("open the queue %s: %w", name, err)
		}
		w.beginFence(f, last)
		q.known.Store(last)
	}
	return q, nil
}

// queueRoot begins the subject of a queue.
const queueRoot = "salt.queue."

// configureQueue makes the settings of the stream of a queue.
func configureQueue(c *jetstream.StreamConfig, name string, copies int) {
	c.Subjects, c.Storage, c.Retention, c.AllowDirect = []string{queueRoot + name}, jetstream.FileStorage, jetstream.LimitsPolicy, true
	c.Duplicates = repeatWindow
	if copies > 0 {
		c.Replicas, c.AllowDirect = copies, false
	}
}

// recordBytes is what a message takes in the file store, beside subject and body.
const recordBytes = 30

// Size returns how many bytes of the store a message with this body takes.
func (q *Queue) Size(body []byte) int64 {
	return int64(recordBytes + len(q.subject) + len(body))
}

// Err returns why nothing can be put; nil if it can.
func (q *Queue) Err() error {
	if err := q.writer.store.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	return nil
}

// Stalled returns why what is under way is not put: nothing can be, or the members elect a leader; nil otherwise.
func (q *Queue) Stalled() error { return q.writer.stalled() }

// Begin starts to put body at the end without waiting. Messages are put in the order of the
// calls. Once Wait has returned its sequence, the message survives a kill of the process. An id
// that was used in the last minutes is a duplicate: nothing is put, and the sequence is that of
// the first.
func (q *Queue) Begin(body []byte, id string) (*Pending, error) {
	if len(body) > MaxEntry {
		return nil, fmt.Errorf("put into the queue %s: %d bytes, the limit is %d", q.name, len(body), MaxEntry)
	}
	m := &nats.Msg{Subject: q.subject, Data: body}
	if id != "" && q.writer.fence != nil {
		return nil, fmt.Errorf("put into the queue %s: ids are not for a queue with copies", q.name)
	}
	if id != "" {
		m.Header = nats.Header{jetstream.MsgIDHeader: {id}}
	}
	return q.begin(m)
}

// BeginAfter is Begin for a message that must directly follow the sequence last: if last is not
// the end of the queue when the message arrives, it is not put, and Wait fails. So of several
// messages begun in a row, none is stored without those before it.
func (q *Queue) BeginAfter(body []byte, last uint64) (*Pending, error) {
	if len(body) > MaxEntry {
		return nil, fmt.Errorf("put into the queue %s: %d bytes, the limit is %d", q.name, len(body), MaxEntry)
	}
	if w := q.writer; w.fence != nil {
		w.order.Lock()
		defer w.order.Unlock()
		if end := w.latest(); end != last { // nobody else writes
			return nil, fmt.Errorf("put into the queue %s: it ends with %d, not %d", q.name, end, last)
		}
		p, err := w.begin()
		if err == nil {
			err = w.put(&nats.Msg{Subject: q.subject, Data: body}, inFlight{text: body}, p, true)
		}
		if err != nil {
			return nil, fmt.Errorf("put into the queue %s: %w", q.name, err)
		}
		return p, nil
	}
	header := nats.Header{jetstream.ExpectedLastSeqHeader: {strconv.FormatUint(last, 10)}}
	return q.begin(&nats.Msg{Subject: q.subject, Data: body, Header: header})
}

func (q *Queue) begin(m *nats.Msg) (*Pending, error) {
	p, err := q.writer.send(m)
	if err != nil {
		return nil, fmt.Errorf("put into the queue %s: %w", q.name, err)
	}
	return p, nil
}

// Put is Begin without an id, and Wait.
func (q *Queue) Put(ctx context.Context, body []byte) (uint64, error) {
	p, err := q.Begin(body, "")
	if err != nil {
		return 0, err
	}
	return p.Wait(ctx)
}

// Span is what a queue holds.
type Span struct {
	First, Last uint64 // sequences; First is Last+1 when it is empty
	Bytes       int64
}

// Span returns what the queue holds.
func (q *Queue) Span(ctx context.Context) (span Span, err error) {
	err = insist(ctx, q.writer.store, "look into the queue "+q.name, func(ctx context.Context) (err error) {
		span, err = q.extent(ctx)
		return err
	})
	if err != nil {
		return Span{}, fmt.Errorf("look into the queue %s: %w", q.name, err)
	}
	return span, nil
}

// extent is Span without a repetition.
func (q *Queue) extent(ctx context.Context) (Span, error) {
	info, err := leaderInfo(ctx, q.stream)
	if err != nil {
		return Span{}, err
	}
	s := info.State
	if s.LastSeq < q.end() { // by a server that led before
		return Span{}, errNoLeader
	}
	for have := q.known.Load(); have < s.LastSeq && !q.known.CompareAndSwap(have, s.LastSeq); {
		have = q.known.Load()
	}
	if s.Msgs == 0 {
		s.FirstSeq = s.LastSeq + 1
	}
	return Span{First: s.FirstSeq, Last: s.LastSeq, Bytes: int64(s.Bytes)}, nil
}

// end returns the last sequence that is known, 0 for a queue without copies, whose only server knows.
func (q *Queue) end() uint64 {
	if q.writer.fence == nil {
		return 0
	}
	return max(q.known.Load(), q.writer.stored())
}

// Newest returns the last message, or false if there is none.
func (q *Queue) Newest(ctx context.Context) (Entry, bool, error) {
	var m *jetstream.RawStreamMsg
	err := insist(ctx, q.writer.store, "read the queue "+q.name, func(ctx context.Context) (err error) {
		if m, err = q.last(ctx); m == nil && err == nil {
			m, err = q.stream.GetLastMsgForSubject(ctx, q.subject)
		}
		if err == nil && isMark(m.Header) {
			m, err = q.beforeMark(ctx, m)
		}
		return err
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return Entry{}, false, nil
	}
	if err != nil {
		return Entry{}, false, fmt.Errorf("read the queue %s: %w", q.name, err)
	}
	return q.entryOf(m), true, nil
}

// last returns the last message of a queue with copies: of two servers that answer as its leader, one may lack
// it. Without copies, or if the message is known to be missing, it is nil.
func (q *Queue) last(ctx context.Context) (*jetstream.RawStreamMsg, error) {
	if q.writer.fence == nil {
		return nil, nil
	}
	span, err := q.extent(ctx)
	if err != nil || span.First > span.Last {
		return nil, err
	}
	return q.writer.newest(ctx, span.Last)
}

func (q *Queue) entryOf(m *jetstream.RawStreamMsg) Entry {
	return Entry{Seq: m.Sequence, Stored: m.Time, Body: m.Data, Size: q.Size(m.Data)}
}

// Remove removes the messages up to the sequence seq from the head.
func (q *Queue) Remove(ctx context.Context, seq uint64) error {
	have, err := q.Span(ctx)
	if err == nil {
		err = purgeHead(ctx, q.writer.store, q.stream, have.First, seq+1)
	}
	if err != nil {
		return fmt.Errorf("remove from the queue %s: %w", q.name, err)
	}
	return nil
}

// Read returns messages from the sequence seq on: at most count, and none after the one with
// which their size reaches bytes. It returns nothing if there are none. There may be more behind
// those that it returns, also if they are fewer than count.
func (q *Queue) Read(ctx context.Context, seq uint64, count, bytes int) ([]Entry, error) {
	var entries []Entry
	err := insist(ctx, q.writer.store, "read the queue "+q.name, func(ctx context.Context) (err error) {
		entries, err = q.read(ctx, max(seq, 1), count, bytes)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the queue %s: %w", q.name, err)
	}
	return entries, nil
}

// read sends one batch request; the answer is the messages and then a message with a status.
// The client library has no call for it.
func (q *Queue) read(ctx context.Context, seq uint64, count, bytes int) (entries []Entry, err error) {
	if q.writer.fence != nil {
		return q.readOneByOne(ctx, seq, count, bytes)
	}
	ask, err := json.Marshal(map[string]any{"seq": seq, "batch": count, "max_bytes": bytes, "next_by_subj": q.subject})
	if err != nil {
		return nil, err
	}
	mark := uint64(0) // the last one that was left out
	inbox := q.nc.NewInbox()
	batch := make(chan *nats.Msg, count+1) // and the status; the library's own channel has a capacity of 65,536
	sub, err := q.nc.ChanSubscribe(inbox, batch)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sub.Unsubscribe()) }()
	if err := q.nc.PublishRequest("$JS.API.DIRECT.GET."+q.name, inbox, ask); err != nil {
		return nil, err
	}
	for {
		m, err := q.next(ctx, batch)
		if err != nil {
			return nil, err
		}
		switch status := m.Header.Get("Status"); status {
		case "":
		case "204", "404": // the end of the batch; an empty queue
			if len(entries) == 0 && mark > 0 {
				return q.read(ctx, mark+1, count, bytes)
			}
			return entries, nil
		default:
			return nil, fmt.Errorf("the store answers %s %s", status, m.Header.Get("Description"))
		}
		e, err := entry(m)
		if err != nil {
			return nil, err
		}
		if isMark(m.Header) { // from a backup of a cluster
			mark = e.Seq
			continue
		}
		e.Size = q.Size(e.Body)
		entries = append(entries, e)
	}
}

func (q *Queue) next(ctx context.Context, batch <-chan *nats.Msg) (*nats.Msg, error) {
	select {
	case m := <-batch:
		return m, nil
	case <-q.closed:
		return nil, nats.ErrConnectionClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func entry(m *nats.Msg) (e Entry, err error) {
	e.Body, e.ID = m.Data, m.Header.Get(jetstream.MsgIDHeader)
	if e.Seq, err = strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64); err != nil {
		return e, err
	}
	e.Stored, err = time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer))
	return e, err
}

// readOneByOne asks the leader for each message: batches come from any member, which may lack
// the newest ones. It returns those that it has when the time for all is over: where each takes long,
// another attempt would come no further.
func (q *Queue) readOneByOne(ctx context.Context, seq uint64, count, bytes int) (entries []Entry, err error) {
	var ahead lookahead
	for size := int64(0); len(entries) < count && (bytes <= 0 || size < int64(bytes)); {
		m, err := ahead.get(ctx, q, seq, count-len(entries))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			m, err = q.missed(ctx, seq)
		}
		if err != nil && len(entries) > 0 {
			return entries, nil // the next call says what is wrong
		}
		if err != nil {
			return nil, err
		}
		if m == nil {
			break
		}
		if seq = m.Sequence + 1; isMark(m.Header) {
			continue
		}
		e := q.entryOf(m)
		entries, size = append(entries, e), size+e.Size
	}
	return entries, nil
}

// missed returns a message that a server says it has not, nor any behind it; nil if that is so. It is not if
// the message is known to be stored, and not removed: another server leads.
func (q *Queue) missed(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	if seq > q.end() {
		return nil, nil
	}
	span, err := q.extent(ctx)
	if err != nil || span.First > span.Last {
		return nil, err
	}
	return q.writer.newest(ctx, max(seq, span.First))
}
