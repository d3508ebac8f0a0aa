// Package journal is the one store of everything that must not be lost: events,
// jobs, returns, facts, the audit trail. It appends, reads by tag and time, and
// keeps small maps; it is the only user of JetStream.
//
// It does not decide what is stored, nor who may read it.
package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"brine/internal/event"
)

// maxPart is how much of an event is stored in one message; a longer one is
// stored in several and read as one.
const maxPart = 512 << 10

// partHeader marks the pieces of a long event: id/number/count.
const partHeader = "Salt-Part"

// stream is the one stream of events.
const stream = "EVENTS"

// Options bound what the journal keeps.
type Options struct {
	MaxAge   time.Duration // events older than that go; 0 keeps them
	MaxBytes int64         // when the store is larger, the oldest go; 0 or less is no limit
}

// Journal is an open journal. Its methods may be called concurrently.
type Journal struct {
	js     jetstream.JetStream
	stream jetstream.Stream
}

// dedupWindow is how long the journal remembers message ids: longer than any
// sender takes to try again.
const dedupWindow = 10 * time.Minute

// maxPending is how many appends may wait for their acknowledgement.
const maxPending = 4096

// Open opens the journal in the JetStream that nc is connected to, making what
// is missing.
func Open(ctx context.Context, nc *nats.Conn, o Options) (*Journal, error) {
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(maxPending))
	if err != nil {
		return nil, err
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = -1
	}
	window := dedupWindow
	if o.MaxAge > 0 && o.MaxAge < window {
		window = o.MaxAge
	}
	s, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: stream, Subjects: []string{event.Root + ".>"}, Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy,
		Discard: jetstream.DiscardOld, MaxAge: o.MaxAge, MaxBytes: o.MaxBytes, Duplicates: window, AllowDirect: true,
	})
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	return &Journal{js: js, stream: s}, nil
}

// Append stores e and returns its place. id names the event: a second one of the
// same id is not stored and returns the place of the first.
func (j *Journal) Append(ctx context.Context, e event.Event, id string) (uint64, error) {
	p, err := j.Begin(e, id)
	if err != nil {
		return 0, err
	}
	return p.Wait(ctx)
}

// Pending is an append under way.
type Pending struct{ ack jetstream.PubAckFuture }

// Wait returns when the event is stored.
func (p *Pending) Wait(ctx context.Context) (uint64, error) {
	select {
	case a := <-p.ack.Ok():
		return a.Sequence, nil
	case err := <-p.ack.Err():
		return 0, fmt.Errorf("store the event: %w", err)
	case <-ctx.Done():
		return 0, fmt.Errorf("store the event: %w", context.Cause(ctx))
	}
}

// Begin starts to store e, in the order of the calls, without waiting. An id ""
// is never taken for a repetition.
func (j *Journal) Begin(e event.Event, id string) (*Pending, error) {
	e.Seq = 0 // the store gives it
	body, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("event %q: %w", e.Tag, err)
	}
	m := &nats.Msg{Subject: event.Subject(e.Tag), Data: body}
	if id != "" {
		m.Header = nats.Header{jetstream.MsgIDHeader: {id}}
	}
	if len(body) > maxPart {
		return j.beginParts(m, id)
	}
	ack, err := j.js.PublishMsgAsync(m)
	if err != nil {
		return nil, fmt.Errorf("store the event: %w", err)
	}
	return &Pending{ack}, nil
}

// beginParts stores a long event in pieces. Only the last one's acknowledgement
// counts: pieces that miss it are never read.
func (j *Journal) beginParts(m *nats.Msg, id string) (*Pending, error) {
	if id == "" {
		id = nats.NewInbox()
	}
	body := m.Data
	count := (len(body) + maxPart - 1) / maxPart
	var last jetstream.PubAckFuture
	for n := range count {
		piece := body[n*maxPart : min((n+1)*maxPart, len(body))]
		ack, err := j.js.PublishMsgAsync(&nats.Msg{Subject: m.Subject, Data: piece, Header: nats.Header{
			jetstream.MsgIDHeader: {fmt.Sprintf("%s#%d", id, n)},
			partHeader:            {fmt.Sprintf("%s/%d/%d", strings.ReplaceAll(id, "/", "_"), n, count)},
		}})
		if err != nil {
			return nil, fmt.Errorf("store the event: %w", err)
		}
		last = ack
	}
	return &Pending{last}, nil
}

// Query says which events to read. The zero value reads all that is stored.
type Query struct {
	Subjects []string  // from event.Subject and its kin, wildcards allowed; none is all
	FromSeq  uint64    // start at this place
	Since    time.Time // or at this moment
	New      bool      // or with what comes after now
	Follow   bool      // do not stop at the end of what is stored
}

