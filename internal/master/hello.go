package master

import (
	"context"
	"fmt"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// gone is told by the broker of every connection that ended.
func (m *Master) gone(i bus.Identity) {
	m.server.Gone(i.Inbox())
	m.authz.Logins.Ended(i.Inbox())
	if i.Role != bus.RoleMinion {
		return
	}
	id := salt.MinionID(i.Name)
	if m.fleet.Leave(id, i.Inbox(), time.Now()) {
		m.log.Info("minion disconnected", "minion", id)
		m.dispatch.Lost(id)
	}
}

// hello makes a minion a target: it has subscribed to its jobs.
func (m *Master) hello(ctx context.Context, r *rpc.Request) error {
	if err := m.fleet.CheckGrains(r); err != nil {
		return err
	}
	var q protocol.Hello
	if err := r.Decode(&q); err != nil {
		return err
	}
	i, ok := m.broker.Owner(r.Inbox())
	if !ok || i.Role != bus.RoleMinion {
		return rpc.Errorf(rpc.Denied, "only the daemon of a minion takes jobs")
	}
	id := salt.MinionID(i.Name)
	if err := m.fleet.StoreGrains(ctx, id, q.Grains.V); err != nil {
		return fmt.Errorf("store the facts of %s: %w", id, err)
	}
	m.admission.CutOlder(id, r.Inbox())
	m.fleet.Join(id, r.Inbox())
	if _, alive := m.broker.Owner(r.Inbox()); !alive {
		m.gone(i) // it went while it was let in
	}
	if n, tell := m.often.Count("hello "+string(id), time.Now(), maxHellos); tell {
		m.log.Info("minion connected", "minion", id, "version", logging.Shorten(q.Version), "repeated", n)
	}
	defer m.dispatch.Back(id, i.Key) // behind the welcome: it tells the time by which jobs are judged
	return r.Send(ctx, protocol.Welcome{Time: m.dispatch.Now(), Version: m.version, Jobs: m.dispatch.Awaited(id)})
}

// maxHellos is how often in a minute it is told that a minion has connected.
const maxHellos = 3
