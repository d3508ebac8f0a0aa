package journal

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/event"
)

// Limits of what a reader takes from the store before its caller has handled it.
const (
	aheadMessages = 2048
	aheadBytes    = 8 << 20
	// rescueSpan is how far back to search for the start of a long event: more than others
	// store in the second that storing a long event takes.
	rescueSpan = 1 << 20
)

// Text is a stored event as it was written, without its sequence.
type Text struct {
	Seq    uint64
	Body   []byte // read-only, unless Replay has assembled it from several pieces
	Pieces int    // number of messages in the store
}

// Follow is Reader.Follow for the daemon itself.
func (j *source) Follow(ctx context.Context, from uint64, f func(Text) error) error {
	return j.For("", nil).Follow(ctx, from, f)
}

// Follow calls f for each event from the sequence from on, as they are stored, until
// f fails or ctx ends, whose cause it then returns.
func (r Reader) Follow(ctx context.Context, from uint64, f func(Text) error) error {
	return r.texts(ctx, from, 0, f)
}

// texts implements Replay, and without to Follow, with a consumer.
func (r Reader) texts(ctx context.Context, from, to uint64, f func(Text) error) error {
	join, long := joiner{}, longEvent{read: r.long}
	defer long.end()
	return r.messages(ctx, Query{FromSeq: max(from, 1), Follow: to == 0}, func(m jetstream.Msg, seq uint64) error {
		if to > 0 && seq > to {
			return errEnd
		}
		part, text := piece(m.Headers(), m.Data())
		if part == "" {
			long.end() // of one whose last piece did not come
		} else if err := long.begin(ctx, part); err != nil {
			return err
		}
		body, whole := join.join(part, text)
		pieces := 1
		if part != "" {
			_, n, count, ok := splitPart(part)
			if pieces = count; !whole && ok && n == count-1 && count > 1 {
				var err error
				if body, whole, err = r.journal.rescue(ctx, m.Subject(), seq); err != nil {
					return err
				}
			}
		}
		if whole {
			if err := f(Text{seq, body, pieces}); err != nil {
				return err
			}
			long.end()
		}
		if seq == to {
			return errEnd
		}
		return nil
	})
}

// Tap calls f for each event from the sequence from on, as they are stored, until ctx ends, whose cause it
// then returns, or the mirror cannot be read. As with Journal.Tap, an event of several messages comes without
// its body, under its sequence.
func (m *Mirror) Tap(ctx context.Context, from uint64, f func(Text)) error {
	return m.For("", nil).messages(ctx, Query{FromSeq: max(from, 1), Follow: true}, func(msg jetstream.Msg, seq uint64) error {
		part, text := piece(msg.Headers(), msg.Data())
		if part == "" {
			f(Text{seq, text, 1})
		} else if _, n, count, ok := splitPart(part); ok && n == count-1 {
			f(Text{Seq: seq, Pieces: count})
		}
		return nil
	})
}

// rescue assembles the long event that ends at seq and begins before the sequence where a
// reader has started.
func (j *source) rescue(ctx context.Context, subject string, seq uint64) (body []byte, whole bool, err error) {
	join := joiner{}
	from := uint64(1)
	if seq > rescueSpan {
		from = seq - rescueSpan
	}
	err = j.For("", nil).messages(ctx, Query{Subjects: []string{subject}, FromSeq: from}, func(m jetstream.Msg, at uint64) error {
		b, done := join.join(piece(m.Headers(), m.Data()))
		if at < seq {
			return nil
		}
		body, whole = b, done && at == seq
		return errEnd
	})
	return body, whole, err
}

// messages calls f for each message of the store that q selects. f ends it early with errEnd.
func (r Reader) messages(ctx context.Context, q Query, f func(m jetstream.Msg, seq uint64) error) error {
	c, err := r.open(ctx, q)
	if err != nil {
		return err
	}
	defer r.journal.release(c)
	return c.messages(ctx, aheadMessages, f)
}

// messages calls f for each message from the cursor on; most are requested before they are read.
func (c *Cursor) messages(ctx context.Context, most int, f func(m jetstream.Msg, seq uint64) error) error {
	if c.nothing() {
		return nil
	}
	allowed, bytes, end := c.reader.pull()
	defer end()
	d, err := c.deliveries(ctx, min(most, allowed), bytes)
	if err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	w := watch(ctx, d)
	defer w.end()
	for {
		w.waiting.Store(true)
		m, at, err := d.next()
		w.waiting.Store(false)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && w.empty.Load():
			return nil
		case err != nil && w.late.Load():
			return fmt.Errorf("read the journal: %w", errLate)
		case err != nil:
			return fmt.Errorf("read the journal: %w", err)
		}
		w.count.Add(1)
		if err := f(m, at.seq); err != nil {
			if errors.Is(err, errEnd) {
				return nil
			}
			return err
		}
		if c.passed(at.seq, at.pending) {
			return nil
		}
	}
}

// delivery is what is known of a message beside its content.
type delivery struct{ seq, delivered, pending uint64 }

// whereabouts reads it from the reply subject for acknowledgements, which ends with the
// sequences in the stream and of the delivery, a time, and how many are left. The library's
// function splits the subject into all its tokens, which is slower.
func whereabouts(m jetstream.Msg) (delivery, error) {
	var d delivery
	rest, ok := m.Reply(), strings.Count(m.Reply(), ".") == ackDots
	for _, n := range []*uint64{&d.pending, nil, &d.delivered, &d.seq} {
		at := strings.LastIndexByte(rest, '.')
		if n != nil && ok {
			var err error
			*n, err = strconv.ParseUint(rest[at+1:], 10, 64)
			ok = err == nil
		}
		rest = rest[:max(at, 0)]
	}
	if ok {
		return d, nil
	}
	meta, err := m.Metadata()
	if err != nil {
		return d, err
	}
	return delivery{meta.Sequence.Stream, meta.Sequence.Consumer, meta.NumPending}, nil
}

