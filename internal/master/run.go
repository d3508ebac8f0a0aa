package master

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/acl"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/dispatch"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/eventbus"
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
func (m *Master) runnerHost(who asker, long *longRead) *runner.Host {
	return &runner.Host{
		Files: m.files, Custom: m.runners,
		Accepted: m.keys.IDs,
		Resolve: func(expression, kind string) ([]salt.MinionID, error) {
			p, err := m.forRunner(m.ctx, who, protocol.Publish{Target: expression, TargetType: kind})
			return p.Start.Minions, err
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
			return m.dispatch.Cancel(jid, who.name)
		},
		Await: m.dispatch.Await,
		Explain: func(ctx context.Context, e runner.Explain) (runner.Explained, error) {
			return m.explain(ctx, who, e, "")
		},
		Rights:     func(ctx context.Context) (runner.Rights, error) { return m.rights(ctx, who) },
		Lint:       m.lint,
		Reload:     m.reloadConfig,
		Unreloaded: m.taken.why,
		Audit:      m.auditRunner(who),
		Verify:     m.verifyJournal,
		Keys:       m.keys.By(who.who()),
		MasterKey:  m.key.Public(),
		Config:     config.Disclose(m.inForce()),
		Functions:  module.Builtin(),
		Machine:    m.machine(),
		Version:    m.version,
		Log:        m.log,
		MakeToken: func(ctx context.Context, t runner.NewToken) (runner.Token, error) {
			return m.makeToken(ctx, who, t)
		},
		ListTokens:  func(ctx context.Context) ([]runner.Token, error) { return m.listTokens(ctx, nil) },
		DeleteToken: func(ctx context.Context, id string) error { return m.deleteToken(ctx, id, nil, nil) },

		Reactions:     m.reactionsInForce,
		RetryReaction: m.retryReaction,
	}
}

// sendEvent fires an event of a runner. Its sender is who asked for the runner, and
// nobody fires by it what they may not fire without it.
func (m *Master) sendEvent(ctx context.Context, who asker, tag string, data any) error {
	raw, err := value.Encode(data)
	if err != nil {
		return err
	}
	from, check := m.mayFire(who)
	if id := who.minion(); id != "" {
		from, check = id, func(tag string) error { return event.CheckMinionTag(salt.MinionID(id), tag) }
	}
	_, err = m.events.Fire(ctx, protocol.Fire{Events: []protocol.FireEvent{{Tag: tag, Data: raw}}}, from, check)
	return err
}

// mayFire returns the sender of the events of a user, and what event_acl lets them
// fire. The tag spaces of the master are for operators.
func (m *Master) mayFire(who asker) (from string, check func(tag string) error) {
	a := eventbus.Principal{Name: who.name, UID: -1}
	from = salt.UserPrefix + who.name
	if b := who.subject.Backend; b != "" {
		a.Name = b + ":" + who.name
		from = salt.UserPrefix + a.Name
	} else if who.subject.Kind == acl.Local {
		a = m.onBus(m.ctx, who)
	}
	granted := m.events.MayFire(a)
	return from, func(tag string) error {
		if !a.Operator && event.Reserved(tag) {
			return rpc.Errorf(rpc.Denied, "user %s may not fire %s: the tag spaces of the master are for operators", a.Name, tag)
		}
		return granted(tag)
	}
}

// machine is the master's own machine for functions of minions that a runner
// runs on it. It has no id, no bus and no jobs of a minion.
func (m *Master) machine() *function.Host {
	return &function.Host{
		Version: m.version, Config: config.Disclose(m.inForce()), Paths: function.Paths{CacheDir: m.cfg.CacheDir}, Log: m.log,
		Grains: sync.OnceValue(func() map[string]any {
			facts, err := grain.Collect(m.ctx, grain.Options{})
			if err != nil {
				m.log.Warn("some grains of the master's machine are missing", "err", err)
			}
			return facts
		}),
	}
}

