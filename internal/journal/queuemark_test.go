package journal

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestAStartMakesSureOfTheEndOfAQueue: the server that tells a start where a queue ends may have led before, and lack
// what was stored last. The end is where a mark is stored, directly behind the message that is the last one.
func TestAStartMakesSureOfTheEndOfAQueue(t *testing.T) {
	const stored, wrongLast = 5, 10071
	mark := func(newest string) *jetstream.RawStreamMsg {
		return &jetstream.RawStreamMsg{Header: nats.Header{partHeader: {markLabel}, entryHeader: {newest}}}
	}
	for name, c := range map[string]struct {
		there        *jetstream.RawStreamMsg
		told         uint64
		want, newest uint64
	}{
		"with an entry at the end": {&jetstream.RawStreamMsg{}, 3, stored + 1, stored},
		"with a mark at the end":   {mark("4"), 3, stored + 1, 4},
		"with nothing at the end":  {nil, stored, stored + 1, 0},
		"new":                      {nil, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			asked, ending := 0, true
			var newest uint64
			f := &fence{
				last: func(context.Context) (uint64, string, error) {
					if asked++; asked < 3 { // by the server that led before
						return c.told, "", nil
					}
					return stored, "", nil
				},
				read: func(context.Context, uint64) (*jetstream.RawStreamMsg, error) {
					if c.there == nil {
						return nil, jetstream.ErrMsgNotFound
					}
					return c.there, nil
				},
			}
			end, err := f.openQueue(t.Context(), sound{}, c.told, func(_ context.Context, last, before uint64) (uint64, error) {
				switch {
				case last != stored:
					return 0, &jetstream.APIError{ErrorCode: wrongLast}
				case ending: // a leader that is just stopping
					ending = false
					return 0, &jetstream.APIError{ErrorCode: notStored}
				}
				newest = before
				return last + 1, nil
			})
			if err != nil || end != c.want || newest != c.newest {
				t.Errorf("it ends with %d, want %d, and the newest entry is %d, want %d: %v", end, c.want, newest, c.newest, err)
			}
		})
	}
}

// marked is a stream with entries and a mark behind them, at the end. It is asked by way of two servers: the one that leads,
// and one that led before, which answers some questions and has only the first messages.
type marked struct {
	jetstream.Stream
	entries, mark uint64 // the sequence of the newest entry, and of the mark
	gone          uint64 // an entry that is lost
	short         uint64 // what the other server has
	older         []bool // whether it answers, by question
}

// end returns the last message of the server that answers now.
func (s *marked) end() uint64 {
	if len(s.older) == 0 {
		return s.mark
	}
	older := s.older[0]
	if s.older = s.older[1:]; older {
		return s.short
	}
	return s.mark
}

func (s *marked) Info(context.Context, ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	end := s.end()
	return &jetstream.StreamInfo{State: jetstream.StreamState{FirstSeq: 1, LastSeq: end, Msgs: end}}, nil
}

func (s *marked) GetMsg(_ context.Context, seq uint64, opts ...jetstream.GetMsgOpt) (*jetstream.RawStreamMsg, error) {
	end, from := s.end(), len(opts) > 0
	for ; seq <= end; seq++ {
		switch {
		case seq > s.entries:
			return &jetstream.RawStreamMsg{Sequence: seq, Header: nats.Header{partHeader: {markLabel}}}, nil
		case seq != s.gone:
			return &jetstream.RawStreamMsg{Sequence: seq}, nil
		case !from:
			return nil, jetstream.ErrMsgNotFound
		}
	}
	return nil, jetstream.ErrMsgNotFound
}

// TestTheEntryBeforeAMarkIsNotAnOlderOne: a server that led a queue before lacks the newest entry, and says that it is not
// there. Who believes it takes an older one for the newest.
func TestTheEntryBeforeAMarkIsNotAnOlderOne(t *testing.T) {
	const entries, mark, short = 5, 7, 3
	for name, c := range map[string]struct {
		older   []bool // whether the server that led before answers
		known   string
		gone    uint64
		want    uint64
		unknown bool
	}{
		"the leader answers":             {nil, "5", 0, 5, false},
		"and does not know it":           {nil, "0", 0, 5, false},
		"and it is lost":                 {nil, "5", 5, 4, false},
		"the other tells the extent":     {[]bool{true}, "5", 0, 0, true},
		"it tells the entry":             {[]bool{false, true}, "5", 0, 0, true},
		"it tells what is not known":     {[]bool{false, true}, "0", 0, 0, true},
		"it tells that, when it is lost": {[]bool{false, true}, "5", 5, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &marked{entries: entries, mark: mark, gone: c.gone, short: short, older: c.older}
			q := &Queue{subject: "q", stream: s, writer: &writer{fence: &fence{}}}
			q.known.Store(mark)
			m, err := q.beforeMark(t.Context(), &jetstream.RawStreamMsg{Sequence: mark, Header: nats.Header{partHeader: {markLabel}, entryHeader: {c.known}}})
			switch {
			case c.unknown:
				if !errors.Is(err, errNoLeader) {
					t.Errorf("it is %+v, %v", m, err)
				}
			case err != nil || m.Sequence != c.want:
				t.Errorf("it is %+v, %v, want %d", m, err, c.want)
			}
		})
	}
}
