package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// Event is one event of the bus.
type Event struct {
	Tag  string
	Data json.RawMessage // an empty object if the event has no data
	From string          // the sender as verified by the daemon: the id of a minion, "user:NAME", "" for the daemon itself
	Seq  uint64          // its sequence number in the journal; 0 if it is not stored
	// Journal is the name of the other master's journal that Seq belongs to, see
	// ListenOptions.Mirrors.
	Journal string
}

// FireOptions change how events are fired. The zero value has the defaults.
type FireOptions struct {
	// ID names the request: the same events, fired again within ten minutes by the same user
	// under the same ID, are not stored twice.
	ID string
	// First is for a long input that is fired in several batches with one ID: the number of the
	// first event of this batch in the input, from 0. Nothing is stored twice even if the input
	// is fired again in other batches.
	First int
	// Live sends the events only to present listeners, without storing them.
	Live bool
	// Waiting is called when the events have to wait, with what they wait for: that the masters of a
	// cluster elect a leader, for example. It may be nil.
	Waiting func(what string)
}

// Fire stores events, all of them or none, and returns the sequence number of the last one. It
// uses only their Tag and Data.
func (c *Conn) Fire(ctx context.Context, events ...Event) (seq uint64, err error) {
	return c.FireWith(ctx, FireOptions{}, events...)
}

// FireWith is Fire with options.
func (c *Conn) FireWith(ctx context.Context, o FireOptions, events ...Event) (seq uint64, err error) {
	q := protocol.Fire{ID: o.request(len(events)), Series: o.ID, First: o.First, Live: o.Live, Events: make([]event.Item, len(events))}
	for i, e := range events {
		q.Events[i] = event.Item{Tag: e.Tag, Data: e.Data}
	}
	if q.Waiting = o.Waiting != nil; q.Waiting {
		seq, err = fireInformed(ctx, c, q, o.Waiting)
		return seq, known(err)
	}
	var done protocol.Fired
	err = c.rpc.Ask(ctx, protocol.OpFire, q, &done)
	return done.Seq, known(err)
}

// fireInformed calls waiting before the result, when the events have to wait.
func fireInformed(ctx context.Context, c *Conn, q protocol.Fire, waiting func(string)) (seq uint64, err error) {
	stream, err := c.rpc.Call(protocol.OpFire, q)
	if err != nil {
		return 0, err
	}
	defer stream.Close()
	return readFired(ctx, stream, waiting)
}

func readFired(ctx context.Context, stream *rpc.Stream, waiting func(string)) (seq uint64, err error) {
	for {
		var done protocol.Fired
		if err := stream.Decode(ctx, &done); err != nil || done.Waiting == "" {
			return done.Seq, err
		}
		waiting(done.Waiting)
	}
}

