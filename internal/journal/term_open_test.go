package journal

import (
	"context"
	"testing"

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
