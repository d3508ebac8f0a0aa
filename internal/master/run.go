package master

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/authz"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/dispatch"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/grain"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/module"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// runnerHost lets runners reach this master in the name of who. What is long in the journal
// they read in its turn.
func (m *Master) runnerHost(who authz.Principal, long *longRead) *runner.Host {
	return &runner.Host{
		Files: m.files, Custom: m.runners,
		Accepted: m.keys.IDs,
		Resolve: func(expression, kind string) ([]salt.MinionID, error) {
			p := m.authz.Ping(m.ctx, who, protocol.Publish{Target: expression, TargetType: kind})
			return p.Start().Minions, p.Err()
		},
		Presence: m.fleet.Connected,
		Grains:   m.fleet.Grains,
		Mine:     m.fleet.Mine,
		Pillar:   m.fleet.CompilePillar,
		Execute: func(ctx context.Context, e runner.Execute) ([]job.Update, error) {
			return m.execute(ctx, who, protocol.Publish{Target: e.Target, TargetType: e.TargetType, Commands: []job.Command{e.Command}, Timeout: job.Seconds(e.Timeout.Seconds())})
		},
		Ping: func(ctx context.Context, tgt, kind string, timeout time.Duration) ([]job.Update, error) {
			return m.execute(ctx, who, protocol.Publish{Target: tgt, TargetType: kind, Commands: []job.Command{{Function: "test.ping"}}, Timeout: job.Seconds(timeout.Seconds()), Internal: true})
		},
		Events: func(ctx context.Context, subject string, since time.Time, f func(event.Event) error) error {
			return m.journal.Read(ctx, journal.Query{Subjects: []string{subject}, Since: since, Long: long.begin}, f)
		},
		SendEvent: func(ctx context.Context, tag string, data any) error { return m.sendEvent(ctx, who, tag, data) },
		Runs:      func() []job.Summary { return m.dispatch.Runs(func(*dispatch.Job) bool { return true }) },
		Cancel: func(_ context.Context, jid salt.JID) ([]salt.MinionID, error) {
			return m.dispatch.Cancel(jid, who.Name())
		},
		Await: m.dispatch.Await,
		Explain: func(ctx context.Context, e runner.Explain) (runner.Explained, error) {
			return m.authz.Explain(ctx, who, e, "")
		},
		Rights:     func(ctx context.Context) (runner.Rights, error) { return m.authz.Rights(ctx, who) },
		Lint:       m.lint,
		Reload:     m.settings.Reload,
		Unreloaded: m.settings.Unreloaded,
		Audit:      m.auditRunner(who),
		Verify:     m.verifyJournal,
		Keys:       m.keys.By(who.Who()),
		MasterKey:  m.key.Public(),
		Config:     config.Disclose(m.settings.InForce()),
		Functions:  module.Builtin(),
		Machine:    m.machine(),
		Version:    m.version,
		Log:        m.log,
		MakeToken: func(ctx context.Context, t runner.NewToken) (runner.Token, error) {
			return m.authz.Logins.MakeToken(ctx, who, t)
		},
		ListTokens:  func(ctx context.Context) ([]runner.Token, error) { return m.authz.Logins.ListTokens(ctx, nil) },
		DeleteToken: func(ctx context.Context, id string) error { return m.authz.Logins.DeleteToken(ctx, id, nil, nil) },

		Reactions:     m.reactions,
		RetryReaction: m.reactor.Retry,
	}
}

// sendEvent fires an event of a runner. Its sender is who asked for the runner, and
// nobody fires by it what they may not fire without it.
func (m *Master) sendEvent(ctx context.Context, who authz.Principal, tag string, data any) error {
	raw, err := value.Encode(data)
	if err != nil {
		return err
	}
	from, d := m.authz.Send(ctx, who, tag)
	_, err = m.events.Fire(ctx, d, protocol.Fire{Events: []protocol.FireEvent{{Tag: tag, Data: raw}}}, from)
	return err
}

// reactions are the handlers of the reactor.
func (m *Master) reactions() []runner.Reaction {
	var list []runner.Reaction
	for _, r := range m.reactor.Rules() {
		list = append(list, runner.Reaction{Name: r.Name, Tag: r.Tag, From: r.From, Command: r.Command()})
	}
	return list
}

// machine is the master's own machine for functions of minions that a runner
// runs on it. It has no id, no bus and no jobs of a minion.
func (m *Master) machine() *function.Host {
	return &function.Host{
		Version: m.version, Config: config.Disclose(m.settings.InForce()), Paths: function.Paths{CacheDir: m.cfg.CacheDir}, Log: m.log,
		Grains: sync.OnceValue(func() map[string]any {
			facts, err := grain.Collect(m.ctx, grain.Options{})
			if err != nil {
				m.log.Warn("some grains of the master's machine are missing", "err", err)
			}
			return facts
		}),
	}
}

