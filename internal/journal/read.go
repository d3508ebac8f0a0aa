package journal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/event"
)

// source is a stream of events that can be read: that of the own journal, or the mirror of
// another one. Its methods may be called concurrently.
type source struct {
	name   string // of the stream
	js     jetstream.JetStream
	stream jetstream.Stream
	closed <-chan struct{} // closed with the connection
	ahead  ahead           // what readers hold
}

// Fetch reads the event whose pieces lie at these sequences.
func (j *source) Fetch(ctx context.Context, sequences []uint64) (event.Event, error) {
	body := make([]byte, 0, min(len(sequences)*maxPart, maxJoined))
	for _, seq := range sequences {
		m, err := j.stream.GetMsg(ctx, seq)
		if err != nil {
			return event.Event{}, fmt.Errorf("read entry %d of the journal: %w", seq, err)
		}
		_, text := piece(m.Header, m.Data)
		body = append(body, text...)
	}
	e, err := event.Read(body)
	if err != nil {
		return e, fmt.Errorf("journal entry %d: %w", sequences[len(sequences)-1], err)
	}
	e.Seq = sequences[len(sequences)-1]
	return e, nil
}

// Query says which events to read. The zero value reads all that is stored.
type Query struct {
	Subjects []string  // from event.Subject and its kin, wildcards allowed; none is all
	FromSeq  uint64    // start at this sequence
	Since    time.Time // or at this moment
	New      bool      // or with what comes after now
	Follow   bool      // do not stop at the end of what is stored
	// Long is called before an event of several pieces is put together, with about how
	// many bytes it has; an error ends the reading. It may wait. Nil is not called.
	Long func(ctx context.Context, size int) error
}

// Read calls f for each event in the order of the journal, until the end of what
// was stored when it began (or for ever, with Follow), an error of f, or the end
// of ctx.
func (j *source) Read(ctx context.Context, q Query, f func(event.Event) error) error {
	c, err := j.open(ctx, q)
	if err != nil {
		return err
	}
	defer j.release(c)
	return c.each(ctx, f)
}

// Cursor is a position in the journal from which events are read.
type Cursor struct {
	consumer jetstream.Consumer
	reader   Reader
	follow   bool
	left     uint64 // messages of the query that were stored when it began
	last     uint64 // the number of the message that was read last, as the server counts them
	joiner   joiner
	long     func(ctx context.Context, size int) error
}

// Open places a cursor. What is appended after Open returns is seen by Each of a
// query that follows.
func (j *source) Open(ctx context.Context, q Query) (*Cursor, error) { return j.open(ctx, q) }

// Each is Read from the cursor.
func (c *Cursor) Each(ctx context.Context, f func(event.Event) error) error { return c.each(ctx, f) }

func (j *source) open(ctx context.Context, q Query) (*Cursor, error) {
	cfg := jetstream.OrderedConsumerConfig{FilterSubjects: everywhere(q.Subjects), DeliverPolicy: jetstream.DeliverAllPolicy, InactiveThreshold: time.Minute}
	switch {
	case q.FromSeq > 0:
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, q.FromSeq
	case !q.Since.IsZero():
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &q.Since
	case q.New:
		// The end is fixed here and not when the first event is asked for.
		last, err := j.Last(ctx)
		if err != nil {
			return nil, err
		}
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, last+1
	}
	c, err := j.stream.OrderedConsumer(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	return &Cursor{consumer: c, reader: j.For("", nil), follow: q.Follow, left: c.CachedInfo().NumPending, joiner: joiner{}, long: q.Long}, nil
}

func (c *Cursor) each(ctx context.Context, f func(event.Event) error) error {
	if !c.follow && c.left == 0 {
		return nil
	}
	most, end := c.reader.pull()
	defer end()
	it, err := c.consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(min(most, readAhead), aheadBytes))
	if err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	stop := context.AfterFunc(ctx, it.Stop)
	defer func() {
		if stop() {
			it.Stop()
		}
	}()
	for {
		m, err := c.next(ctx, it)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, errEnd) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the journal: %w", err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		c.last = meta.Sequence.Consumer
		if err := c.one(ctx, m, meta.Sequence.Stream, f); err != nil {
			return err
		}
		// The count bounds the reading where events come as fast as they are read.
		if c.left--; !c.follow && (c.left == 0 || meta.NumPending == 0) {
			return nil
		}
	}
}

var errEnd = errors.New("nothing is left")

