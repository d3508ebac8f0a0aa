package master

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/audit"
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
// nothing but what is their own. It leaves no events, and no entry in the trail unless it
// changes something: people who may nothing fill neither. why is the refusal that they
// would get otherwise.
func (m *Master) runOwn(ctx context.Context, r *rpc.Request, q protocol.Run, who asker, jid salt.JID, e audit.Entry, why string) error {
	if err := r.Send(ctx, protocol.RunStart{JID: jid, Tag: "salt/run/" + string(jid)}); err != nil {
		return err
	}
	long := m.longRead(who)
	defer long.sent()
	h, c := m.ownHost(who, e, why, long), q.Command
	res := runner.Table(h).Run(ctx, function.Call{
		JID: jid, Function: c.Function, Args: c.Args, Kwargs: c.Kwargs, Host: &function.Host{Version: m.version, Log: m.log},
	})
	out := runResult(res, false)
	if out.Error != "" && out.Hint == "" {
		out.Hint = "you are shown only what is your own: " + why
	}
	body, err := out.AppendBinary(make([]byte, rpc.Room))
	if err != nil {
		return err
	}
	long.read()
	return r.SendBody(ctx, body)
}

// ownHost is a host for runners that has what is the asker's own, and nothing else.
// What is others' is not there, in the words for what does not exist.
func (m *Master) ownHost(who asker, e audit.Entry, why string, long *longRead) *runner.Host {
	return &runner.Host{
		Events: func(ctx context.Context, subject string, since time.Time, f func(event.Event) error) error {
			return m.ownEvents(ctx, who, journal.Query{Subjects: []string{subject}, Since: since, Long: long.begin}, f)
		},
		Runs: func() []job.Summary { return m.dispatch.Runs(who.started) },
		Cancel: func(ctx context.Context, jid salt.JID) ([]salt.MinionID, error) {
			if k := m.dispatch.Running(jid); k == nil || !who.started(k) {
				return nil, dispatch.ErrNoneWaits(jid)
			}
			if err := m.recordOwn(ctx, e, jid); err != nil {
				return nil, err
			}
			return m.dispatch.Cancel(jid, who.name)
		},
		Await: func(ctx context.Context, jid salt.JID) error {
			if k := m.dispatch.Running(jid); k == nil || !who.started(k) {
				return nil
			}
			return m.dispatch.Await(ctx, jid)
		},
		Explain: func(ctx context.Context, x runner.Explain) (runner.Explained, error) {
			return m.explain(ctx, who, x, why)
		},
		Rights: func(ctx context.Context) (runner.Rights, error) { return m.rights(ctx, who) },
		ListTokens: func(ctx context.Context) ([]runner.Token, error) {
			if who.login == nil {
				return nil, nil // tokens are of logins
			}
			return m.listTokens(ctx, who.login)
		},
		DeleteToken: func(ctx context.Context, id string) error { return m.deleteOwn(ctx, who, e, id) },
		Version:     m.version, Log: m.log,
	}
}

// recordOwn writes down what somebody changes of their own, before it is changed.
func (m *Master) recordOwn(ctx context.Context, e audit.Entry, jid salt.JID) error {
	e.JID = jid
	return m.unwritten(m.trail.Record(ctx, e))
}

// deleteOwn forgets a token of the asker's login.
func (m *Master) deleteOwn(ctx context.Context, who asker, e audit.Entry, id string) error {
	if who.login == nil {
		return rpc.Errorf(rpc.Denied, "tokens are of logins, and this is none").WithHint("log in: salt-run -a BACKEND auth.del_token ID")
	}
	return m.deleteToken(ctx, id, who.login, func() error { return m.recordOwn(ctx, e, "") })
}

// ownEvents reads what the journal has of the jobs that the asker has started. It looks
// at the events of all jobs for that, so each asker reads one thing at a time.
func (m *Master) ownEvents(ctx context.Context, who asker, q journal.Query, f func(event.Event) error) error {
	end, err := m.lookups.Acquire(ctx, who.identity.String())
	if err != nil {
		return err
	}
	defer end()
	own := map[string]bool{} // by the job id; the start of a job comes before all else of it
	return m.journal.Read(ctx, q, func(e event.Event) error {
		jid := jobOf(e.Tag)
		if event.JobKind(e.Tag) == "new" {
			own[jid] = who.startedBy(e)
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

// startedBy says whether the asker has started the job of which this is the start.
func (a asker) startedBy(e event.Event) bool {
	var load struct {
		User    string `json:"user"`
		Backend string `json:"eauth"`
	}
	return json.Unmarshal(e.Data, &load) == nil && a.started(&dispatch.Job{User: load.User, Backend: load.Backend})
}

// rights are what who asks may do.
func (m *Master) rights(ctx context.Context, who asker) (runner.Rights, error) {
	rules := m.rulesOf(who)
	grants, err := rules.Grants(who.subject)
	if err != nil {
		return runner.Rights{}, err
	}
	out := runner.Rights{User: who.name, Backend: who.subject.Backend, Groups: who.subject.Groups, Operator: rules.Operator(who.subject), Barred: rules.Barred()}
	for _, g := range grants {
		out.Rules = append(out.Rules, runner.Right(g))
	}
	if who.minion() == "" {
		out.Fire, out.Listen = m.events.Tags(m.onBus(ctx, who))
	}
	return out, nil
}
