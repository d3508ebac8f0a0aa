package master

import (
	"context"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/authz"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/dispatch"
	"github.com/brinebus/brine/internal/grain"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/reactor"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/runnerjob"
	"github.com/brinebus/brine/internal/salt"
)

func (m *Master) openDispatch() (err error) {
	m.dispatch, err = dispatch.Open(m.ctx, dispatch.Options{
		Journal: m.journal, Fleet: m.fleet, Keys: m.keys, Events: m.events, Audit: m.authz, Conn: m.broker.Conn(), Key: m.key,
		Clock: &m.clock, Steady: m.steady, Retention: m.retention(), Durable: m.durable, Log: m.log, Latency: m.latency,
	})
	m.undo = append(m.undo, m.dispatch.Wait)
	m.reactor = reactor.New(m.ctx, reactor.Options{Events: m.events, DeadLetters: m.events.DeadLetters(), Start: m.startReaction, Log: m.log})
	m.undo = append(m.undo, m.reactor.Wait)
	return err
}

// openRunners makes what runs runners, over what is open.
func (m *Master) openRunners() {
	h := &m.host
	h.Accepted, h.Presence, h.Grains, h.Mine, h.Pillar = m.keys.IDs, m.fleet.Connected, m.fleet.Grains, m.fleet.Mine, m.fleet.CompilePillar
	h.Lint, h.Reload, h.Unreloaded, h.Verify = m.lint, m.settings.Reload, m.settings.Unreloaded, m.verifyJournal
	h.StoreErr = m.broker.Store().Err
	h.Files, h.Reactions, h.RetryReaction = m.files, m.reactions, m.reactor.Retry
	h.MasterKey, h.Version, h.Log = m.key.Public(), m.version, m.log
	m.runners = runnerjob.New(m.ctx, runnerjob.Options{
		Host:  m.host,
		Authz: m.authz, AuditLog: m.auditLog, Jobs: m.dispatch, Active: m.dispatch, Journal: m.journal, Events: m.events,
		Keys:     func(who audit.Who) runner.KeyStore { return m.keys.By(who) },
		Config:   func() map[string]any { return config.Disclose(m.settings.InForce()) },
		Grains:   func(ctx context.Context) (map[string]any, error) { return grain.Collect(ctx, grain.Options{}) },
		CacheDir: m.cfg.CacheDir, ConfigDir: m.cfg.ConfigDir, Clock: &m.clock,
	})
	m.undo = append(m.undo, m.runners.Wait)
}

// reactions are the handlers of the reactor, for runners.
func (m *Master) reactions() []runner.Reaction {
	var list []runner.Reaction
	for _, r := range m.reactor.Rules() {
		list = append(list, runner.Reaction{Name: r.Name, Tag: r.Tag, From: r.From, Command: r.Command()})
	}
	return list
}

// startReaction starts the job of a handler of the reactor. It is decided about and
// recorded as everybody's is, under the name of the handler, which no user can have.
func (m *Master) startReaction(ctx context.Context, name string, q protocol.Publish) error {
	who := m.authz.Reactor(name)
	run, err := m.dispatch.Prepare(ctx, q, who, m.authz.Publish(ctx, who, q))
	if err != nil {
		return err
	}
	run.Begin()
	return nil
}

// publish runs a job of a local user.
func (m *Master) publish(ctx context.Context, r *rpc.Request) error {
	var q protocol.Publish
	if err := r.Decode(&q); err != nil {
		return err
	}
	who := m.authz.Principal(ctx, r.From)
	return m.authz.Logins.While(ctx, who, func(ctx context.Context) error { return m.publishFor(ctx, r, q, who) })
}

// publishFor runs a job for whoever asks and tells its course.
func (m *Master) publishFor(ctx context.Context, r *rpc.Request, q protocol.Publish, who authz.Principal) error {
	may := m.authz.Publish(ctx, who, q)
	if err := r.Decide(may.Decision); err != nil {
		return err
	}
	return m.dispatch.Publish(ctx, r, q, who, may)
}

// follow tells the course of a job that was started before: from its beginning,
// until nothing more is expected for now. Who started it may, and who may use the
// runner jobs.follow.
func (m *Master) follow(ctx context.Context, r *rpc.Request) error {
	var q protocol.Follow
	if err := r.Decode(&q); err != nil {
		return err
	}
	jid, err := salt.ParseJID(string(q.JID))
	if err != nil {
		return rpc.Errorf(rpc.Usage, "%v", err)
	}
	who := m.authz.Principal(ctx, r.From)
	k, err := m.dispatch.Lookup(ctx, jid)
	if err != nil {
		return err
	}
	started := k != nil && who.Started(k.User, k.Backend)
	if err := r.Decide(m.authz.Follow(ctx, who, jid, started)); err != nil {
		return err
	}
	if k == nil {
		return rpc.Errorf(rpc.NotFound, "the journal has no job %s", jid).WithHint("'salt-run jobs.list_jobs' lists those that it has")
	}
	return m.authz.Logins.While(ctx, who, func(ctx context.Context) error { return m.dispatch.Follow(ctx, r, jid) })
}
