package master

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/eventbus"
	"github.com/brinebus/brine/internal/pki"
)

// Monitor looks at a master, for whoever watches over it. What asks the master itself is for one
// goroutine at a time.
type Monitor struct {
	m *Master
	*eventbus.Self
}

// NewMonitor returns what looks at m, which has not ended. Close ends it.
func NewMonitor(m *Master) *Monitor {
	return &Monitor{m, m.events.Self(filepath.Join(m.cfg.SockDir, SocketName), m.broker.Store())}
}

// Figures are counts of a moment.
type Figures struct {
	Broker           broker.Figures
	Bus              eventbus.Figures
	Keys             map[pki.State]int
	Connected        int // minions that have said hello
	Jobs, Waiting    int // under way, and those of them that may wait for minions that are away
	Allowed, Refused uint64
}

// Figures counts.
func (w *Monitor) Figures(ctx context.Context) Figures {
	f := Figures{Broker: w.m.broker.Figures(), Bus: w.m.events.Figures(ctx), Keys: w.m.keys.Count(), Connected: w.m.fleet.Presence.Count()}
	f.Jobs, f.Waiting = w.m.dispatch.UnderWay()
	f.Allowed, f.Refused = w.m.auditLog.Decisions()
	return f
}

// Ready says what a master waits for that does not serve yet.
func (w *Monitor) Ready() error {
	select {
	case <-w.m.serving:
		return nil
	default:
		return errors.New("the master is starting")
	}
}
