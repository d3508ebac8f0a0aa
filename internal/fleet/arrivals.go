package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// Connections are those that were let in.
type Connections interface {
	Owner(inbox string) (bus.Identity, bool)
}

// Jobs are those of the master.
type Jobs interface {
	// Awaited are those that a minion was sent and of which something is expected.
	Awaited(id salt.MinionID) []salt.JID
	// Back tells all that a minion is there, with this key; Lost that it has gone.
	Back(id salt.MinionID, key string)
	Lost(id salt.MinionID)
}

// Arrivals makes targets of minions that say hello, until they go.
type Arrivals struct {
	Fleet       *Fleet
	Connections Connections
	CutOlder    func(id salt.MinionID, inbox string) // cuts all connections of a minion but one
	Jobs        Jobs
	Now         func() time.Time // by which the expiry of jobs is judged
	Version     string           // of this program
	Log         *slog.Logger

	often logging.Throttle
}

// maxLines is how often in a minute a minion can have the same thing told of it: that it has
// connected, or gone, say.
const maxLines = 3

// Hello makes a minion a target: it has subscribed to its jobs.
func (a *Arrivals) Hello(ctx context.Context, r *rpc.Request) error {
	if err := a.Fleet.CheckGrains(r); err != nil {
		return err
	}
	var q protocol.Hello
	if err := r.Decode(&q); err != nil {
		return err
	}
	i, ok := a.Connections.Owner(r.Inbox())
	if !ok || i.Role != bus.RoleMinion {
		return rpc.Errorf(rpc.Denied, "only the daemon of a minion takes jobs")
	}
	id := salt.MinionID(i.Name)
	if err := a.Fleet.StoreGrains(ctx, id, q.Grains.V); err != nil {
		return fmt.Errorf("store the facts of %s: %w", id, err)
	}
	a.CutOlder(id, r.Inbox())
	a.Fleet.Join(id, r.Inbox())
	if _, alive := a.Connections.Owner(r.Inbox()); !alive {
		a.Gone(i) // it went while it was let in
	}
	a.often.Log(a.Log, slog.LevelInfo, "hello "+string(id), maxLines, "minion connected", "minion", id, "version", logging.Shorten(q.Version))
	defer a.Jobs.Back(id, i.Key) // behind the welcome: it tells the time by which jobs are judged
	return r.Send(ctx, protocol.Welcome{Time: a.Now(), Version: a.Version, Jobs: a.Jobs.Awaited(id)})
}

// Gone takes note of a connection that has ended.
func (a *Arrivals) Gone(i bus.Identity) {
	if i.Role != bus.RoleMinion {
		return
	}
	id := salt.MinionID(i.Name)
	if a.Fleet.Leave(id, i.Inbox(), time.Now()) {
		a.often.Log(a.Log, slog.LevelInfo, "gone "+string(id), maxLines, "minion disconnected", "minion", id)
		a.Jobs.Lost(id)
	}
}
