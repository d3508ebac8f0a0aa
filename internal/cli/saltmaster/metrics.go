package saltmaster

import (
	"context"

	"github.com/brinebus/brine/internal/cli/monitor"
	"github.com/brinebus/brine/internal/master"
	"github.com/brinebus/brine/internal/metrics"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/version"
)

// watched is a master as the source of metrics.
type watched struct{ *master.Monitor }

// keyStates are the labels of states, in Salt's words.
var keyStates = map[pki.State]string{pki.Accepted: "accepted", pki.Denied: "denied", pki.Pending: "unaccepted", pki.Rejected: "rejected"}

// Samples implements metrics.Source.
func (w watched) Samples(ctx context.Context) []metrics.Sample {
	f := w.Figures(ctx)
	list := append(monitor.Common("master", version.Version(), f.Broker, f.Bus),
		metrics.DeadDropped.Is(float64(f.Bus.DeadDropped)), metrics.MinionsConnected.Is(float64(f.Connected)),
		metrics.Jobs.Is(float64(f.Jobs-f.Waiting), "running"), metrics.Jobs.Is(float64(f.Waiting), "waiting"),
		metrics.Decisions.Is(float64(f.Allowed), "allowed"), metrics.Decisions.Is(float64(f.Refused), "refused"))
	for state, n := range f.Keys {
		list = append(list, metrics.Keys.Is(float64(n), keyStates[state]))
	}
	if c := f.Cluster; c != nil {
		list = append(list, metrics.ClusterMembers.Is(float64(c.Members)), metrics.ClusterRunning.Is(float64(c.Running)), metrics.ClusterLacking.Is(float64(c.Lacking)))
	}
	for name, c := range f.Members {
		list = append(list, metrics.ClusterRules.Is(monitor.Truth(c.RulesDiffer), name))
		if c.ClockAhead != nil {
			list = append(list, metrics.ClusterClock.Is(c.ClockAhead.Seconds(), name))
		}
	}
	return list
}
