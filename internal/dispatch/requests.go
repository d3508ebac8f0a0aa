package dispatch

import (
	"context"
	"reflect"

	"github.com/brinebus/brine/internal/authz"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// Requests answers who asks for jobs, once authz has decided that they may.
type Requests struct {
	jobs  *Dispatcher
	authz *authz.Authorizer // no interface: nothing else may decide
}

// NewRequests answers requests for jobs of d.
func NewRequests(d *Dispatcher, a *authz.Authorizer) *Requests { return &Requests{d, a} }

// Publish runs a job of a local user.
func (s *Requests) Publish(ctx context.Context, r *rpc.Request) error {
	var q protocol.Publish
	if err := r.Decode(&q); err != nil {
		return err
	}
	who := s.authz.Principal(ctx, r.From)
	return s.authz.Logins.While(ctx, who, func(ctx context.Context) error { return s.publishFor(ctx, r, q, who) })
}

// publishFor runs a job for whoever asks and tells its course.
func (s *Requests) publishFor(ctx context.Context, r *rpc.Request, q protocol.Publish, who authz.Principal) error {
	may := s.authz.Publish(ctx, who, q)
	if err := r.Decide(may.Decision); err != nil {
		return err
	}
	return s.jobs.publish(ctx, r, q, who, may)
}

// React starts the job of a handler of the reactor. It is decided about and recorded as
// everybody's is, under the name of the handler, which no user can have. One of a function that
// no minion has is an error: nobody would see that it has failed.
func (s *Requests) React(ctx context.Context, handler string, q protocol.Publish) error {
	who := s.authz.Reactor(handler)
	run, err := s.jobs.Prepare(ctx, q, who, s.authz.Publish(ctx, who, q))
	if err != nil {
		return err
	}
	w := run.watch()
	defer w.close()
	run.Begin()
	return s.jobs.unknownOf(q.Commands).begun(ctx, w)
}

// Follow tells the course of a job that was started before: from its beginning, until
// nothing more is expected for now. Who started it may, and who may use the runner
// jobs.follow.
func (s *Requests) Follow(ctx context.Context, r *rpc.Request) error {
	var q protocol.Follow
	if err := r.Decode(&q); err != nil {
		return err
	}
	jid, err := salt.ParseJID(string(q.JID))
	if err != nil {
		return rpc.Errorf(rpc.Usage, "%v", err)
	}
	who := s.authz.Principal(ctx, r.From)
	k, err := s.jobs.Lookup(ctx, jid)
	if err != nil {
		return err
	}
	started := k != nil && who.Started(k.User, k.Backend)
	if err := r.Decide(s.authz.Follow(ctx, who, jid, started)); err != nil {
		return err
	}
	if k == nil {
		return rpc.Errorf(rpc.NotFound, "the journal has no job %s", jid).WithHint("'salt-run jobs.list_jobs' lists those that it has")
	}
	return s.authz.Logins.While(ctx, who, func(ctx context.Context) error { return s.jobs.follow(ctx, r, jid) })
}

// maxUnwatched is how many jobs of a minion may run when it starts one that nobody waits
// for: of others its requests are the bound.
const maxUnwatched = 100

// PeerPublish runs a job for a minion and tells its course to the connection that asked
// and to no other: the id of a job opens nothing.
func (s *Requests) PeerPublish(ctx context.Context, r *rpc.Request) error {
	var q protocol.Publish
	if err := r.Decode(&q); err != nil {
		return err
	}
	if !plain(q) {
		return rpc.Errorf(rpc.Usage, "a minion publishes to others at once: not in batches, not for later, not to follow, and without settings for their returners")
	}
	who := s.authz.Peer(r.From)
	if q.Async && len(s.jobs.Runs(func(j *Job) bool { return who.Started(j.User, j.Backend) })) >= maxUnwatched {
		return rpc.Errorf(rpc.Busy, "%d jobs of minion %s are running: that is the limit for those that nobody waits for", maxUnwatched, r.From.Name)
	}
	if err := authz.ParseWords(q.Commands); err != nil {
		return err
	}
	return s.publishFor(ctx, r, q, who)
}

// plain says whether a request has nothing in it beside what a minion may ask for.
// All else a user may ask for is refused: the settings of a returner, say, could
// have the returning minion write where it pleases the asking one.
func plain(q protocol.Publish) bool {
	q.Target, q.TargetType, q.Delimiter, q.Commands, q.Compound = "", "", "", nil, false
	q.Timeout, q.Async, q.Preview, q.Lines, q.Returner, q.ReturnTag, q.Via = 0, false, false, false, "", "", ""
	return reflect.ValueOf(q).IsZero()
}
