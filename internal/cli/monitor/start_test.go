package monitor

import (
	"context"
	"errors"
	"testing"

	"github.com/brinebus/brine/internal/metrics"
)

// sick is a daemon that is there, and is neither well nor ready.
type sick struct{}

func (sick) Samples(context.Context) []metrics.Sample {
	return []metrics.Sample{metrics.MinionsConnected.Is(3)}
}
func (sick) Healthy(context.Context) error { return errors.New("the disk is full") }
func (sick) Ready() error                  { return errors.New("no master") }

// TestStart: a daemon that starts is healthy and not ready, and has no figures but which one it is. It says what it waits
// for, and may be ready: then it waits to take over from another one. Once it is there, it is asked itself.
func TestStart(t *testing.T) {
	s := NewStart("master", "1.2")
	expect := func(ready, healthy, metric string) {
		t.Helper()
		for _, c := range []struct {
			err  error
			want string
		}{{s.Ready(), ready}, {s.Healthy(t.Context()), healthy}} {
			if c.err == nil && c.want != "" || c.err != nil && c.err.Error() != c.want {
				t.Errorf("it says %v, want %q", c.err, c.want)
			}
		}
		if list := s.Samples(t.Context()); len(list) != 1 || list[0].Metric.Name != metric {
			t.Errorf("it has the figures %v, want %s", list, metric)
		}
	}
	expect("the master is starting", "", "salt_build_info")
	s.Waits(func() error { return errors.New("the servers are away") })
	expect("the servers are away", "", "salt_build_info")
	s.Waits(func() error { return nil })
	expect("", "", "salt_build_info")
	s.End(sick{})
	expect("no master", "the disk is full", "salt_minions_connected")
}