// forRunner is a test.ping that a runner needs itself: who may run the runner may have
// it done.
func (m *Master) forRunner(ctx context.Context, who asker, q protocol.Publish) (dispatch.Permission, error) {
	t, err := m.fleet.ParseTarget(ctx, who.identity.String(), q)
	if err == nil {
		err = m.mayTarget(who, t)
	}
	if err != nil {
		return dispatch.Permission{}, err
	}
	end, err := m.fleet.TakeTurn(ctx, who.identity.String(), t)
	if err != nil {
		return dispatch.Permission{}, err
	}
	defer end()
	start, err := m.fleet.Resolve(t, nil)
	d := acl.Decision{Verdict: acl.Allow, Rule: "runner"}
	question := acl.Question{Commands: aclCommands(q.Commands), Minions: start.Minions}
	return dispatch.Permission{Start: start, Target: t, Entry: entry(who, question, d, q.Target, q.TargetType)}, err
}

// run runs a runner, or a wheel function, for a local user.
func (m *Master) run(ctx context.Context, r *rpc.Request) error {
	var q protocol.Run
	if err := r.Decode(&q); err != nil {
		return err
	}
	who := m.asker(ctx, r.From)
	return m.whileGood(ctx, who, func(ctx context.Context) error { return m.runFor(ctx, r, q, who) })
}

// runFor runs a runner or a wheel function for whoever asks, between the events
// salt/run/<jid>/new and ret, or those of salt/wheel.
func (m *Master) runFor(ctx context.Context, r *rpc.Request, q protocol.Run, who asker) error {
	kind, scope := "run", acl.Runner
	if q.Wheel {
		kind, scope = "wheel", acl.Wheel
	}
	if err := runner.CheckSecrets(q.Command); err != nil {
		return rpc.Errorf(rpc.Usage, "%w", err) // before the arguments are in the journal, or in the trail
	}
	e, may, err := m.decide(who, acl.Question{Scope: scope, Own: !q.Async, Commands: aclCommands([]job.Command{q.Command})}, "", "")
	if r.Decide(err) != nil || q.Preview {
		return err
	}
	jid := m.clock.Next(time.Now())
	if may.own != "" {
		return m.runOwn(ctx, r, q, who, jid, e, may.own)
	}
	tag := "salt/" + kind + "/" + string(jid)
	data := map[string]any{"fun": map[bool]string{false: "runner.", true: "wheel."}[q.Wheel] + string(q.Command.Function), "jid": string(jid), "user": who.name, "fun_args": (&job.Envelope{Commands: []job.Command{q.Command}}).Arguments()}
	begun := func() error {
		_, err := m.events.Store(ctx, tag+"/new", data, "")
		return err
	}
	if !q.Wheel && q.Command.Function == "audit.repair" && m.trail.Damaged() {
		err = m.unwritten(begun()) // no entry can come before the one that it writes itself, with who asked
	} else {
		err = m.book(ctx, e, jid, begun)
	}
	if err != nil {
		return err
	}
	if err := r.Send(ctx, protocol.RunStart{JID: jid, Tag: tag}); err != nil {
		return err
	}
	long := m.longRead(who)
	if q.Async {
		m.wg.Go(func() {
			defer long.sent()
			m.runOne(m.ctx, who, jid, tag, data, q, may.reach, long)
		})
		return nil
	}
	defer long.sent()
	body, err := m.runOne(ctx, who, jid, tag, data, q, may.reach, long).AppendBinary(make([]byte, rpc.Room))
	if err != nil {
		return err
	}
	long.read()
	return r.SendBody(ctx, body)
}

func (m *Master) runOne(ctx context.Context, who asker, jid salt.JID, tag string, data map[string]any, q protocol.Run, reach job.Reach, long *longRead) protocol.RunResult {
	h, c := m.runnerHost(who, long), q.Command
	table, machine := runner.Table(h), &function.Host{Version: m.version, Log: m.log, Config: h.Config, Paths: function.Paths{ConfigDir: m.cfg.ConfigDir}, Custom: h.Custom}
	if q.Wheel {
		table, machine.Custom = runner.Wheel(h), nil
	}
	res := table.Run(ctx, function.Call{
		JID: jid, Function: c.Function, Args: c.Args, Kwargs: c.Kwargs, Host: machine, Reach: function.Reach(reach),
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
