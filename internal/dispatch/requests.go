package dispatch

import (
	"context"
	"reflect"

	"github.com/brinebus/brine/internal/authz"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// Requests answers requests about jobs, once authz has allowed them.
type Requests struct {
	jobs  *Dispatcher
	authz *authz.Authorizer // not an interface: nothing else may decide
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

// publishFor runs a job for a principal and sends its progress.
func (s *Requests) publishFor(ctx context.Context, r *rpc.Request, q protocol.Publish, who authz.Principal) error {
	may := s.authz.Publish(ctx, who, q)
	if err := r.Decide(may.Decision); err != nil {
		return err
	}
	return s.jobs.publish(ctx, r, q, who, may)
}

// React starts the job of a rule of the reactor. It is decided and recorded like every other
// one, under the name of the rule, which no user can have. A function that no minion has is an
// error, since nobody would see the failure.
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

// Follow sends the progress of a job that was started before: from its beginning, until no more
// is expected for now. Allowed are the user who started it, and those who may use the runner
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
	return s.authz.Logins.While(ctx, who, func(ctx context.Context) error { return All{s.jobs}.follow(ctx, r, who.Key(), jid, q.Waiting) })
}

// maxUnwatched is how many jobs of a minion may be running when it starts one without waiting
// for it. Jobs that it waits for are limited by its requests.
const maxUnwatched = 100

// PeerPublish runs a job for a minion and sends its progress only to the connection that asked:
// knowing the id of a job gives no access.
func (s *Requests) PeerPublish(ctx context.Context, r *rpc.Request) error {
	var q protocol.Publish
	if err := r.Decode(&q); err != nil {
		return err
	}
	if !plain(q) {
		return rpc.Errorf(rpc.Usage, "a minion publishes to others at once: not in batches, not for later, not to follow, and without settings for their returners")
	}
	who := s.authz.Peer(r.From)
	if q.Async && len(s.jobs.runs("", func(j *Job) bool { return who.Started(j.User, j.Backend) })) >= maxUnwatched {
		return rpc.Errorf(rpc.Busy, "%d jobs of minion %s are running: that is the limit for those that nobody waits for", maxUnwatched, r.From.Name)
	}
	if err := protocol.ParseWords(q.Commands); err != nil {
		return err
	}
	return s.publishFor(ctx, r, q, who)
}

// plain reports whether a request contains only what a minion may use. Everything else is
// refused: with the settings of a returner, for example, the requesting minion could choose
// where the other one writes.
func plain(q protocol.Publish) bool {
	q.Target, q.TargetType, q.Delimiter, q.Commands, q.Compound = "", "", "", nil, false
	q.Timeout, q.Async, q.Preview, q.Lines, q.Returner, q.ReturnTag, q.Via = 0, false, false, false, "", "", ""
	return reflect.ValueOf(q).IsZero()
}
