package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/protocol"
)

// End returns the sequence number of the newest event, and where other masters' journals are
// mirrored the positions in all of them, for ListenOptions.At: who listens from behind it misses
// nothing that is fired from now on.
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

// DeadLetter is an event that a handler failed on until its retries were used up.
type DeadLetter struct {
	Name     string          `json:"name"` // of the handler
	Seq      uint64          `json:"seq"`  // of the event
	Tag      string          `json:"tag"`
	From     string          `json:"from,omitempty"`
	Event    json.RawMessage `json:"event,omitempty"` // the whole event; nil where it is too large to be kept twice
	Command  []string        `json:"command"`         // the handler's
	Attempts int             `json:"attempts"`
	Reason   string          `json:"reason"`           // how the last attempt ended
	Stderr   string          `json:"stderr,omitempty"` // the end of what it printed
	Time     time.Time       `json:"time"`
}

// KeepDeadLetter keeps a dead letter for this user. One with the name and the sequence number of
// another takes its place.
func (c *Conn) KeepDeadLetter(ctx context.Context, l DeadLetter) error {
	letter := protocol.DeadLetter(l)
	return known(c.rpc.Ask(ctx, protocol.OpDead, protocol.Dead{Do: protocol.DeadPut, Letter: &letter}, nil))
}

// DeadLetters returns those of this user: of a handler, or of all for ""; with one sequence number,
// or all for 0.
func (c *Conn) DeadLetters(ctx context.Context, name string, seq uint64) ([]DeadLetter, error) {
	return c.deadLetters(ctx, protocol.Dead{Do: protocol.DeadList, Name: name, Seq: seq})
}

// DropDeadLetters forgets dead letters of this user, and returns them.
func (c *Conn) DropDeadLetters(ctx context.Context, name string, seq uint64) ([]DeadLetter, error) {
	return c.deadLetters(ctx, protocol.Dead{Do: protocol.DeadDrop, Name: name, Seq: seq})
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

// PurgeOptions say which events are to go: those of which all that is set holds. The zero value is
// all events.
type PurgeOptions struct {
	Before uint64    // with a smaller sequence number
	Until  time.Time // older
	Tags   []string  // prefixes, or what Match makes of them
	Match  string    // as in ListenOptions
}

// Purge removes events from the journal, and returns how many. It is for operators.
func (c *Conn) Purge(ctx context.Context, o PurgeOptions) (count uint64, err error) {
	var done protocol.Purged
	err = c.rpc.Ask(ctx, protocol.OpPurge, protocol.Purge{Before: o.Before, Until: o.Until, Tags: o.Tags, Match: event.MatchType(o.Match)}, &done)
	return done.Count, known(err)
}

// ForgetPosition forgets the position of a durable listener: one's own, or, for operators, that of
// a user.
func (c *Conn) ForgetPosition(ctx context.Context, durable, user string) error {
	return known(c.rpc.Ask(ctx, protocol.OpPurge, protocol.Purge{Durable: durable, User: user}, nil))
}

// Stat is the state of the bus. As JSON it is what 'salt-event stat --format json' prints.
type Stat struct {
	Journal   JournalStat    `json:"journal"`
	Fired     uint64         `json:"fired"`     // events by programs since the daemon started
	Sent      uint64         `json:"sent"`      // to listeners
	Started   time.Time      `json:"started"`   // the daemon
	MaxEvent  int64          `json:"max_event"` // bytes of the data of an event
	Listeners []ListenerStat `json:"listeners"`
	Positions []PositionStat `json:"positions"`
	Dead      int            `json:"dead"` // dead letters
	Mirrors   []MirrorStat   `json:"mirrors,omitempty"`
}

// JournalStat is what the journal holds.
type JournalStat struct {
	First, Last    uint64 // sequence numbers of the oldest and of the newest event; First is Last+1 in an empty one
	Count, Bytes   uint64 // messages: a long event takes several
	Dropped        uint64 // messages that went by size since the daemon began
	Oldest, Newest time.Time
	Limit          int64         // bytes; 0 is none
	MaxAge         time.Duration // 0 is none
	Readers        int           // how many read in it at this moment
}

// MarshalJSON implements json.Marshaler. MaxAge is in seconds.
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
	Next    uint64    `json:"next"`   // the sequence number that it comes to next
	Behind  uint64    `json:"behind"` // events
	Sent    uint64    `json:"sent"`
	Started time.Time `json:"started"`
}

// PositionStat is one position that is kept.
type PositionStat struct {
	User   string    `json:"user"`
	UID    int       `json:"uid"` // -1 for a client
	Name   string    `json:"name"`
	Seq    uint64    `json:"seq"` // everything up to here is done
	Behind uint64    `json:"behind"`
	Held   bool      `json:"held"` // a listener works on it
	Time   time.Time `json:"time"` // of the last confirmation
}

// MirrorStat is the mirror of another master's journal.
type MirrorStat struct {
	Master string `json:"master"` // the name of the journal
	Linked bool   `json:"linked"` // the other master is there
	Last   uint64 `json:"last"`   // the newest event that is here
	Lag    uint64 `json:"lag"`    // messages that are not here yet, as far as is known
	Bytes  uint64 `json:"bytes"`
}

// Stat describes the bus. It is for operators.
func (c *Conn) Stat(ctx context.Context) (s Stat, err error) {
	err = c.rpc.Ask(ctx, protocol.OpStat, nil, &s)
	return s, known(err)
}
