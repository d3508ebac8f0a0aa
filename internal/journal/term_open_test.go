package journal

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestATermIsBegunUntilItIs: a start whose attempt to begin a term has no answer tries it again,
// whatever part of it has happened.
func TestATermIsBegunUntilItIs(t *testing.T) {
	for name, partly := range map[string]string{"nothing has happened": "", "the settings are stored, and the mark is not": "root.open-1."} {
		t.Run(name, func(t *testing.T) {
			tries := 0
			f := &fence{
				prefix: "root.ended-1.",
				begin: func(context.Context) (string, uint64, error) {
					if tries++; tries == 1 {
						return partly, 0, context.DeadlineExceeded
					}
					return "root.open-2.", 12, nil
				},
				read: func(context.Context, uint64) (*jetstream.RawStreamMsg, error) { return nil, jetstream.ErrMsgNotFound },
			}
			last, err := f.open(t.Context(), sound{}, 11)
			if err != nil || last != 12 || f.prefix != "root.open-2." || tries != 2 {
				t.Errorf("after %d tries the term is %q and ends with %d: %v", tries, f.prefix, last, err)
			}
		})
	}
}

// TestAStartMakesSureOfTheEnd: the server that tells a start where the journal ends may have led before, and lack
// what was stored last. The end is where a mark is stored, also if the term was another one than it said. A new
// journal needs none.
func TestAStartMakesSureOfTheEnd(t *testing.T) {
	const now = "root.open-2."
	for name, c := range map[string]struct {
		prefix     string
		told, want uint64
	}{"of this term": {now, 11, 15}, "of an earlier term": {"root.open-1.", 11, 15}, "of a new journal": {now, 0, 0}} {
		t.Run(name, func(t *testing.T) {
			ending := true
			f := &fence{
				prefix: c.prefix,
				mark: func(_ context.Context, prefix string) (uint64, error) {
					switch {
					case prefix != now:
						return 0, nats.ErrNoResponders
					case ending: // a leader that is just stopping
						ending = false
						return 0, &jetstream.APIError{ErrorCode: notStored}
					}
					return 15, nil
				},
				last: func(context.Context) (uint64, string, error) { return 14, now, nil },
				read: func(context.Context, uint64) (*jetstream.RawStreamMsg, error) {
					return &jetstream.RawStreamMsg{}, nil
				},
			}
			if last, err := f.open(t.Context(), sound{}, c.told); err != nil || last != c.want || f.prefix != now {
				t.Errorf("it ends with %d in the term %q, %v", last, f.prefix, err)
			}
		})
	}
}
