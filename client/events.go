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
	Data json.RawMessage // what has no data has an empty object
	From string          // the sender as the daemon has verified it: a minion's id, "user:NAME", "" for the daemon itself
	Seq  uint64          // its sequence number in the journal; 0 where it is not stored
	// Journal is the name of another master's journal, of which Seq is, see ListenOptions.Mirrors.
	Journal string
}

// FireOptions change how events are fired. The zero value is usual.
type FireOptions struct {
	// ID names what is fired: the same events, fired again within ten minutes by the same user
	// under the same name, are not stored twice.
	ID string
	// First is for a long input that is fired in several batches under one ID: the number, from
	// 0, that the first event of this one has in it. However it is cut when it is fired again,
	// nothing of it is stored twice.
	First int
	// Live hands the events to who listens at this moment, and stores them nowhere.
	Live bool
}

// Fire stores events, all of them or none, and returns the sequence number of the last.
// Those of Tag and Data are taken.
func (c *Conn) Fire(ctx context.Context, events ...Event) (seq uint64, err error) {
	return c.FireWith(ctx, FireOptions{}, events...)
}

// FireWith is Fire with options.
func (c *Conn) FireWith(ctx context.Context, o FireOptions, events ...Event) (seq uint64, err error) {
	q := protocol.Fire{ID: o.request(len(events)), Series: o.ID, First: o.First, Live: o.Live, Events: make([]event.Item, len(events))}
	for i, e := range events {
		q.Events[i] = event.Item{Tag: e.Tag, Data: e.Data}
	}
	var done protocol.Fired
	err = c.rpc.Ask(ctx, protocol.OpFire, q, &done)
	return done.Seq, known(err)
}

// request names this one request of count events, for a bus that knows the names of requests alone: that of a minion,
// for several events. Cut in another way the same events are another request.
func (o FireOptions) request(count int) string {
	if o.ID == "" {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d+%d %s", o.First, count, o.ID))
	return hex.EncodeToString(sum[:16])
}

// ListenOptions say which events are to be heard, and from where on. The zero value is all
// that this user may hear, from now on.
type ListenOptions struct {
	Tags    []string  // prefixes, or what Match makes of them
	Match   string    // startswith (also for ""), endswith, find, regex, fnmatch
	From    []string  // shell patterns for the sender
	Since   time.Time // begin with what is stored since then
	FromSeq uint64    // or with this sequence number
	// UntilEnd ends behind what is stored now.
	UntilEnd bool
	// Durable names a position that the daemon keeps: a later listener of that name begins
	// behind what was confirmed. One listener at a time may hold it, until its connection is
	// closed.
	Durable string
	// Live asks for events that are not stored, too.
	Live bool
	// Resume says of FromSeq, or At, that everything before it is done, whatever was confirmed of
	// Durable: it is for who comes back after [ErrLost].
	Resume bool
	// Mirrors asks for the events of other masters, too, whose journals are mirrored here.
	Mirrors bool
	// At begins with these positions in several journals, as [Listener.Positions] and
	// [Conn.End] write them.
	At string
}

// Listener hears events. Make it with [Conn.Listen].
type Listener struct {
	conn    *Conn
	stream  *rpc.Stream
	durable string
	mirrors bool
	live    bool
	at      event.Position // how far it is in the journals of others
	lines   [][]byte
	passed  uint64
	end     uint64
	lost    uint64
	missed  uint64
	ahead   uint64
	limits  []string
	ended   bool
}

// Listen returns when the listener stands: what is fired from then on is heard.
func (c *Conn) Listen(ctx context.Context, o ListenOptions) (*Listener, error) {
	q := protocol.Listen{
		Tags: o.Tags, Match: event.MatchType(o.Match), Senders: o.From, Since: o.Since, FromSeq: o.FromSeq,
		UntilEnd: o.UntilEnd, Durable: o.Durable, Live: o.Live, Resume: o.Resume, Mirrors: o.Mirrors, Lines: true,
	}
	if o.At != "" {
		var err error
		if q.At, err = event.ReadPosition(o.At); err != nil {
			return nil, failure{err, ErrUsage}
		}
		for name := range q.At {
			q.At[name]++ // behind what was heard
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
		conn: c, stream: stream, durable: o.Durable, mirrors: o.Mirrors, live: o.Live, at: event.Position{},
		passed: ready.Start - min(1, ready.Start), end: ready.Last, lost: ready.Lost, ahead: ready.Ahead, limits: ready.Limits,
	}
	for name, start := range ready.At {
		l.at.Pass(name, start-min(1, start))
	}
	return l
}

// Next waits for the next event. It returns io.EOF at the end that UntilEnd asked for.
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

// NextLines waits for what comes next, and takes no event apart: each is one document of JSON on one line, with tag,
// from, data, seq, and master for that of another journal, as the daemon has written it. It is for who hands many
// events on, and takes the place of [Listener.Next]. There may be none, where it is the position that has moved.
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

// pass moves on behind one line, and says whether that is an event.
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

// progress reads a word on where the listener stands.
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

// read reads the event of a line.
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

// All are the events as they come. An error is the last thing that comes.
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

// Position is the sequence number up to which everything was handed out, or does not match:
// with FromSeq one above it, another listener goes on here.
func (l *Listener) Position() uint64 { return l.passed }

// Positions are those in the journals of other masters, as one text for ListenOptions.At; "" for
// none.
func (l *Listener) Positions() string {
	if len(l.at) == 0 {
		return ""
	}
	return l.at.String()
}

// Limits are the only tags that this user may hear, as shell patterns; none means no limit.
func (l *Listener) Limits() []string { return l.limits }

// Lost is how many events, at most, went by without being heard: removed from the journal
// before they could be sent, or not stored and sent while too little was taken.
func (l *Listener) Lost() uint64 { return l.lost }

// Missed is how many of those that were lost were never stored.
func (l *Listener) Missed() uint64 { return l.missed }

// End is the sequence number of the newest event when the listener began.
func (l *Listener) End() uint64 { return l.end }

// Ahead is the position of a durable listener that comes back to a journal which ends before
// it, put back from a copy, say; 0 is none. It hears all that the journal has from its start.
func (l *Listener) Ahead() uint64 { return l.ahead }

// Confirm says that everything up to seq is done; it returns when that is stored. It is for
// listeners that are durable.
func (l *Listener) Confirm(ctx context.Context, seq uint64) error {
	return l.conn.Confirm(ctx, l.durable, seq, "")
}

// ConfirmAll says that everything that was handed out is done, in all journals.
func (l *Listener) ConfirmAll(ctx context.Context) error {
	return l.conn.Confirm(ctx, l.durable, l.passed, l.Positions())
}

// Confirm is [Listener.Confirm] for who confirms beside the listener, in a goroutine of its own: for a durable listener
// of this connection, and at says the same for the journals of other masters, as [Listener.Positions] writes it.
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
