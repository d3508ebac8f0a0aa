package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/salt"
)

// End returns the sequence number of the newest event and, if other masters' journals are
// mirrored, the positions in all journals as text for ListenOptions.At. A listener that begins
// after them misses nothing that is fired from now on.
func (c *Conn) End(ctx context.Context) (seq uint64, at string, err error) {
	var p protocol.End
	if err := c.rpc.Ask(ctx, protocol.OpEnd, nil, &p); err != nil {
		return 0, "", known(err)
	}
	if len(p.At) > 0 {
		at = p.At.String()
	}
	return p.Seq, at, nil
}

// DeadLetter is an event whose handler has failed at every attempt.
type DeadLetter struct {
	Name     string          `json:"name"`              // of the handler
	Seq      uint64          `json:"seq"`               // of the event
	Journal  string          `json:"journal,omitempty"` // of the event, in a cluster; "" is the own one of the master
	Tag      string          `json:"tag"`
	From     string          `json:"from,omitempty"`
	Event    json.RawMessage `json:"event,omitempty"` // the whole event; nil if it is too large to be stored twice
	Command  []string        `json:"command"`         // of the handler
	Attempts int             `json:"attempts"`
	Reason   string          `json:"reason"`           // the result of the last attempt
	Stderr   string          `json:"stderr,omitempty"` // the end of its error output
	Time     time.Time       `json:"time"`
}

// KeepDeadLetter stores a dead letter of this user. It replaces one with the same name, journal and
// sequence number.
func (c *Conn) KeepDeadLetter(ctx context.Context, l DeadLetter) error {
	letter := protocol.DeadLetter(l)
	return known(c.rpc.Ask(ctx, protocol.OpDead, protocol.Dead{Do: protocol.DeadPut, Letter: &letter}, nil))
}

// DeadLetters returns the dead letters of this user: those of a handler, or of all handlers if
// name is "", and of those the one with the sequence number seq, or all if it is 0.
func (c *Conn) DeadLetters(ctx context.Context, name string, seq uint64) ([]DeadLetter, error) {
	return c.deadLetters(ctx, protocol.Dead{Do: protocol.DeadList, Name: name, Seq: seq})
}

// DropDeadLetters deletes dead letters of this user, chosen as for DeadLetters, and returns
// them.
func (c *Conn) DropDeadLetters(ctx context.Context, name string, seq uint64) ([]DeadLetter, error) {
	return c.deadLetters(ctx, protocol.Dead{Do: protocol.DeadDrop, Name: name, Seq: seq})
}

// DropDeadLetter deletes this one.
func (c *Conn) DropDeadLetter(ctx context.Context, l DeadLetter) error {
	_, err := c.deadLetters(ctx, protocol.Dead{Do: protocol.DeadDrop, Name: l.Name, Seq: l.Seq, Journal: l.Journal})
	return err
}

// TakenDeadLetter is a dead letter that this connection handles again, and nobody else at the same
// time. Handled or Release must be called; the end of the connection releases it, too.
type TakenDeadLetter struct {
	Letter DeadLetter // as it is now

	conn   *Conn
	q      protocol.Dead
	held   context.Context
	stop   context.CancelFunc
	closed chan struct{}
}

// TakeDeadLetter takes a dead letter of this user, or of the reactor for operators, to handle it again.
// The error is ErrBusy if somebody else does, at any member of a cluster, and ErrNotFound if it is gone.
func (c *Conn) TakeDeadLetter(ctx context.Context, l DeadLetter) (*TakenDeadLetter, error) {
	t := &TakenDeadLetter{conn: c, q: protocol.Dead{Do: protocol.DeadTake, Name: l.Name, Seq: l.Seq, Journal: l.Journal}, closed: make(chan struct{})}
	stream, err := c.rpc.Call(protocol.OpDead, t.q)
	if err != nil {
		return nil, known(err)
	}
	var letter protocol.DeadLetter
	if err := stream.Decode(ctx, &letter); err != nil {
		stream.Close()
		if errors.Is(err, io.EOF) {
			err = failure{errors.New("the dead letter is gone"), ErrNotFound}
		} else if ctx.Err() != nil {
			t.giveUp()
		}
		return nil, known(err)
	}
	t.Letter = DeadLetter(letter)
	reading, stop := context.WithCancel(context.Background())
	held, lose := context.WithCancelCause(context.Background())
	t.held, t.stop = held, stop
	go func() {
		defer close(t.closed)
		defer stream.Close()
		_, err := stream.Next(reading)
		lose(known(err))
	}()
	return t, nil
}

