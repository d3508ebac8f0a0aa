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

// runOwn runs a runner for somebody who has no rule for it, over a host that has
// nothing but what is their own. It leaves no events, and no entry in the audit log unless it
// changes something: people who may nothing fill neither.
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
	body, err := out.AppendBinary(make([]byte, rpc.HeadBytes))
	if err != nil {
		return err
	}
	return long.send(ctx, r, body)
}

// ownHost is a host for runners that has what is the principal's own, and nothing else.
// What is others' is not there, in the words for what does not exist.
func (s *Server) ownHost(who authz.Principal, p authz.Permission, long *longRead) *runner.Host {
	by := caller{s, who}
	return &runner.Host{
		Access: access{by, p.Own()}, EventReader: ownReader{by, long}, Running: ownRunning{by, p}, Tokens: s.Authz.OwnTokens(who, p),
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

// started says whether the principal has started a job of which more is expected.
func (s ownRunning) started(jid salt.JID) bool {
	j := s.Active.Running(jid)
	return j != nil && s.who.Started(j.User, j.Backend)
}

// Runs implements runner.Running.
func (s ownRunning) Runs() []job.Summary {
	return s.Active.Runs(func(j *dispatch.Job) bool { return s.who.Started(j.User, j.Backend) })
}

// Cancel implements runner.Running.
func (s ownRunning) Cancel(ctx context.Context, jid salt.JID) ([]salt.MinionID, error) {
	if !s.started(jid) {
		return nil, dispatch.ErrNoneWaits(jid)
	}
	if err := s.Authz.Record(ctx, s.may, jid); err != nil {
		return nil, err
	}
	return s.caller.Cancel(ctx, jid)
}

// Await implements runner.Running.
func (s ownRunning) Await(ctx context.Context, jid salt.JID) error {
	if !s.started(jid) {
		return nil
	}
	return s.caller.Await(ctx, jid)
}

// ownEvents reads what the journal has of the jobs that the principal has started. It looks
// at the events of all jobs for that, so each principal reads one thing at a time.
func (s *Server) ownEvents(ctx context.Context, who authz.Principal, q journal.Query, f func(event.Event) error) error {
	end, err := s.lookups.Acquire(ctx, who.Key())
	if err != nil {
		return err
	}
	defer end()
	own := map[string]bool{} // by the job id; the start of a job comes before all else of it
	return s.Journal.Read(ctx, q, func(e event.Event) error {
		jid := jobOf(e.Tag)
		if event.JobKind(e.Tag) == "new" {
			// Where two masters have given one id, it is nobody's own but theirs who started both.
			mine, seen := own[jid]
			own[jid] = startedBy(who, e) && (mine || !seen)
		}
		if jid == "" || !own[jid] {
			return nil
		}
		return f(e)
	})
}

// jobOf is the job id of a tag, "" where it has none.
func jobOf(tag string) string {
	if parts := strings.SplitN(tag, "/", 4); len(parts) > 3 && parts[0] == "salt" && parts[1] == "job" {
		return parts[2]
	}
	return ""
}

// startedBy says whether the principal has started the job of which this is the start.
func startedBy(who authz.Principal, e event.Event) bool {
	var load struct {
		User    string `json:"user"`
		Backend string `json:"eauth"`
	}
	return json.Unmarshal(e.Data, &load) == nil && who.Started(load.User, load.Backend)
}
