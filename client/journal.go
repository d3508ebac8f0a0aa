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
	Name     string // of the handler
	Seq      uint64 // of the event
	Tag      string
	From     string
	Event    json.RawMessage // the whole event; nil where it is too large to be kept twice
	Command  []string        // the handler's
	Attempts int
	Reason   string // how the last attempt ended
	Stderr   string // the end of what it printed
	Time     time.Time
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

// Stat is the state of the bus.
type Stat struct {
	Journal   JournalStat
	Started   time.Time // the daemon
	Fired     uint64    // events by programs since then
	Sent      uint64    // to listeners
	MaxEvent  int64     // bytes of the data of an event
	Dead      int       // dead letters
	Listeners []ListenerStat
	Positions []PositionStat
	Mirrors   []MirrorStat
}

// JournalStat is what the journal holds.
type JournalStat struct {
	First, Last    uint64 // sequence numbers of the oldest and of the newest event; First is Last+1 in an empty one
	Count, Bytes   uint64 // messages: a long event takes several
	Dropped        uint64 // messages that went by size since the daemon began
	Oldest, Newest time.Time
	Limit          int64         // bytes; 0 is none
	MaxAge         time.Duration // 0 is none
}

// ListenerStat is one listener.
type ListenerStat struct {
	User    string
	Durable string
	Tags    []string
	Next    uint64 // the sequence number that it comes to next
	Behind  uint64 // events
	Sent    uint64
	Started time.Time
}

// PositionStat is one position that is kept.
type PositionStat struct {
	User   string
	UID    int // -1 for a client
	Name   string
	Seq    uint64 // everything up to here is done
	Behind uint64
	Held   bool      // a listener works on it
	Time   time.Time // of the last confirmation
}

// MirrorStat is the mirror of another master's journal.
type MirrorStat struct {
	Master string // the name of the journal
	Linked bool   // the other master is there
	Last   uint64 // the newest event that is here
	Lag    uint64 // messages that are not here yet, as far as is known
	Bytes  uint64
}

// Stat describes the bus. It is for operators.
func (c *Conn) Stat(ctx context.Context) (Stat, error) {
	var s protocol.Stat
	if err := c.rpc.Ask(ctx, protocol.OpStat, nil, &s); err != nil {
		return Stat{}, known(err)
	}
	j := s.Journal
	out := Stat{
		Started: s.Started, Fired: s.Fired, Sent: s.Sent, MaxEvent: s.MaxEvent, Dead: s.Dead,
		Journal: JournalStat{
			First: j.First, Last: j.Last, Count: j.Count, Bytes: j.Bytes, Dropped: j.Dropped, Oldest: j.Oldest, Newest: j.Newest,
			Limit: j.Limit, MaxAge: time.Duration(j.MaxAge * float64(time.Second)),
		},
	}
	for _, l := range s.Listeners {
		out.Listeners = append(out.Listeners, ListenerStat(l))
	}
	for _, p := range s.Positions {
		out.Positions = append(out.Positions, PositionStat(p))
	}
	for _, m := range s.Mirrors {
		out.Mirrors = append(out.Mirrors, MirrorStat(m))
	}
	return out, nil
}