// giveUp releases what may be taken although nobody has waited for it.
func (t *TakenDeadLetter) giveUp() {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTime)
	defer cancel()
	_ = t.tell(ctx, protocol.DeadRelease) // otherwise the end of the connection releases it
}

// releaseTime is how long the release of a dead letter is waited for that nobody waits for.
const releaseTime = 5 * time.Second

// Context ends when the dead letter is not held any more, so that somebody else may handle it.
func (t *TakenDeadLetter) Context() context.Context { return t.held }

// Handled deletes the dead letter, which was handled. After an error it may still be there.
func (t *TakenDeadLetter) Handled(ctx context.Context) error { return t.end(ctx, protocol.DeadHandled) }

// Release gives the dead letter back, which was not handled.
func (t *TakenDeadLetter) Release(ctx context.Context) error { return t.end(ctx, protocol.DeadRelease) }

func (t *TakenDeadLetter) end(ctx context.Context, do protocol.DeadAction) error {
	defer func() {
		t.stop()
		<-t.closed
	}()
	return t.tell(ctx, do)
}

func (t *TakenDeadLetter) tell(ctx context.Context, do protocol.DeadAction) error {
	q := t.q
	q.Do = do
	return known(t.conn.rpc.Ask(ctx, protocol.OpDead, q, nil))
}

func (c *Conn) deadLetters(ctx context.Context, q protocol.Dead) (list []DeadLetter, err error) {
	stream, err := c.rpc.Call(protocol.OpDead, q)
	if err != nil {
		return nil, known(err)
	}
	defer stream.Close()
	for {
		var l protocol.DeadLetter
		err := stream.Decode(ctx, &l)
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, known(err)
		}
		list = append(list, DeadLetter(l))
	}
}

// PurgeOptions select the events to remove: an event must match everything that is set. The
// zero value selects all events.
type PurgeOptions struct {
	Before uint64    // events with a smaller sequence number
	Until  time.Time // events that are older
	Tags   []string  // prefixes, or patterns as Match says
	Match  string    // as in ListenOptions
	// Journal is the name of that of another member of the cluster, which need not run; "" is that of the daemon. Before
	// is a sequence in it.
	Journal string
}

// errOwnJournal is that of a daemon that does not know PurgeOptions.Journal.
var errOwnJournal = errors.New("the daemon is of a version that removes events only from its own journal, so nothing was removed")

// Purge removes events from the journal, and returns how many. Only operators may use it.
func (c *Conn) Purge(ctx context.Context, o PurgeOptions) (count uint64, err error) {
	var done protocol.Purged
	q := protocol.Purge{Before: o.Before, Until: o.Until, Tags: o.Tags, Match: event.MatchType(o.Match)}
	if o.Journal != "" {
		q.Before, q.Journal, q.JournalBefore = 1, o.Journal, o.Before
	}
	err = c.rpc.Ask(ctx, protocol.OpPurge, q, &done)
	if err == nil && done.Journal != o.Journal {
		return 0, failure{salt.WithHint(errOwnJournal, "upgrade it; after an upgrade, restart it"), ErrUsage}
	}
	return done.Count, known(err)
}

// ForgetPosition deletes the position of a durable listener: of this user or, for operators, of
// the named user.
func (c *Conn) ForgetPosition(ctx context.Context, durable, user string) error {
	return known(c.rpc.Ask(ctx, protocol.OpPurge, protocol.Purge{Durable: durable, User: user}, nil))
}

