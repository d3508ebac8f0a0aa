package dispatch

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/brinebus/brine/internal/job"
)

// Output of a command that is quicker than the answer to the caller waits for the start of the
// job, which must be the caller's first message. It does not wait for a caller that is gone,
// nor longer than the minion does.
func TestOutputComesAfterTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := make(chan struct{})
		sent := 0
		send := func(context.Context, job.Update) error { sent++; return nil }
		answers := make(chan error)
		output := func(caller, minion context.Context) {
			go func() { answers <- after(started, caller, send)(minion, job.Update{}) }()
			synctest.Wait()
		}
		gone, leave := context.WithCancel(t.Context())
		output(t.Context(), t.Context())
		output(gone, t.Context())
		output(t.Context(), gone)
		if sent != 0 {
			t.Fatalf("%d outputs are sent before the start", sent)
		}
		leave()
		for range 2 {
			if err := <-answers; err == nil {
				t.Error("output for a caller who has gone is sent")
			}
		}
		close(started)
		if err := <-answers; err != nil || sent != 1 {
			t.Errorf("after the start: %v, %d sent", err, sent)
		}
	})
}
