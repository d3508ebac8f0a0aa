package executor

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/upstream"
)

// silent is a minion whose data is not available until it is let go.
type silent struct {
	Host
	let chan struct{}
}

func (s *silent) ForJob(*job.Envelope, *upstream.Uplink) *function.Host {
	return &function.Host{Data: s}
}

func (s *silent) Grains() map[string]any { return nil }

func (s *silent) Pillar() map[string]any {
	<-s.let
	return nil
}

func (s *silent) PillarErrors() []string { return nil }

// TestAStopIsNotDelayedByTheMine: a function of the mine that does not return does not stop the daemon from
// stopping.
func TestAStopIsNotDelayedByTheMine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, _, _ := waiting(t)
		h := &silent{let: make(chan struct{})}
		x.Host = h
		m := x.NewMine(new(upstream.Uplink), MineOptions{})
		ctx, stop := context.WithCancelCause(t.Context())
		ended := make(chan struct{})
		go func() { m.update(ctx); close(ended) }()
		synctest.Wait()
		stop(ErrStopping)
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Error("it waits for the function")
		}
		close(h.let)
		<-ended
	})
}
