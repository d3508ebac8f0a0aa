package runnerjob

import (
	"context"
	"time"

	"github.com/brinebus/brine/internal/authz"
	"github.com/brinebus/brine/internal/dispatch"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/module"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// host is how runners reach this master, with the rights of who. Long events of the journal are
// read in turns.
func (s *Server) host(who authz.Principal, long *longRead) *runner.Host {
	h, by, config := s.Host, caller{s, who}, s.Config()
	h.Access, h.EventReader, h.EventSender, h.Publisher, h.Running = s.Authz.Access(who, ""), reader{by, long}, by, by, by
	h.Tokens = s.Authz.Logins.Tokens(who)
	h.Functions = module.Builtin()
	h.Audit, h.Keys, h.Config, h.Machine = auditLog{s.AuditLog, who.Who()}, s.Keys(who.Who()), config, runner.Machine{Version: s.Host.Version, CacheDir: s.CacheDir, Log: s.Host.Log}.Host(s.ctx, config)
	return &h
}

// caller implements what a runner does with the rights of its user.
type caller struct {
	*Server
	who authz.Principal
}

// Resolve implements runner.Publisher.
func (s caller) Resolve(expression, kind string) ([]salt.MinionID, error) {
	p := s.Authz.Ping(s.ctx, s.who, protocol.Publish{Target: expression, TargetType: kind})
	return p.Start().Minions, p.Err()
}

// Execute implements runner.Publisher.
func (s caller) Execute(ctx context.Context, e runner.Execute) ([]job.Update, error) {
	return s.execute(ctx, s.who, protocol.Publish{Target: e.Target, TargetType: e.TargetType, Commands: []job.Command{e.Command}, Timeout: job.Seconds(e.Timeout.Seconds())})
}

// Ping implements runner.Publisher.
func (s caller) Ping(ctx context.Context, tgt, kind string, timeout time.Duration) ([]job.Update, error) {
	return s.execute(ctx, s.who, protocol.Publish{Target: tgt, TargetType: kind, Commands: []job.Command{{Function: "test.ping"}}, Timeout: job.Seconds(timeout.Seconds()), Internal: true})
}

// Runs implements runner.Running.
func (s caller) Runs(ctx context.Context, jid salt.JID) []job.Summary {
	return s.Active.Runs(ctx, jid, func(*dispatch.Job) bool { return true })
}

// Cancel implements runner.Running.
func (s caller) Cancel(ctx context.Context, jid salt.JID) ([]salt.MinionID, error) {
	return s.Jobs.Cancel(ctx, jid, s.who.Name())
}

// Await implements runner.Running.
func (s caller) Await(ctx context.Context, jid salt.JID) error {
	return s.Jobs.Await(ctx, s.who.Key(), jid)
}

// reader implements runner.EventReader.
type reader struct {
	caller
	long *longRead
}

// Events implements runner.EventReader.
func (s reader) Events(ctx context.Context, subject string, since time.Time, f func(event.Event) error) error {
	return s.Journal.Read(ctx, journal.Query{Subjects: []string{subject}, Since: since, Long: s.long.begin}, f)
}

// SendEvent implements runner.EventSender. The sender of the event is the user of the runner,
// who may fire only what they could fire without it.
func (s caller) SendEvent(ctx context.Context, tag string, data any) error {
	raw, err := value.Encode(data)
	if err != nil {
		return err
	}
	from, d := s.Authz.Send(ctx, s.who, tag)
	_, err = s.Events.Fire(ctx, d, protocol.Fire{Events: []event.Item{{Tag: tag, Data: raw}}}, from)
	return err
}
