package runnerjob

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/authz"
	"github.com/brinebus/brine/internal/dispatch"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/salt"
)

// runOwn runs a runner for a user without a rule for it, on a host that has only what is their
// own. It causes no events, and an entry in the audit log only if it changes something: users
// without rights cannot fill either.
func (s *Server) runOwn(ctx context.Context, r *rpc.Request, q protocol.Run, who authz.Principal, jid salt.JID, p authz.Permission) error {
	if err := r.Send(ctx, protocol.RunStart{JID: jid, Tag: "salt/run/" + string(jid)}); err != nil {
		return err
	}
	long := s.longRead(who)
	defer long.sent()
	h, c := s.ownHost(who, p, long), q.Command
	res := runner.Table(h).Run(ctx, function.Call{
		JID: jid, Function: c.Function, Args: c.Args, Kwargs: c.Kwargs, Host: &function.Host{Version: s.Host.Version, Log: s.Host.Log},
	})
	out := runResult(res, false)
	if out.Error != "" && out.Hint == "" {
		out.Hint = "you are shown only what is your own: " + p.Own()
	}
	body, err := out.AppendBinary(nil)
	if err != nil {
		return err
	}
	return long.send(ctx, r, body)
}

// ownHost is a host for runners with only what is the principal's own. Everything else gets the
// same answers as what does not exist.
func (s *Server) ownHost(who authz.Principal, p authz.Permission, long *longRead) *runner.Host {
	by := caller{s, who}
	record := func(ctx context.Context) error { return s.Authz.Record(ctx, p, "") }
	return &runner.Host{
		Access: s.Authz.Access(who, p.Own()), EventReader: ownReader{by, long}, Running: ownRunning{by, p}, Tokens: s.Authz.Logins.OwnTokens(who, record),
		Version: s.Host.Version, Log: s.Host.Log,
	}
}

// ownReader implements runner.EventReader.
type ownReader struct {
	caller
	long *longRead
}

// Events implements runner.EventReader.
func (s ownReader) Events(ctx context.Context, subject string, since time.Time, f func(event.Event) error) error {
	return s.ownEvents(ctx, s.who, journal.Query{Subjects: []string{subject}, Since: since, Long: s.long.begin}, f)
}

// ownRunning implements runner.Running.
type ownRunning struct {
	caller
	may authz.Permission
}

// started reports whether the principal has started an unfinished job.
func (s ownRunning) started(ctx context.Context, jid salt.JID) bool {
	return len(s.Runs(ctx, jid)) > 0
}

// Runs implements runner.Running.
func (s ownRunning) Runs(ctx context.Context, jid salt.JID) []job.Summary {
	return s.Active.Runs(ctx, jid, func(j *dispatch.Job) bool { return s.who.Started(j.User, j.Backend) })
}

// Cancel implements runner.Running.
func (s ownRunning) Cancel(ctx context.Context, jid salt.JID) ([]salt.MinionID, error) {
	if !s.started(ctx, jid) {
		return nil, dispatch.ErrNoneWaits(jid)
	}
	if err := s.Authz.Record(ctx, s.may, jid); err != nil {
		return nil, err
	}
	return s.caller.Cancel(ctx, jid)
}

// Await implements runner.Running.
func (s ownRunning) Await(ctx context.Context, jid salt.JID) error {
	if !s.started(ctx, jid) {
		return nil
	}
	return s.caller.Await(ctx, jid)
}

// ownEvents reads the events of the jobs that the principal has started. It reads the events of
// all jobs for that, so each principal has one such read at a time.
func (s *Server) ownEvents(ctx context.Context, who authz.Principal, q journal.Query, f func(event.Event) error) error {
	end, err := s.lookups.Acquire(ctx, who.Key())
	if err != nil {
		return err
	}
	defer end()
	own := ownJobs{}
	if starts, ok := startsOf(q); ok {
		err := s.Journal.Read(ctx, starts, func(e event.Event) error { own.note(who, e); return nil })
		if err != nil {
			return err
		}
	}
	return s.Journal.Read(ctx, q, func(e event.Event) error {
		if own.note(who, e); !own[jobOf(e.Tag)] {
			return nil
		}
		return f(e)
	})
}

// startsOf returns the query for the starts of the jobs of a query for all events of jobs. The
// journal of another master may have a return from before the start, by its clock.
func startsOf(q journal.Query) (journal.Query, bool) {
	if len(q.Subjects) != 1 {
		return q, false
	}
	job, ok := strings.CutSuffix(q.Subjects[0], ".*")
	q.Subjects, q.Long = []string{job + ".new"}, nil
	return q, ok
}

// ownJobs tells by the id of a job whether the principal has started it.
type ownJobs map[string]bool

// note takes in the start of a job. If two masters have assigned the same id, only a user who has
// started both jobs owns it.
func (o ownJobs) note(who authz.Principal, e event.Event) {
	if jid := jobOf(e.Tag); jid != "" && event.JobKind(e.Tag) == "new" {
		mine, seen := o[jid]
		o[jid] = startedBy(who, e) && (mine || !seen)
	}
}

// jobOf returns the job id in a tag, "" if there is none.
func jobOf(tag string) string {
	if parts := strings.SplitN(tag, "/", 4); len(parts) > 3 && parts[0] == "salt" && parts[1] == "job" {
		return parts[2]
	}
	return ""
}

// startedBy reports whether the principal has started the job with this start event.
func startedBy(who authz.Principal, e event.Event) bool {
	var load struct {
		User    string `json:"user"`
		Backend string `json:"eauth"`
	}
	return json.Unmarshal(e.Data, &load) == nil && who.Started(load.User, load.Backend)
}
