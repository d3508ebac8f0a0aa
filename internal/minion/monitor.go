package minion

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/eventbus"
)

// Monitor looks at a minion, for whoever watches over it. What asks the minion itself is for one
// goroutine at a time.
type Monitor struct {
	m *Minion
	*eventbus.Self
}

// NewMonitor returns what looks at m, which has not ended. Close ends it.
func NewMonitor(m *Minion) *Monitor {
	return &Monitor{m, m.events.Self(filepath.Join(m.cfg.SockDir, SocketName), m.broker.Store())}
}

// Figures are counts of a moment.
type Figures struct {
	Broker     broker.Figures
	Bus        eventbus.Figures
	Jobs       int // that run
	Masters    []MasterFigures
	Reconnects uint64
}

// MasterFigures are those of one master that the minion has a connection to, or tries to.
type MasterFigures struct {
	Name      string
	Connected bool
	Outbox    uint64 // messages that wait for it
}

// Figures counts.
func (w *Monitor) Figures(ctx context.Context) Figures {
	f := Figures{Broker: w.m.broker.Figures(), Bus: w.m.events.Figures(ctx), Jobs: w.m.executor.Jobs().Count()}
	for i, u := range w.m.masters.All() {
		f.Masters = append(f.Masters, MasterFigures{u.Name(), u.Session() != nil, w.m.boxes[i].Waiting()})
		f.Reconnects += u.Reconnects()
	}
	return f
}

// Ready says what the minion waits for where none of its masters is connected.
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