// request returns the name of a request with count events, for a bus that only recognises
// duplicates of whole requests: that of a minion, for several events. The same events in other
// batches are other requests.
func (o FireOptions) request(count int) string {
	if o.ID == "" {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d+%d %s", o.First, count, o.ID))
	return hex.EncodeToString(sum[:16])
}

// ListenOptions select events, and where to begin. The zero value is everything that this user
// may receive, from now on.
type ListenOptions struct {
	Tags    []string  // prefixes, or patterns as Match says
	Match   string    // startswith (also for ""), endswith, find, regex, fnmatch
	From    []string  // shell patterns for senders
	Since   time.Time // begin with events stored since then
	FromSeq uint64    // or begin with this sequence number
	// UntilEnd ends after what is stored now.
	UntilEnd bool
	// Durable names a position that the daemon stores: a later listener with that name begins
	// after what was confirmed. One listener at a time may use it, until its connection is
	// closed.
	Durable string
	// Live also requests events that are not stored.
	Live bool
	// Resume means that everything before FromSeq, or At, is handled, whatever was confirmed for
	// Durable. It is for reconnecting after [ErrLost].
	Resume bool
	// Mirrors also requests the events of other masters whose journals are mirrored by this one.
	Mirrors bool
	// Members requests the events of all members of a cluster, as Mirrors does. For a single master
	// it changes nothing.
	Members bool
	// At begins after these positions in several journals, as returned by [Listener.Positions]
	// and [Conn.End].
	At string
}

// Listener receives events. [Conn.Listen] makes it.
type Listener struct {
	conn    *Conn
	stream  *rpc.Stream
	durable string
	mirrors bool
	live    bool
	own     string         // the name of the own journal, in a cluster
	at      event.Position // its positions in the journals of other masters
	stored  event.Position // what was confirmed when it began
	lines   [][]byte
	passed  uint64
	end     uint64
	lost    uint64
	missed  uint64
	ahead   uint64
	gone    []string
	limits  []string
	ended   bool
}

// Listen returns when the listener is registered: it receives everything that is fired
// afterwards.
func (c *Conn) Listen(ctx context.Context, o ListenOptions) (*Listener, error) {
	q := protocol.Listen{
		Tags: o.Tags, Match: event.MatchType(o.Match), Senders: o.From, Since: o.Since, FromSeq: o.FromSeq,
		UntilEnd: o.UntilEnd, Durable: o.Durable, Live: o.Live, Resume: o.Resume, Mirrors: o.Mirrors, Members: o.Members, Lines: true,
	}
	if o.At != "" {
		var err error
		if q.At, err = event.ReadPosition(o.At); err != nil {
			return nil, failure{err, ErrUsage}
		}
		for name := range q.At {
			q.At[name]++ // after what was received
		}
	}
	stream, err := c.rpc.Call(protocol.OpListen, q)
	if err != nil {
		return nil, known(err)
	}
	var ready protocol.Ready
	if err := stream.Decode(ctx, &ready); err != nil {
		stream.Close()
		return nil, known(err)
	}
	return newListener(c, stream, o, ready), nil
}

func newListener(c *Conn, stream *rpc.Stream, o ListenOptions, ready protocol.Ready) *Listener {
	l := &Listener{
		conn: c, stream: stream, durable: o.Durable, mirrors: o.Mirrors || o.Members, live: o.Live, own: ready.Journal, at: event.Position{}, stored: ready.Stored,
		passed: ready.Start - min(1, ready.Start), end: ready.Last, lost: ready.Lost, ahead: ready.Ahead, gone: ready.Gone, limits: ready.Limits,
	}
	for name, start := range ready.At {
		l.at.Pass(name, start-min(1, start))
	}
	return l
}

// Next waits for the next event. With UntilEnd it returns io.EOF at the end.
func (l *Listener) Next(ctx context.Context) (Event, error) {
	for {
		for len(l.lines) > 0 {
			line := l.lines[0]
			l.lines = l.lines[1:]
			is, err := l.pass(line)
			if err != nil {
				return Event{}, err
			}
			if is {
				return l.read(line)
			}
		}
		if err := l.receive(ctx); err != nil {
			return Event{}, err
		}
	}
}

// NextLines waits for events without decoding them: each is one JSON document on one line as
// written by the daemon, with tag, from, data, seq, and for an event of another journal master.
// It is for programs that pass many events on. Use it instead of [Listener.Next]. It returns no
// lines if only the position has changed.
func (l *Listener) NextLines(ctx context.Context) ([][]byte, error) {
	if len(l.lines) == 0 {
		if err := l.receive(ctx); err != nil {
			return nil, err
		}
	}
	events := l.lines[:0]
	for _, line := range l.lines {
		is, err := l.pass(line)
		if err != nil {
			return nil, err
		}
		if is {
			events = append(events, line)
		}
	}
	l.lines = nil
	return events, nil
}

// receive waits for lines.
func (l *Listener) receive(ctx context.Context) error {
	if l.ended {
		return io.EOF
	}
	b, err := l.stream.Next(ctx)
	if err != nil && b == nil {
		return known(err)
	}
	l.lines = bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n"))
	return nil
}

// pass moves the position past one line, and reports whether that is an event.
func (l *Listener) pass(line []byte) (is bool, err error) {
	if bytes.HasPrefix(line, []byte(`{"passed":`)) {
		return false, l.progress(line)
	}
	seq, journal := event.SeqOf(line), ""
	if seq == 0 && !l.live {
		return false, errors.New("unreadable answer: an event without its sequence")
	}
	if l.mirrors {
		journal = event.MasterOf(line)
	}
	if journal != "" {
		l.at.Pass(journal, seq)
	} else {
		l.passed = max(l.passed, seq)
	}
	return true, nil
}

// progress reads a message about the position of the listener.
func (l *Listener) progress(line []byte) error {
	var m protocol.Progress
	if err := json.Unmarshal(line, &m); err != nil {
		return fmt.Errorf("unreadable answer: %w", err)
	}
	if m.Master != "" {
		l.at.Pass(m.Master, m.Passed)
		return nil
	}
	l.passed, l.ended = max(l.passed, m.Passed), m.End
	l.lost += m.Lost + m.Missed
	l.missed += m.Missed
	return nil
}

// read decodes the event of a line.
func (l *Listener) read(line []byte) (Event, error) {
	var got event.Event
	if err := json.Unmarshal(line, &got); err != nil {
		return Event{}, fmt.Errorf("unreadable event: %w", err)
	}
	e := Event{Tag: got.Tag, Data: got.Data, From: got.From, Seq: got.Seq}
	if l.mirrors {
		e.Journal = event.MasterOf(line)
	}
	return e, nil
}

// All returns the events as they arrive. An error is the last element.
func (l *Listener) All(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for {
			e, err := l.Next(ctx)
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Journal returns the name of the journal of events that do not name one, in a cluster; "" for a
// single master.
func (l *Listener) Journal() string { return l.own }

// Position is the sequence number up to which every matching event was returned. A listener
// with FromSeq one higher continues there.
func (l *Listener) Position() uint64 { return l.passed }

// Positions are the positions in the journals of other masters, as text for ListenOptions.At;
// "" if there are none.
func (l *Listener) Positions() string {
	if len(l.at) == 0 {
		return ""
	}
	return l.at.String()
}

// Confirmed is what was confirmed for Durable when this listener began, in each journal; that of a
// single master is "". A listener that reconnects with Resume sees in it whether another one has
// confirmed events meanwhile that it has received itself.
func (l *Listener) Confirmed() map[string]uint64 { return l.stored }

// Limits are the only tags that this user may receive, as shell patterns; none means no limit.
func (l *Listener) Limits() []string { return l.limits }

// Lost is how many events, at most, the listener has missed: removed from the journal before
// they could be sent, or not stored and sent while the listener read too slowly.
func (l *Listener) Lost() uint64 { return l.lost }

// Missed is how many of the lost events were never stored.
func (l *Listener) Missed() uint64 { return l.missed }

// End is the sequence number of the newest event when the listener began.
func (l *Listener) End() uint64 { return l.end }

// Ahead is the position of a durable listener that reconnects to a journal that ends before it,
// for example after an old copy was restored; 0 if there is none. Such a listener gets
// everything in the journal from its start.
func (l *Listener) Ahead() uint64 { return l.ahead }

// Gone are the names of journals in which a listener with Resume had a position, and which are not there any
// more. It goes on without them.
func (l *Listener) Gone() []string { return l.gone }

// Confirm records that everything up to seq is handled, and returns when that is stored. It is
// for durable listeners.
func (l *Listener) Confirm(ctx context.Context, seq uint64) error {
	return l.conn.Confirm(ctx, l.durable, seq, "")
}

// ConfirmAll records that everything that was returned is handled, in all journals.
func (l *Listener) ConfirmAll(ctx context.Context) error {
	return l.conn.Confirm(ctx, l.durable, l.passed, l.Positions())
}

// Confirm is [Listener.Confirm] for programs that confirm in another goroutine than that of the
// listener. durable is a durable listener of this connection; at are the positions in the
// journals of other masters, as returned by [Listener.Positions].
func (c *Conn) Confirm(ctx context.Context, durable string, seq uint64, at string) error {
	q := protocol.Confirm{Durable: durable, Seq: seq}
	if at != "" {
		var err error
		if q.At, err = event.ReadPosition(at); err != nil {
			return failure{err, ErrUsage}
		}
	}
	return known(c.rpc.Ask(ctx, protocol.OpConfirm, q, nil))
}

// Close ends the listener.
func (l *Listener) Close() { l.stream.Close() }
