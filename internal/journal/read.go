package journal

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/event"
)

// source is a stream of events that can be read: the own journal, or a mirror. Its methods may
// be called concurrently.
type source struct {
	name   string // of the stream
	js     jetstream.JetStream
	stream jetstream.Stream
	closed <-chan struct{} // closed with the connection
	delays Delays
	ahead  ahead // what readers hold
	tip    tip
}

// Fetch reads the event whose pieces have these sequences.
func (j *source) Fetch(ctx context.Context, sequences []uint64) (event.Event, error) {
	body := make([]byte, 0, min(len(sequences)*maxPart, maxJoined))
	for _, seq := range sequences {
		m, err := j.message(ctx, seq)
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

// Query selects events. The zero value selects all that are stored.
type Query struct {
	Subjects []string  // from event.Subject and similar functions, wildcards allowed; none means all
	FromSeq  uint64    // start at this sequence
	Since    time.Time // or at this time
	New      bool      // or with new events
	Follow   bool      // do not stop at the end of what is stored
	Whole    bool      // of several journals as one: all must be read, and one that cannot is an error
	bare     bool      // headers only
	least    uint64    // what is stored up to this sequence is read, even if the leader seems to lack it: it may be one no more, and not know that
	// Long, if not nil, is called before an event of several pieces is assembled, with about
	// how many bytes it has. It may wait; an error ends the reading.
	Long func(ctx context.Context, size int) error
}

// Read calls f for each event in the order of the journal, up to what was stored when it began
// (or forever, with Follow), until f returns an error or ctx ends.
func (j *source) Read(ctx context.Context, q Query, f func(event.Event) error) error {
	c, err := j.Open(ctx, q)
	if err != nil {
		return err
	}
	defer j.release(c)
	return c.Each(ctx, f)
}

// Cursor is a position in the journal from which events are read.
type Cursor struct {
	reader   Reader
	settings jetstream.ConsumerConfig
	consumer atomic.Pointer[jetstream.Consumer] // nil if there is nothing to read
	follow   bool
	left     uint64        // matching messages that were stored when it began
	end      uint64        // the sequence of the last of these, for a stream with copies
	least    uint64        // of Query
	at       atomic.Uint64 // the sequence of the message that was read last
	from     uint64        // it begins there
	behind   atomic.Bool   // a member did not bring what another one has
	joiner   joiner
	long     func(ctx context.Context, size int) error
}

// Open places a cursor. With Follow, Each returns everything that is appended after Open has
// returned.
func (j *source) Open(ctx context.Context, q Query) (*Cursor, error) {
	return j.For("", nil).open(ctx, q)
}

func (r Reader) open(ctx context.Context, q Query) (*Cursor, error) {
	j, cfg := r.journal, consumerSettings(q)
	switch {
	case q.FromSeq > 0:
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, q.FromSeq
	case !q.Since.IsZero():
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &q.Since
	case q.New:
		// The end is fixed here, not when the first event is read.
		last, err := j.Last(ctx)
		if err != nil {
			return nil, err
		}
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, last+1
	}
	c := &Cursor{reader: r, settings: cfg, from: cfg.OptStartSeq, follow: q.Follow, joiner: joiner{}, long: q.Long}
	if !q.Follow && j.stream.CachedInfo().Config.Replicas > 1 {
		var err error
		if c.end, err = j.end(ctx, cfg); err == nil && q.least >= max(q.FromSeq, 1) {
			c.least, c.end = q.least, max(c.end, q.least)
		}
		if err != nil || c.end == 0 {
			return c, err
		}
	}
	info, err := c.consume(ctx)
	if err != nil {
		return nil, err
	}
	c.left = max(info.NumPending, min(c.end, 1))
	return c, nil
}

// end returns the sequence of the last message that a consumer with these settings has to read, as
// the leader has it; 0 if there is none. The server places a consumer at any member with a copy,
// even one that has just returned: it may lack the newest messages, and then says that there are
// none.
func (j *source) end(ctx context.Context, cfg jetstream.ConsumerConfig) (uint64, error) {
	m, err := j.newest(ctx, cfg.FilterSubjects)
	if err != nil || m == nil || m.Sequence < cfg.OptStartSeq || cfg.OptStartTime != nil && m.Time.Before(*cfg.OptStartTime) {
		return 0, err
	}
	return m.Sequence, nil
}

// plain reports whether everything is read from a sequence on.
func (c *Cursor) plain() bool {
	return len(c.settings.FilterSubjects) == 0 && c.settings.OptStartTime == nil
}

// nothing reports whether there is nothing to read.
func (c *Cursor) nothing() bool { return !c.follow && c.left == 0 }

// passed reports whether the message at a sequence is the last one to read, behind which the member
// that was read has that many more.
func (c *Cursor) passed(seq, pending uint64) bool {
	c.at.Store(seq)
	switch {
	case c.follow:
		return false
	case c.end > 0:
		return seq >= c.end
	}
	c.left-- // it bounds the reading where events come as fast as they are read
	return c.left == 0 || pending == 0
}

// over reports whether the rest, up to end, does not exist any more, if the member that is read has
// nothing more.
func (c *Cursor) over(ctx context.Context) bool {
	return c.end == 0 || c.reader.journal.gone(ctx, c.at.Load()+1, c.end)
}

// message reads one message.
func (j *source) message(ctx context.Context, seq uint64, opts ...jetstream.GetMsgOpt) (m *jetstream.RawStreamMsg, err error) {
	err = j.ask(ctx, func(ctx context.Context) (err error) {
		m, err = j.stream.GetMsg(ctx, seq, opts...)
		return err
	})
	return m, err
}

// info returns the state of the stream.
func (j *source) info(ctx context.Context) (info *jetstream.StreamInfo, err error) {
	err = j.ask(ctx, func(ctx context.Context) (err error) {
		info, err = leaderInfo(ctx, j.stream)
		return err
	})
	return info, err
}

// ask asks the store, see insist.
func (j *source) ask(ctx context.Context, question func(context.Context) error) error {
	if err := insist(ctx, j.delays, "read the stream "+j.name, question); err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	return nil
}

// Each is Read from the cursor.
func (c *Cursor) Each(ctx context.Context, f func(event.Event) error) error {
	return c.messages(ctx, readAhead, func(m jetstream.Msg, seq uint64) error { return c.one(ctx, m, seq, f) })
}

var errEnd = errors.New("nothing is left")

// readAhead is how many messages a cursor has requested and not read yet, at most. For long
// messages the limit is much lower, see Reader.
const readAhead = 500

// idle is how long nothing may come until a reader that does not follow checks whether the rest
// was removed, by age or size, since it began.
const idle = 500 * time.Millisecond

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

// maxOpen is how many long events may be read in parallel; an incomplete one beyond that is an
// orphan of a daemon that died while storing it.
const maxOpen = 64

// maxJoined limits the memory that is allocated for a long event before its pieces have come.
const maxJoined = 64 << 20

// joiner assembles pieces, by the id of their event.
type joiner map[string][]byte

func (j joiner) join(part string, data []byte) (body []byte, whole bool) {
	if part == "" {
		return data, true
	}
	id, n, count, ok := splitPart(part)
	if !ok {
		return nil, false
	}
	if n == 0 { // begun again, since the daemon died while storing it
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
		j[id] = make([]byte, 0, min(count*maxPart, maxJoined)) // otherwise it is copied again and again
	}
	j[id] = append(j[id], data...)
	if n < count-1 {
		return nil, false
	}
	body = j[id]
	delete(j, id)
	return body, true
}

// splitPart parses id/number/count; the id may contain slashes.
func splitPart(part string) (id string, n, count int, ok bool) {
	l := readLabel(part)
	return l.name, l.n, l.count, l.n < l.count
}

// Last returns the sequence of the newest event, 0 for an empty journal.
func (j *Journal) Last(ctx context.Context) (uint64, error) {
	last, err := j.source.Last(ctx)
	if err != nil {
		return 0, err
	}
	return max(last, j.writer.stored()), nil // the leader that is asked may be one no more
}

// Last returns the sequence of the newest event.
func (j *source) Last(ctx context.Context) (uint64, error) {
	info, err := j.info(ctx)
	if err != nil {
		return 0, err
	}
	return info.State.LastSeq, nil
}

// First returns the first event on subject, or false if there is none.
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

// first returns the first message on subject in any class, nil if there is none.
func (j *source) first(ctx context.Context, subject string) (found *jetstream.RawStreamMsg, err error) {
	for _, s := range everywhere([]string{subject}) {
		m, err := j.message(ctx, 1, jetstream.WithGetMsgSubject(s))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return nil, err
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
