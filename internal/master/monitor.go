package master

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/eventbus"
	"github.com/brinebus/brine/internal/pki"
)

// Monitor looks at a master, for whoever watches over it.
type Monitor struct {
	m    *Master
	self *eventbus.Self
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

// Healthy says what is wrong with a master that runs and does not serve. It is for one
// goroutine at a time.
func (w *Monitor) Healthy(ctx context.Context) error {
	if err := w.m.broker.Store().Err(); err != nil {
		return err
	}
	return w.self.Check(ctx)
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

// Close ends the connection by which it looks.
func (w *Monitor) Close() { w.self.Close() }
