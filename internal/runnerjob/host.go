package runnerjob

import (
	"context"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/authz"
	"github.com/brinebus/brine/internal/dispatch"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/module"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// host lets runners reach this master in the name of who. What is long in the journal
// they read in its turn.
func (s *Server) host(who authz.Principal, long *longRead) *runner.Host {
	h := s.Host
	h.Resolve = func(expression, kind string) ([]salt.MinionID, error) {
		p := s.Authz.Ping(s.ctx, who, protocol.Publish{Target: expression, TargetType: kind})
		return p.Start().Minions, p.Err()
	}
	h.Execute = func(ctx context.Context, e runner.Execute) ([]job.Update, error) {
		return s.execute(ctx, who, protocol.Publish{Target: e.Target, TargetType: e.TargetType, Commands: []job.Command{e.Command}, Timeout: job.Seconds(e.Timeout.Seconds())})
	}
	h.Ping = func(ctx context.Context, tgt, kind string, timeout time.Duration) ([]job.Update, error) {
		return s.execute(ctx, who, protocol.Publish{Target: tgt, TargetType: kind, Commands: []job.Command{{Function: "test.ping"}}, Timeout: job.Seconds(timeout.Seconds()), Internal: true})
	}
	h.Events = func(ctx context.Context, subject string, since time.Time, f func(event.Event) error) error {
		return s.Journal.Read(ctx, journal.Query{Subjects: []string{subject}, Since: since, Long: long.begin}, f)
	}
	h.SendEvent = func(ctx context.Context, tag string, data any) error { return s.sendEvent(ctx, who, tag, data) }
	h.Runs = func() []job.Summary { return s.Active.Runs(func(*dispatch.Job) bool { return true }) }
	h.Cancel = func(_ context.Context, jid salt.JID) ([]salt.MinionID, error) {
		return s.Jobs.Cancel(jid, who.Name())
	}
	h.Await = s.Jobs.Await
	h.Explain = func(ctx context.Context, e runner.Explain) (runner.Explained, error) {
		return s.Authz.Explain(ctx, who, e, "")
	}
	h.Rights = func(ctx context.Context) (runner.Rights, error) { return s.Authz.Rights(ctx, who) }
	h.Tokens = s.Authz.Logins.Tokens(who)
	h.Functions = module.Builtin()
	h.Audit, h.Keys, h.Config, h.Machine = auditLog{s.AuditLog, who.Who()}, s.Keys(who.Who()), s.Config(), s.machine()
	return &h
}

// sendEvent fires an event of a runner. Its sender is who asked for the runner, and
// nobody fires by it what they may not fire without it.
func (s *Server) sendEvent(ctx context.Context, who authz.Principal, tag string, data any) error {
	raw, err := value.Encode(data)
	if err != nil {
		return err
	}
	from, d := s.Authz.Send(ctx, who, tag)
	_, err = s.Events.Fire(ctx, d, protocol.Fire{Events: []event.Item{{Tag: tag, Data: raw}}}, from)
	return err
}

// machine is the master's own machine for functions of minions that a runner
// runs on it. It has no id, no bus and no jobs of a minion.
func (s *Server) machine() *function.Host {
	return &function.Host{
		Version: s.Host.Version, Config: s.Config(), Paths: function.Paths{CacheDir: s.CacheDir}, Log: s.Host.Log,
		Grains: sync.OnceValue(func() map[string]any {
			facts, err := s.Grains(s.ctx)
			if err != nil {
				s.Host.Log.Warn("some grains of the master's machine are missing", "err", err)
			}
			return facts
		}),
	}
}
