package master

import (
	"context"
	"reflect"

	"github.com/brinebus/brine/internal/authz"
	"github.com/brinebus/brine/internal/dispatch"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// maxUnwatched is how many jobs of a minion may run when it starts one that nobody waits
// for: of others its requests are the bound.
const maxUnwatched = 100

// peerPublish runs a job for a minion and tells its course to the connection that
// asked and to no other: the id of a job opens nothing.
func (m *Master) peerPublish(ctx context.Context, r *rpc.Request) error {
	var q protocol.Publish
	if err := r.Decode(&q); err != nil {
		return err
	}
	if !plain(q) {
		return rpc.Errorf(rpc.Usage, "a minion publishes to others at once: not in batches, not for later, not to follow, and without settings for their returners")
	}
	who := m.authz.Peer(r.From)
	if q.Async && len(m.dispatch.Runs(func(j *dispatch.Job) bool { return who.Started(j.User, j.Backend) })) >= maxUnwatched {
		return rpc.Errorf(rpc.Busy, "%d jobs of minion %s are running: that is the limit for those that nobody waits for", maxUnwatched, r.From.Name)
	}
	if err := authz.ParseWords(q.Commands); err != nil {
		return err
	}
	return m.publishFor(ctx, r, q, who)
}

// plain says whether a request has nothing in it beside what a minion may ask for.
// All else a user may ask for is refused: the settings of a returner, say, could
// have the returning minion write where it pleases the asking one.
func plain(q protocol.Publish) bool {
	q.Target, q.TargetType, q.Delimiter, q.Commands, q.Compound = "", "", "", nil, false
	q.Timeout, q.Async, q.Preview, q.Lines, q.Returner, q.ReturnTag, q.Via = 0, false, false, false, "", "", ""
	return reflect.ValueOf(q).IsZero()
}