// readAhead is how many messages a cursor has asked for and not read yet, at most: of long
// ones much less, see Reader.
const readAhead = 500

// idle is how long nothing may come before a reader that does not follow looks
// whether the rest was discarded, by age or size, since it began.
const idle = 500 * time.Millisecond

func (c *Cursor) next(ctx context.Context, it jetstream.MessagesContext) (jetstream.Msg, error) {
	if c.follow {
		return it.Next()
	}
	for {
		m, err := it.Next(jetstream.NextMaxWait(idle))
		if !errors.Is(err, nats.ErrTimeout) {
			return m, err
		}
		info, err := c.consumer.Info(ctx)
		if err != nil {
			return nil, err
		}
		if info.NumPending == 0 && info.Delivered.Consumer <= c.last { // else something is on its way
			return nil, errEnd
		}
	}
}

func (c *Cursor) one(ctx context.Context, m jetstream.Msg, seq uint64, f func(event.Event) error) error {
	part, text := piece(m.Headers(), m.Data())
	if _, n, count, ok := splitPart(part); part != "" && ok && n == 0 && c.long != nil {
		if err := c.long(ctx, count*maxPart); err != nil {
			return err
		}
	}
	body, whole := c.joiner.join(part, text)
	if !whole {
		return nil
	}
	e, err := event.Read(body)
	if err != nil {
		return fmt.Errorf("journal entry %d: %w", seq, err)
	}
	e.Seq = seq
	return f(e)
}

// maxOpen is how many long events may be read side by side; an unfinished one
// beyond that is an orphan of a daemon that died while it stored it.
const maxOpen = 64

// maxJoined is the room that is made for a long event before its pieces have come.
const maxJoined = 64 << 20

// joiner puts pieces together, by the id of their event.
type joiner map[string][]byte

func (j joiner) join(part string, data []byte) (body []byte, whole bool) {
	if part == "" {
		return data, true
	}
	id, n, count, ok := splitPart(part)
	if !ok {
		return nil, false
	}
	if n == 0 { // begun anew, after a daemon died while it stored it
		delete(j, id)
	}
	if have := len(j[id]); n*maxPart != have || n > 0 && have == 0 {
		delete(j, id) // the beginning is missing: read from the middle, or lost
		return nil, false
	}
	if n == 0 && len(j) >= maxOpen {
		clear(j)
	}
	if n == 0 {
		j[id] = make([]byte, 0, min(count*maxPart, maxJoined)) // which else is copied again and again
	}
	j[id] = append(j[id], data...)
	if n < count-1 {
		return nil, false
	}
	body = j[id]
	delete(j, id)
	return body, true
}

// splitPart takes apart id/number/count; the id may have slashes of its own.
func splitPart(part string) (id string, n, count int, ok bool) {
	l := readLabel(part)
	return l.name, l.n, l.count, l.n < l.count
}

// Last returns the sequence of the newest event, 0 for an empty journal.
func (j *source) Last(ctx context.Context) (uint64, error) {
	info, err := j.stream.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the journal: %w", err)
	}
	return info.State.LastSeq, nil
}

// First returns the first event on subject, and false where there is none.
func (j *source) First(ctx context.Context, subject string) (event.Event, bool, error) {
	m, err := j.first(ctx, subject)
	if err != nil || m == nil {
		return event.Event{}, false, err
	}
	if part, _ := piece(m.Header, m.Data); part != "" {
		return j.firstLong(ctx, subject)
	}
	e, err := event.Read(m.Data)
	if err != nil {
		return e, false, fmt.Errorf("journal entry %d: %w", m.Sequence, err)
	}
	e.Seq = m.Sequence
	return e, true, nil
}

// first returns the first message on subject of any class, nil where there is none.
func (j *source) first(ctx context.Context, subject string) (found *jetstream.RawStreamMsg, err error) {
	for _, s := range everywhere([]string{subject}) {
		m, err := j.stream.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(s))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the journal: %w", err)
		}
		if found == nil || m.Sequence < found.Sequence {
			found = m
		}
	}
	return found, nil
}

var errFound = errors.New("found")

func (j *source) firstLong(ctx context.Context, subject string) (found event.Event, ok bool, err error) {
	err = j.Read(ctx, Query{Subjects: []string{subject}}, func(e event.Event) error {
		found, ok = e, true
		return errFound
	})
	if errors.Is(err, errFound) {
		err = nil
	}
	return found, ok, err
}