// Stat is the state of the bus. Its JSON is what 'salt-event stat --format json' prints.
type Stat struct {
	Journal   JournalStat    `json:"journal"`
	Fired     uint64         `json:"fired"`     // events fired by programs since the daemon started
	Sent      uint64         `json:"sent"`      // events sent to listeners
	Started   time.Time      `json:"started"`   // when the daemon started
	MaxEvent  int64          `json:"max_event"` // the largest data of an event, in bytes
	Listeners []ListenerStat `json:"listeners"`
	Positions []PositionStat `json:"positions"`
	Dead      int            `json:"dead"` // number of dead letters
	Mirrors   []MirrorStat   `json:"mirrors,omitempty"`
	Name      string         `json:"name,omitempty"`    // of the own journal, in a cluster
	Handler   string         `json:"handler,omitempty"` // the member of the cluster that handles its events
	// HandlerUnknown tells that it is not known at present whether a member handles them, as during an election.
	HandlerUnknown bool `json:"handler_unknown,omitempty"`
}

// JournalStat describes the journal.
type JournalStat struct {
	First, Last    uint64 // sequence numbers of the oldest and the newest event; First is Last+1 in an empty journal
	Count, Bytes   uint64 // messages and their bytes: a long event takes several messages
	Dropped        uint64 // messages removed because of size since the daemon started
	Oldest, Newest time.Time
	Limit          int64         // bytes; 0 means no limit
	MaxAge         time.Duration // 0 means no limit
	Readers        int           // present readers
}

// MarshalJSON implements json.Marshaler. MaxAge is written in seconds.
func (j JournalStat) MarshalJSON() ([]byte, error) {
	return json.Marshal(event.Extent{
		First: j.First, Last: j.Last, Count: j.Count, Bytes: j.Bytes, Dropped: j.Dropped, Oldest: j.Oldest, Newest: j.Newest,
		Limit: j.Limit, MaxAge: j.MaxAge.Seconds(), Readers: j.Readers,
	})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (j *JournalStat) UnmarshalJSON(b []byte) error {
	var e event.Extent
	if err := json.Unmarshal(b, &e); err != nil {
		return err
	}
	*j = JournalStat{
		First: e.First, Last: e.Last, Count: e.Count, Bytes: e.Bytes, Dropped: e.Dropped, Oldest: e.Oldest, Newest: e.Newest,
		Limit: e.Limit, MaxAge: time.Duration(e.MaxAge * float64(time.Second)), Readers: e.Readers,
	}
	return nil
}

// ListenerStat is one listener.
type ListenerStat struct {
	User    string    `json:"user"`
	Durable string    `json:"durable,omitempty"`
	Tags    []string  `json:"tags,omitempty"`
	Next    uint64    `json:"next"`   // the sequence number that it looks at next
	Behind  uint64    `json:"behind"` // how many events it is behind
	Sent    uint64    `json:"sent"`
	Started time.Time `json:"started"`
}

// PositionStat is one stored position.
type PositionStat struct {
	User   string    `json:"user"`
	UID    int       `json:"uid"` // -1 for a client
	Name   string    `json:"name"`
	Seq    uint64    `json:"seq"` // everything up to this sequence number is handled
	Behind uint64    `json:"behind"`
	Held   bool      `json:"held"` // a listener uses it now
	Time   time.Time `json:"time"` // of the last confirmation
	// Journal is that of a handler of the reactor in a cluster, which has a position in each.
	Journal string `json:"journal,omitempty"`
	// At is the position of a listener in each journal of a cluster; Behind is the sum.
	At map[string]uint64 `json:"at,omitempty"`
}

// MirrorStat is the mirror of another master's journal, or the journal of another member of a
// cluster.
type MirrorStat struct {
	Master string `json:"master"` // the name of the journal
	Linked bool   `json:"linked"` // the other master is connected
	Last   uint64 `json:"last"`   // the newest event in the mirror
	Lag    uint64 `json:"lag"`    // messages that are not mirrored yet, as far as known
	Bytes  uint64 `json:"bytes"`
	Unread bool   `json:"unread,omitempty"` // Last, Lag and Bytes are not known at present, as during an election
	// Handler is the member of the cluster that handles its events; "" if none does or HandlerUnknown.
	Handler        string `json:"handler,omitempty"`
	HandlerUnknown bool   `json:"handler_unknown,omitempty"` // as in Stat
}

// Stat returns the state of the bus. Only operators may use it.
func (c *Conn) Stat(ctx context.Context) (s Stat, err error) {
	err = c.rpc.Ask(ctx, protocol.OpStat, nil, &s)
	return s, known(err)
}