// ackDots is the number of dots in the usual form of that subject.
const ackDots = 8

// watcher ends a reader with its context, and also a reader that does not follow when the rest
// of what it was to read was removed meanwhile. A timer for each message would cost a tenth of
// the reading time.
type watcher struct {
	count   atomic.Uint64 // messages that were read
	waiting atomic.Bool   // for the next one; otherwise the reader handles one
	empty   atomic.Bool   // it was ended because there is nothing left
	late    atomic.Bool   // or because the store does not send what is left
	end     func()
}

func watch(ctx context.Context, d *deliveries) *watcher {
	ctx, cancel := context.WithCancel(ctx)
	w := &watcher{}
	var running sync.WaitGroup
	running.Go(func() {
		defer d.stop()
		switch {
		case !d.cursor.follow:
			w.await(ctx, d)
		case d.cursor.reader.journal.stream.CachedInfo().Config.Replicas > 1 && d.cursor.plain():
			w.attend(ctx, d)
		default:
			<-ctx.Done()
		}
	})
	w.end = func() {
		cancel()
		running.Wait()
	}
	return w
}

// await returns when ctx ends, or when the reader waits for nothing: the server has nothing for
// it, and nothing is on its way. It checks twice. If the store does not send what it has for
// too long, await gives up.
func (w *watcher) await(ctx context.Context, d *deliveries) {
	tick := time.NewTicker(idle)
	defer tick.Stop()
	last, looks, moved := uint64(0), 0, time.Now()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := w.count.Load()
		if now != last || !w.waiting.Load() {
			last, looks, moved = now, 0, time.Now()
			continue
		}
		if time.Since(moved) > longest(ctx) {
			w.late.Store(true)
			return
		}
		if !d.idle(ctx) {
			looks = 0
			continue
		}
		if looks++; looks < 2 {
			continue
		}
		if !d.cursor.over(ctx) {
			looks = 0
			d.elsewhere(idle)
			continue
		}
		if w.waiting.Load() && w.count.Load() == now {
			w.empty.Store(true)
			return
		}
	}
}

// releaseTime limits how long release waits for the server.
const releaseTime = 5 * time.Second

// release removes the reader's consumer from the server, which would otherwise keep it for a
// minute: with thousands of short listeners they would add up.
func (j *source) release(c *Cursor) {
	consumer := c.consumer.Load()
	if consumer == nil {
		return
	}
	select {
	case <-j.closed:
		return
	default:
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseTime)
	defer cancel()
	// If this fails, the server removes it itself, a minute later.
	_ = j.stream.DeleteConsumer(ctx, (*consumer).CachedInfo().Name)
}

// Extent returns what the journal holds.
func (j *Journal) Extent(ctx context.Context) (event.Extent, error) {
	e, err := j.source.Extent(ctx)
	e.Last = max(e.Last, j.writer.stored()) // the leader that is asked may be one no more, and lack the newest messages
	e.Limit, e.Dropped = j.shares.limit, j.Dropped().Messages
	return e, err
}

// Extent returns what the stream holds.
func (j *source) Extent(ctx context.Context) (event.Extent, error) {
	info, err := j.info(ctx)
	if err != nil {
		return event.Extent{}, err
	}
	s := info.State
	e := event.Extent{
		First: s.FirstSeq, Last: s.LastSeq, Count: s.Msgs, Bytes: s.Bytes, Readers: s.Consumers,
		MaxAge: info.Config.MaxAge.Seconds(),
	}
	if s.Msgs == 0 {
		e.First = s.LastSeq + 1
		return e, nil
	}
	e.Oldest, e.Newest = s.FirstTime, s.LastTime
	e.First, err = j.firstEvent(ctx, info)
	return e, err
}

// SequenceAt returns the sequence of the first event from the time t on; if there is none, the
// one after the newest.
func (j *source) SequenceAt(ctx context.Context, t time.Time) (uint64, error) {
	last, err := j.Last(ctx) // what is stored from now on is from the time t on, too
	if err != nil {
		return 0, err
	}
	c, err := j.Open(ctx, Query{Since: t})
	if err != nil {
		return 0, err
	}
	defer j.release(c)
	first := uint64(0)
	err = c.messages(ctx, 1, func(_ jetstream.Msg, seq uint64) error {
		first = seq
		return errEnd
	})
	if err != nil || first > 0 {
		return first, err
	}
	return j.behind(ctx, t, last)
}

// behind returns the sequence after the newest event, where none was found from the time t on. Events up to
// last are known to be stored; a server that led before may lack some of them.
func (j *source) behind(ctx context.Context, t time.Time, last uint64) (uint64, error) {
	if last == 0 {
		return 1, nil
	}
	m, err := j.message(ctx, last)
	if errors.Is(err, jetstream.ErrMsgNotFound) { // it was removed
		m, err = j.newest(ctx, nil)
	}
	switch {
	case err != nil:
		return 0, err
	case m == nil || m.Sequence > last:
		return last + 1, nil
	case !m.Time.Before(t):
		return 0, fmt.Errorf("read the journal: %w", errNoLeader)
	}
	return m.Sequence + 1, nil
}
