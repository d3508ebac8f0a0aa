// Package monitor is the monitoring of the daemons: metrics, health and, at SIGUSR1, the stacks of
// all goroutines. It converts the daemons' counters to metrics, and counts nothing itself.
package monitor

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/eventbus"
	"github.com/brinebus/brine/internal/metrics"
	"github.com/brinebus/brine/internal/protocol"
)

// Check checks the settings of metrics.
func Check(cfg *config.Common) error {
	if cfg.MetricsListen == "" {
		return nil
	}
	if _, err := metrics.ParseAddress(cfg.MetricsListen, cfg.MetricsPublic); err != nil {
		return fmt.Errorf("metrics_listen: %w", err)
	}
	return nil
}

// Listener serves metrics; nil for none.
type Listener struct {
	net.Listener
	address string // as configured
	public  bool
}

// Open opens the configured address, if any. It is called before the daemon starts, so that an
// address in use is reported before anything is changed.
func Open(cfg *config.Common) (*Listener, error) {
	if cfg.MetricsListen == "" {
		return nil, nil
	}
	a, err := metrics.ParseAddress(cfg.MetricsListen, cfg.MetricsPublic)
	if err != nil {
		return nil, err
	}
	l, err := a.Listen()
	if err != nil {
		return nil, fmt.Errorf("metrics_listen: %w", err)
	}
	return &Listener{l, cfg.MetricsListen, cfg.MetricsPublic}, nil
}

// Close closes the address, if the daemon did not start.
func (d *Listener) Close() {
	if d != nil {
		_ = d.Listener.Close() // it had no clients
	}
}

// Serve serves the metrics of a daemon until stop, which waits until everything has ended and may be called again. from
// may be a Start, so that a daemon is served from the beginning of its start on.
func (d *Listener) Serve(ctx context.Context, from metrics.Source, latency metrics.Latency, log *slog.Logger) (stop func()) {
	if d == nil {
		return func() {}
	}
	if d.public {
		log.Warn("metrics_public is on: whoever reaches this address can read the metrics", "address", d.address)
	}
	log.Info("metrics are served", "address", d.address)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { metrics.Serve(ctx, d.Listener, from, latency, log) })
	return func() { cancel(); wg.Wait() }
}

// maxListeners is how many durable listeners are shown, those with the largest backlog: users
// choose their names.
const maxListeners = 50

// Common returns the samples of both daemons.
func Common(daemon, version string, br broker.Figures, b eventbus.Figures) []metrics.Sample {
	list := []metrics.Sample{
		metrics.BuildInfo.Is(1, daemon, version), metrics.SlowConsumers.Is(float64(br.SlowConsumers)), metrics.StoreFailed.Is(Truth(br.Failed)),
		metrics.Listeners.Is(float64(len(b.Positions))),
	}
	for role, n := range br.Connections {
		list = append(list, metrics.Connections.Is(float64(n), string(role)))
	}
	for origin, n := range b.Taken {
		list = append(list, metrics.Events.Is(float64(n), origin))
	}
	if j := b.Journal; j.First > 0 { // otherwise it could not be queried
		list = append(list, metrics.JournalBytes.Is(float64(j.Bytes)), metrics.JournalMessages.Is(float64(j.Count)),
			metrics.JournalLimit.Is(float64(j.Limit)), metrics.JournalDropped.Is(float64(j.Dropped)))
	}
	for _, m := range b.Mirrors {
		list = append(list, metrics.JournalMirrorLink.Is(Truth(m.Linked), m.Master))
		if !m.Unread {
			list = append(list, metrics.JournalMirrorLag.Is(float64(m.Lag), m.Master))
		}
	}
	return append(list, lags(b.Positions)...)
}

func lags(all []protocol.PositionStat) (list []metrics.Sample) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b protocol.PositionStat) int { return cmp.Compare(b.Behind, a.Behind) })
	for _, p := range all[:min(len(all), maxListeners)] {
		list = append(list, metrics.ListenerLag.Is(float64(p.Behind), p.User, p.Name))
	}
	return list
}

// Truth is a condition as the value of a metric.
func Truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
