package monitor

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/brinebus/brine/internal/metrics"
)

// Start is a daemon from the beginning of its start on, as the source of metrics. A start may take minutes, or wait without
// a limit: until it ends, the process is healthy, not ready, and has no figures.
type Start struct {
	daemon, version string

	ready atomic.Pointer[func() error]
	ended atomic.Pointer[metrics.Source]
}

// NewStart returns the start of a daemon.
func NewStart(daemon, version string) *Start { return &Start{daemon: daemon, version: version} }

// Waits sets what Ready returns until the end of the start.
func (s *Start) Waits(ready func() error) { s.ready.Store(&ready) }

// End makes from the source: the daemon is there.
func (s *Start) End(from metrics.Source) { s.ended.Store(&from) }

// Samples implements metrics.Source.
func (s *Start) Samples(ctx context.Context) []metrics.Sample {
	if from := s.ended.Load(); from != nil {
		return (*from).Samples(ctx)
	}
	return []metrics.Sample{metrics.BuildInfo.Is(1, s.daemon, s.version)}
}

// Healthy implements metrics.Source.
func (s *Start) Healthy(ctx context.Context) error {
	if from := s.ended.Load(); from != nil {
		return (*from).Healthy(ctx)
	}
	return nil
}

// Ready implements metrics.Source.
func (s *Start) Ready() error {
	if from := s.ended.Load(); from != nil {
		return (*from).Ready()
	}
	if ready := s.ready.Load(); ready != nil {
		return (*ready)()
	}
	return fmt.Errorf("the %s is starting", s.daemon)
}
