package saltminion

import (
	"context"

	"github.com/brinebus/brine/internal/cli/monitor"
	"github.com/brinebus/brine/internal/metrics"
	"github.com/brinebus/brine/internal/minion"
	"github.com/brinebus/brine/internal/version"
)

// watched is a minion as the source of metrics.
type watched struct{ *minion.Monitor }

// Samples implements metrics.Source.
func (w watched) Samples(ctx context.Context) []metrics.Sample {
	f := w.Figures(ctx)
	list := append(monitor.Common("minion", version.Version(), f.Broker, f.Bus),
		metrics.Jobs.Is(float64(f.Jobs), "running"), metrics.Reconnects.Is(float64(f.Reconnects)))
	for _, m := range f.Masters {
		connected := 0.0
		if m.Connected {
			connected = 1
		}
		list = append(list, metrics.MasterConnected.Is(connected, m.Name), metrics.OutboxMessages.Is(float64(m.Outbox), m.Name))
	}
	return list
}
