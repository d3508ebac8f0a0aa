package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
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
	q := protocol.Fire{Series: o.ID, First: o.First, Live: o.Live}
	for _, e := range events {
		q.Events = append(q.Events, event.Item{Tag: e.Tag, Data: e.Data})
	}
	var done protocol.Fired
	err = c.rpc.Ask(ctx, protocol.OpFire, q, &done)
	return done.Seq, known(err)
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
	at      event.Position // how far it is in the journals of others
	lines   [][]byte
	passed  uint64
	lost    uint64
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
	l := &Listener{conn: c, stream: stream, durable: o.Durable, mirrors: o.Mirrors, at: event.Position{}, passed: ready.Start - min(1, ready.Start), lost: ready.Lost, ahead: ready.Ahead, limits: ready.Limits}
	for name, start := range ready.At {
		l.at.Pass(name, start-min(1, start))
	}
	return l, nil
}

// Next waits for the next event. It returns io.EOF at the end that UntilEnd asked for.
func (l *Listener) Next(ctx context.Context) (Event, error) {
	for {
		for len(l.lines) > 0 {
			line := l.lines[0]
			l.lines = l.lines[1:]
			if e, is, err := l.read(line); is || err != nil {
				return e, err
			}
		}
		if l.ended {
			return Event{}, io.EOF
		}
		b, err := l.stream.Next(ctx)
		if err != nil && b == nil {
			return Event{}, known(err)
		}
		l.lines = bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n"))
	}
}

// read reads one line: an event, or a word on where the listener stands.
func (l *Listener) read(line []byte) (e Event, is bool, err error) {
	if bytes.HasPrefix(line, []byte(`{"passed":`)) {
		var m protocol.Progress
		if err := json.Unmarshal(line, &m); err != nil {
			return e, false, fmt.Errorf("unreadable answer: %w", err)
		}
		if m.Master != "" {
			l.at.Pass(m.Master, m.Passed)
			return e, false, nil
		}
		l.passed, l.ended = max(l.passed, m.Passed), m.End
		l.lost += m.Lost + m.Missed
		return e, false, nil
	}
	var got event.Event
	if err := json.Unmarshal(line, &got); err != nil {
		return e, false, fmt.Errorf("unreadable event: %w", err)
	}
	e = Event{Tag: got.Tag, Data: got.Data, From: got.From, Seq: got.Seq}
	if l.mirrors {
		e.Journal = event.MasterOf(line)
	}
	if e.Journal != "" {
		l.at.Pass(e.Journal, e.Seq)
	} else {
		l.passed = max(l.passed, e.Seq)
	}
	return e, true, nil
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

// Limits are the only tags that this user may hear, as shell patterns; none is no limit.
func (l *Listener) Limits() []string { return l.limits }

// Lost is how many events, at most, went by without being heard: removed from the journal
// before they could be sent, or not stored and sent while too little was taken.
func (l *Listener) Lost() uint64 { return l.lost }

// Ahead is the position of a durable listener that comes back to a journal which ends before
// it, put back from a copy, say; 0 is none. It hears all that the journal has from its start.
func (l *Listener) Ahead() uint64 { return l.ahead }

// Confirm says that everything up to seq is done; it returns when that is stored. It is for
// listeners that are durable.
func (l *Listener) Confirm(ctx context.Context, seq uint64) error {
	return l.confirm(ctx, protocol.Confirm{Durable: l.durable, Seq: seq})
}

// ConfirmAll says that everything that was handed out is done, in all journals.
func (l *Listener) ConfirmAll(ctx context.Context) error {
	return l.confirm(ctx, protocol.Confirm{Durable: l.durable, Seq: l.passed, At: maps.Clone(l.at)})
}

func (l *Listener) confirm(ctx context.Context, q protocol.Confirm) error {
	return known(l.conn.rpc.Ask(ctx, protocol.OpConfirm, q, nil))
}

// Close ends the listener.
func (l *Listener) Close() { l.stream.Close() }
