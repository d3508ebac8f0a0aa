package journal

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestWhatIsNotAnsweredIsAskedAgain: what was asked while the store was opened anew does
// not wait for all the time that its caller has.
func TestWhatIsNotAnsweredIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		lost := func(times int, then error) (int, time.Duration, error) {
			begun, n := time.Now(), 0
			err := insist(ctx, func(ctx context.Context) error {
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
		refused := errors.New("refused")
		if n, _, err := lost(0, refused); n != 1 || !errors.Is(err, refused) {
			t.Errorf("refused: asked %d times, %v", n, err)
		}
		if n, took, err := lost(100, nil); n != askTimes || took != askTimes*askTime || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("never answered: asked %d times, %s, %v", n, took, err)
		}
		cancel()
		if n, _, err := lost(100, nil); n != 1 || !errors.Is(err, context.Canceled) {
			t.Errorf("ended: asked %d times, %v", n, err)
		}
	})
}
