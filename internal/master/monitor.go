package master

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/eventbus"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/membership"
)

// Monitor provides the metrics and the state of a master. Methods that ask the master itself
// are for one goroutine at a time.
type Monitor struct {
	m *Master
	*eventbus.Self
}

// NewMonitor returns a Monitor for m, which has not ended. Close ends it.
func NewMonitor(m *Master) *Monitor {
	return &Monitor{m, m.events.Self(filepath.Join(m.cfg.SockDir, SocketName), m.storage())}
}

// Figures are the metrics of a moment.
type Figures struct {
	Broker           broker.Figures
	Bus              eventbus.Figures
	Keys             keyring.Count
	Connected        int // minions that have registered
	Jobs, Waiting    int // unfinished jobs, and those of them that may wait for minions that are away
	Allowed, Refused uint64
	Members          map[string]membership.Comparison // the other members of a cluster that answer
	Cluster          *membership.Counts               // nil for a single master
}

// Figures returns the metrics.
func (w *Monitor) Figures(ctx context.Context) Figures {
	f := Figures{Broker: w.m.connections().figures(), Bus: w.m.events.Figures(ctx), Keys: w.m.keys.Count(), Connected: w.m.services.Fleet.Presence.Count(), Members: w.m.member.Compared(), Cluster: membership.CountsOf(w.m.member)}
	f.Jobs, f.Waiting = w.m.services.Jobs.UnderWay()
	f.Allowed, f.Refused = w.m.auditLog.Decisions()
	return f
}

var errStarting = errors.New("the master is starting")

// Ready returns an error while the master does not serve yet, and while minions cannot reach it
// since it is not connected to the NATS servers.
func (w *Monitor) Ready() error {
	select {
	case <-w.m.serving:
	default:
		return errStarting
	}
	if w.m.external != nil {
		return broker.Unreached(w.m.external.External)
	}
	return nil
}
