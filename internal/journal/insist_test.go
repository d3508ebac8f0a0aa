package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// late records which questions were reported as unanswered.
type late struct {
	sound
	waited   []time.Duration
	minority error
	member   bool
}

func (l *late) Clustered() bool { return l.member }

func (l *late) Err() error { return l.minority }

func (l *late) Late(_ string, waited time.Duration) { l.waited = append(l.waited, waited) }

// TestWhatIsNotAnsweredIsAskedAgain: a question that got no answer because the store was being
// opened does not use up all of its caller's time. A slow answer arrives within one of the
// longer attempts, and each attempt without an answer is reported.
func TestWhatIsNotAnsweredIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancelCause(t.Context())
		defer stop(nil)
		reported := &late{}
		lost := func(times int, then error) (int, time.Duration, error) {
			begun, n := time.Now(), 0
			err := insist(ctx, reported, "it", func(ctx context.Context) error {
				if n++; n > times {
					return then
				}
				<-ctx.Done()
				return ctx.Err()
			})
			return n, time.Since(begun), err
		}
		if n, took, err := lost(1, nil); n != 2 || took != askTime || err != nil {
			t.Errorf("one answer lost: asked %d times, %s, %v", n, took, err)
		}
		if !slices.Equal(reported.waited, []time.Duration{askTime}) {
			t.Errorf("told after %v", reported.waited)
		}
		refused := errors.New("refused")
		if n, _, err := lost(0, refused); n != 1 || !errors.Is(err, refused) {
			t.Errorf("refused: asked %d times, %v", n, err)
		}
		slow := func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil }
		if err := insist(ctx, reported, "it", slow); err != nil || len(reported.waited) != 1 {
			t.Errorf("slow: %v, told %v", err, reported.waited)
		}
		late := func(err error) bool { return errors.Is(err, ErrLate) && errors.Is(err, context.DeadlineExceeded) }
		if n, took, err := lost(100, nil); n != 3 || took != 14*time.Second || !late(err) { // 2, 4, 8
			t.Errorf("never answered: asked %d times, %s, %v", n, took, err)
		}
		ctx = Starting(ctx)
		if n, took, err := lost(100, nil); n != 6 || took != 126*time.Second || !late(err) { // 2, 4, 8, 16, 32, 64
			t.Errorf("never answered at a start: asked %d times, %s, %v", n, took, err)
		}
		if longest(ctx) != 126*time.Second {
			t.Errorf("a start waits for %s", longest(ctx))
		}
		reported.member = true
		if n, took, err := lost(100, nil); n != 27 || took != 126*time.Second || !late(err) {
			t.Errorf("never answered at the start of a member: asked %d times, %s, %v", n, took, err)
		}
		begun, asked := time.Now(), []time.Duration(nil)
		_ = insist(t.Context(), reported, "it", func(ctx context.Context) error {
			asked = append(asked, time.Since(begun))
			<-ctx.Done()
			return ctx.Err()
		})
		if !slices.Equal(asked, []time.Duration{0, 2 * time.Second, 6 * time.Second, 8 * time.Second, 12 * time.Second}) || time.Since(begun) != 14*time.Second {
			t.Errorf("never answered to a member: asked after %v", asked)
		}
		reported.member = false
		elected := 0
		led := func(context.Context) error {
			switch elected++; {
			case elected < 25:
				return errNoLeader
			case elected < 50: // what a publisher is told
				return fmt.Errorf("%w", jetstream.ErrNoStreamResponse)
			}
			return nil
		}
		if err := insist(ctx, reported, "it", led); err != nil || elected != 50 {
			t.Errorf("a stream without a leader at a start: asked %d times, %v", elected, err)
		}
		elected = 0
		if err := insist(t.Context(), reported, "it", led); err != nil || elected != 50 {
			t.Errorf("a stream without a leader later: asked %d times, %v", elected, err)
		}
		elected, reported.member = -1000, true
		if err := insist(t.Context(), reported, "it", led); !late(err) || !errors.Is(err, errElection) {
			t.Errorf("a stream without a leader for too long: %v", err)
		}
		reported.member = false
		elected, reported.minority = 0, errors.New("most members are not reached")
		if err := insist(t.Context(), reported, "it", led); !errors.Is(err, reported.minority) || elected != 1 {
			t.Errorf("a stream without a leader, and most members are away: asked %d times, %v", elected, err)
		}
		elected = 0
		if err := insist(ctx, reported, "it", led); err != nil || elected != 50 {
			t.Errorf("the same at a start: asked %d times, %v", elected, err)
		}
		looked := 0
		placed := func(context.Context) error {
			if looked++; looked < 5 {
				return &jetstream.APIError{Code: 400, ErrorCode: noPeers}
			}
			return nil
		}
		if err := insist(ctx, reported, "it", placed); err != nil || looked != 5 {
			t.Errorf("a stream without a place at a start: asked %d times, %v", looked, err)
		}
		looked, reported.minority = 0, nil
		if err := insist(t.Context(), reported, "it", placed); err == nil || looked != 1 {
			t.Errorf("a stream without a place later: asked %d times, %v", looked, err)
		}
		ended := errors.New("a signal")
		stop(ended)
		if n, _, err := lost(100, nil); n != 1 || !errors.Is(err, ended) {
			t.Errorf("ended: asked %d times, %v", n, err)
		}
	})
}

// TestAMomentWithoutTheStorePasses: whoever is told that something was not stored, when the store can be written again, may try again.
func TestAMomentWithoutTheStorePasses(t *testing.T) {
	if err := (&writer{store: sound{}}).broken(); !errors.Is(err, ErrStore) || !Unanswered(err) {
		t.Errorf("%v does not pass", err)
	}
}