// run runs a runner, or a wheel function, for a local user.
func (m *Master) run(ctx context.Context, r *rpc.Request) error {
	var q protocol.Run
	if err := r.Decode(&q); err != nil {
		return err
	}
	who := m.authz.Principal(ctx, r.From)
	return m.authz.Logins.While(ctx, who, func(ctx context.Context) error { return m.runFor(ctx, r, q, who) })
}

// runFor runs a runner or a wheel function for whoever asks, between the events
// salt/run/<jid>/new and ret, or those of salt/wheel.
func (m *Master) runFor(ctx context.Context, r *rpc.Request, q protocol.Run, who authz.Principal) error {
	kind := "run"
	if q.Wheel {
		kind = "wheel"
	}
	if err := runner.CheckSecrets(q.Command); err != nil {
		return rpc.Errorf(rpc.Usage, "%w", err) // before the arguments are in the journal, or in the audit log
	}
	p := m.authz.Run(who, q.Command, q.Wheel, !q.Async)
	if err := r.Decide(p.Decision); err != nil || q.Preview {
		return err
	}
	ended := func() {}
	defer func() { ended() }()
	if q.Async {
		var err error
		if ended, err = m.unwatched.begin(who); err != nil {
			return err
		}
	}
	jid := m.clock.Next(time.Now())
	if p.Own() != "" {
		return m.runOwn(ctx, r, q, who, jid, p)
	}
	tag := "salt/" + kind + "/" + string(jid)
	data := map[string]any{"fun": map[bool]string{false: "runner.", true: "wheel."}[q.Wheel] + string(q.Command.Function), "jid": string(jid), "user": who.Name(), "fun_args": (&job.Envelope{Commands: []job.Command{q.Command}}).Arguments()}
	begun := func() error {
		_, err := m.events.Store(ctx, tag+"/new", data, "")
		return err
	}
	var err error
	if !q.Wheel && q.Command.Function == "audit.repair" && m.auditLog.Damaged() {
		err = m.authz.Unwritten(begun()) // no entry can come before the one that it writes itself, with who asked
	} else {
		err = m.authz.Book(ctx, p, jid, begun)
	}
	if err != nil {
		return err
	}
	if err := r.Send(ctx, protocol.RunStart{JID: jid, Tag: tag}); err != nil {
		return err
	}
	long := m.longRead(who)
	if q.Async {
		end := ended
		ended = func() {} // not before the runner has
		m.wg.Go(func() {
			defer end()
			defer long.sent()
			m.runOne(m.ctx, who, jid, tag, data, q, p.Reach(), long)
		})
		return nil
	}
	defer long.sent()
	body, err := m.runOne(ctx, who, jid, tag, data, q, p.Reach(), long).AppendBinary(make([]byte, rpc.Room))
	if err != nil {
		return err
	}
	return long.send(ctx, r, body)
}

func (m *Master) runOne(ctx context.Context, who authz.Principal, jid salt.JID, tag string, data map[string]any, q protocol.Run, reach salt.Reach, long *longRead) protocol.RunResult {
	h, c := m.runnerHost(who, long), q.Command
	table, machine := runner.Table(h), &function.Host{Version: m.version, Log: m.log, Config: h.Config, Paths: function.Paths{ConfigDir: m.cfg.ConfigDir}, Custom: h.Custom}
	if q.Wheel {
		table, machine.Custom = runner.Wheel(h), nil
	}
	res := table.Run(ctx, function.Call{
		JID: jid, Function: c.Function, Args: c.Args, Kwargs: c.Kwargs, Host: machine, Reach: reach,
	})
	data["return"], data["success"] = runner.Shown(c.Function, res.Return), res.Success
	if _, err := m.events.Store(context.WithoutCancel(ctx), tag+"/ret", data, ""); err != nil && !errors.Is(err, context.Canceled) {
		m.log.Error("runner's return not stored", "jid", jid, "fun", c.Function, "err", err)
	}
	return runResult(res, q.Wheel)
}

// runResult is what who asked is told. A refusal inside a runner is one.
func runResult(res function.Result, wheel bool) protocol.RunResult {
	text, hint := "", ""
	if res.Err != nil {
		text, hint = res.Err.Error(), runner.Hint(res.Err, wheel, module.Builtin())
		if rpc.CodeOf(res.Err) == rpc.Denied {
			res.Retcode = protocol.RunRefused
		}
	}
	return protocol.RunResult{Error: text, Hint: hint, Return: value.Value{V: res.Return}, Success: res.Success, Retcode: res.Retcode, Out: res.Out}
}