// Read calls f for each event in the order of the journal, until the end of what
// was stored when it began (or for ever, with Follow), an error of f, or the end
// of ctx.
func (j *Journal) Read(ctx context.Context, q Query, f func(event.Event) error) error {
	c, err := j.open(ctx, q)
	if err != nil {
		return err
	}
	return c.each(ctx, f)
}

// Cursor is a place in the journal from which events are read.
type Cursor struct {
	consumer jetstream.Consumer
	follow   bool
	joiner   joiner
}

// Open places a cursor. What is appended after Open returns is seen by Each of a
// query that follows.
func (j *Journal) Open(ctx context.Context, q Query) (*Cursor, error) { return j.open(ctx, q) }

// Each is Read from the cursor.
func (c *Cursor) Each(ctx context.Context, f func(event.Event) error) error { return c.each(ctx, f) }

func (j *Journal) open(ctx context.Context, q Query) (*Cursor, error) {
	cfg := jetstream.OrderedConsumerConfig{FilterSubjects: q.Subjects, DeliverPolicy: jetstream.DeliverAllPolicy, InactiveThreshold: time.Minute}
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
	return &Cursor{consumer: c, follow: q.Follow, joiner: joiner{}}, nil
}

func (c *Cursor) each(ctx context.Context, f func(event.Event) error) error {
	if !c.follow && c.consumer.CachedInfo().NumPending == 0 {
		return nil
	}
	it, err := c.consumer.Messages()
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
		m, err := it.Next()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("read the journal: %w", err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if err := c.one(m, meta.Sequence.Stream, f); err != nil {
			return err
		}
		if !c.follow && meta.NumPending == 0 {
			return nil
		}
	}
}

func (c *Cursor) one(m jetstream.Msg, seq uint64, f func(event.Event) error) error {
	body, whole := c.joiner.join(m.Headers().Get(partHeader), m.Data())
	if !whole {
		return nil
	}
	var e event.Event
	if err := json.Unmarshal(body, &e); err != nil {
		return fmt.Errorf("journal entry %d: %w", seq, err)
	}
	e.Seq = seq
	return f(e)
}

// maxOpen is how many long events may be read side by side; an unfinished one
// beyond that is an orphan of a daemon that died while it stored it.
const maxOpen = 64

// joiner puts pieces together, by the id of their event.
type joiner map[string][]byte

func (j joiner) join(part string, data []byte) (body []byte, whole bool) {
	if part == "" {
		return data, true
	}
	fields := strings.Split(part, "/")
	if len(fields) != 3 {
		return nil, false
	}
	n, _ := strconv.Atoi(fields[1])
	count, _ := strconv.Atoi(fields[2])
	if have := len(j[fields[0]]); n*maxPart != have || n > 0 && have == 0 {
		delete(j, fields[0]) // the beginning is missing: read from the middle, or lost
		return nil, false
	}
	if n == 0 && len(j) >= maxOpen {
		clear(j)
	}
	j[fields[0]] = append(j[fields[0]], data...)
	if n < count-1 {
		return nil, false
	}
	body = j[fields[0]]
	delete(j, fields[0])
	return body, true
}

// Last returns the place of the newest event, 0 for an empty journal.
func (j *Journal) Last(ctx context.Context) (uint64, error) {
	info, err := j.stream.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the journal: %w", err)
	}
	return info.State.LastSeq, nil
}

// First returns the first event on subject, and false where there is none.
func (j *Journal) First(ctx context.Context, subject string) (event.Event, bool, error) {
	m, err := j.stream.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(subject))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return event.Event{}, false, nil
	}
	if err != nil {
		return event.Event{}, false, fmt.Errorf("read the journal: %w", err)
	}
	if m.Header.Get(partHeader) != "" {
		return j.firstLong(ctx, subject)
	}
	var e event.Event
	if err := json.Unmarshal(m.Data, &e); err != nil {
		return e, false, fmt.Errorf("journal entry %d: %w", m.Sequence, err)
	}
	e.Seq = m.Sequence
	return e, true, nil
}

var errFound = errors.New("found")

func (j *Journal) firstLong(ctx context.Context, subject string) (found event.Event, ok bool, err error) {
	err = j.Read(ctx, Query{Subjects: []string{subject}}, func(e event.Event) error {
		found, ok = e, true
		return errFound
	})
	if errors.Is(err, errFound) {
		err = nil
	}
	return found, ok, err
}
