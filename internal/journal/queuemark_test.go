package journal

import (
	"context"
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
