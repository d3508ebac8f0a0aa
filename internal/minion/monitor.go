package minion

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/eventbus"
)

// Monitor provides the metrics and the state of a minion. Methods that ask the minion itself
// are for one goroutine at a time.
type Monitor struct {
	m *Minion
	*eventbus.Self
}

// NewMonitor returns a Monitor for m, which has not ended. Close ends it.
func NewMonitor(m *Minion) *Monitor {
	return &Monitor{m, m.events.Self(filepath.Join(m.cfg.SockDir, SocketName), m.broker.Store())}
}

// Figures are the metrics of a moment.
type Figures struct {
	Broker     broker.Figures
	Bus        eventbus.Figures
	Jobs       int // running
	Masters    []MasterFigures
	Reconnects uint64
}

// MasterFigures are those of one master that the minion is connected to, or tries to be.
type MasterFigures struct {
	Name      string
	Connected bool
	Outbox    uint64 // messages waiting for it
}

// Figures returns the metrics.
func (w *Monitor) Figures(ctx context.Context) Figures {
	f := Figures{Broker: w.m.broker.Figures(), Bus: w.m.events.Figures(ctx), Jobs: w.m.executor.Jobs().Count()}
	for i, u := range w.m.masters.All() {
		f.Masters = append(f.Masters, MasterFigures{u.Name(), u.Session() != nil, w.m.boxes.At(i).Waiting()})
		f.Reconnects += u.Reconnects()
	}
	return f
}

// Ready returns an error while none of the masters is connected.
func (w *Monitor) Ready() error {
	all := w.m.masters.All()
	if len(all) == 0 || w.m.masters.Session() != nil {
		return nil
	}
	if waiting := all[0].Waiting(); waiting != "" {
		return errors.New("the minion waits for " + waiting)
	}
	return errors.New("the minion has no master yet")
}
