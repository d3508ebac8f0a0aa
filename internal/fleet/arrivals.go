package fleet

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/cluster"
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
	// Awaited returns the jobs that were sent to a minion and are not finished there.
	Awaited(id salt.MinionID) []salt.JID
	// Back is called when a minion is connected, with this key; Lost when it is disconnected.
	Back(id salt.MinionID, key string)
	Lost(id salt.MinionID)
}

// Arrivals registers connected minions as targets, until they disconnect.
type Arrivals struct {
	Fleet       *Fleet
	Connections Connections
	// CutOlder cuts all connections of a minion except one.
	CutOlder func(id salt.MinionID, inbox string)
	Jobs     Jobs
	Now      func() time.Time // the time for the expiry of jobs
	Version  string           // of this program
	Cluster  *Guide           // guides them through the cluster; nil for a single master
	Log      *slog.Logger

	often logging.Throttle
}

// maxLines is how often in a minute a minion can cause the same log line or event, for example
// that it has connected or disconnected.
const maxLines = 3

// Hello registers a minion as a target: it has subscribed to its jobs.
func (a *Arrivals) Hello(ctx context.Context, r *rpc.Request) error {
	if err := a.Fleet.CheckGrains(r); err != nil {
		return err
	}
	var q protocol.Hello
	if err := r.Decode(&q); err != nil {
		return err
	}
	if len(q.Process) > protocol.MaxProcess {
		return rpc.Errorf(rpc.Usage, "process: %d bytes, the limit is %d", len(q.Process), protocol.MaxProcess)
	}
	i, ok := a.Connections.Owner(r.Inbox())
	if !ok || i.Role != bus.RoleMinion {
		return rpc.Errorf(rpc.Denied, "only the daemon of a minion takes jobs")
	}
	members, err := a.Cluster.greet(r.Inbox(), q.Moves)
	if err != nil {
		return err
	}
	id := salt.MinionID(i.Name)
	if err := a.Fleet.StoreGrains(ctx, id, q.Grains.V); err != nil {
		return fmt.Errorf("store the facts of %s: %w", id, err)
	}
	a.CutOlder(id, r.Inbox())
	a.Fleet.Join(id, r.Inbox(), r.Framed())
	a.Fleet.tellMembers(id, held{key: i.Key, process: cmp.Or(q.Process, cluster.NoProcess), source: i.Source, inbox: r.Inbox(), since: time.Now()})
	if _, alive := a.Connections.Owner(r.Inbox()); !alive {
		a.Gone(i) // it disconnected meanwhile
	}
	a.often.Log(a.Log, slog.LevelInfo, "hello "+string(id), maxLines, "minion connected", "minion", id, "version", logging.Shorten(q.Version))
	defer a.Jobs.Back(id, i.Key) // after the answer, which contains the time for the expiry of jobs
	if err := r.Send(ctx, protocol.Welcome{Time: a.Now(), Version: a.Version, Jobs: a.Jobs.Awaited(id), Cluster: members, Early: members != nil}); err != nil {
		return err
	}
	a.Cluster.welcomed(r.Inbox(), members)
	return nil
}

// Gone handles a connection that has ended.
func (a *Arrivals) Gone(i bus.Identity) {
	if i.Role != bus.RoleMinion {
		return
	}
	id := salt.MinionID(i.Name)
	a.Cluster.gone(i.Inbox())
	last := a.Fleet.Leave(id, i.Inbox(), time.Now())
	a.Fleet.tellMembers(id, held{})
	if last {
		a.often.Log(a.Log, slog.LevelInfo, "gone "+string(id), maxLines, "minion disconnected", "minion", id)
		a.Jobs.Lost(id)
	}
}
