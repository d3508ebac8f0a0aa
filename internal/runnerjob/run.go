package runnerjob

import (
	"context"
	"errors"

	"github.com/brinebus/brine/internal/authz"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/module"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// Run runs a runner, or a wheel function, for a local user.
func (s *Server) Run(ctx context.Context, r *rpc.Request) error {
	var q protocol.Run
	if err := r.Decode(&q); err != nil {
		return err
	}
	who := s.Authz.Principal(ctx, r.From)
	return s.Authz.Logins.While(ctx, who, func(ctx context.Context) error { return s.runFor(ctx, r, q, who) })
}

// runFor runs a runner or a wheel function for a principal, between the events
// salt/run/<jid>/new and ret, or those of salt/wheel.
func (s *Server) runFor(ctx context.Context, r *rpc.Request, q protocol.Run, who authz.Principal) error {
	kind := "run"
	if q.Wheel {
		kind = "wheel"
	}
	if err := runner.CheckSecrets(q.Command); err != nil {
		return rpc.Errorf(rpc.Usage, "%w", err) // before the arguments are stored in the journal or the audit log
	}
	p := s.Authz.Run(who, q.Command, q.Wheel, !q.Async)
	if err := r.Decide(p.Decision); err != nil || q.Preview {
		return err
	}
	ended := func() {}
	defer func() { ended() }()
	if q.Async {
		if err := s.checkCall(ctx, who, q); err != nil {
			return err
		}
		var err error
		if ended, err = s.unwatched.begin(who); err != nil {
			return err
		}
	}
	jid := s.NextJID()
	if p.Own() != "" {
		return s.runOwn(ctx, r, q, who, jid, p)
	}
	b := &booked{s, r, q, who, jid, p, "salt/" + kind + "/" + string(jid), map[string]any{
		"fun": map[bool]string{false: "runner.", true: "wheel."}[q.Wheel] + string(q.Command.Function), "jid": string(jid), "user": who.Name(), "fun_args": (&job.Envelope{Commands: []job.Command{q.Command}}).Arguments(),
	}}
	if begun, err := b.begin(ctx); !begun {
		return err
	}
	if !q.Async {
		return b.run(ctx)
	}
	end := ended
	ended = func() {} // not before the runner has ended
	s.wg.Go(func() {
		defer end()
		b.runUnwatched(s.ctx)
	})
	return nil
}

func (s *Server) runOne(ctx context.Context, who authz.Principal, jid salt.JID, q protocol.Run, reach salt.Reach, long *longRead) function.Result {
	table, call := s.call(who, q, long)
	call.JID, call.Reach = jid, reach
	return table.Run(ctx, call)
}

// call returns the table and the host for a command.
func (s *Server) call(who authz.Principal, q protocol.Run, long *longRead) (function.Table, function.Call) {
	h, c := s.host(who, long), q.Command
	table, machine := runner.Table(h), &function.Host{Version: s.Host.Version, Log: s.Host.Log, Config: h.Config, Paths: function.Paths{ConfigDir: s.ConfigDir}, Custom: h.Custom}
	if q.Wheel {
		table, machine.Custom = runner.Wheel(h), nil
	}
	return table, function.Call{Function: c.Function, Args: c.Args, Kwargs: c.Kwargs, Host: machine}
}

// checkCall returns an error for an unknown runner, or for wrong arguments, when nobody would see the failure.
func (s *Server) checkCall(ctx context.Context, who authz.Principal, q protocol.Run) error {
	table, call := s.call(who, q, s.longRead(who))
	if err := table.Unfit(ctx, call); err != nil {
		code := rpc.NotFound
		if function.IsUsage(err) {
			code = rpc.Usage
		}
		return rpc.Errorf(code, "%w", err).WithHint("%s", runner.Hint(err, q.Wheel, module.Builtin()))
	}
	return nil
}

// runResult is the answer for the caller. A refusal inside a runner is one.
func runResult(res function.Result, wheel bool) protocol.RunResult {
	text, hint := "", ""
	if res.Err != nil {
		text, hint = res.Err.Error(), runner.Hint(res.Err, wheel, module.Builtin())
		switch {
		case rpc.CodeOf(res.Err) == rpc.Denied:
			res.Retcode = protocol.RunRefused
		case errors.As(res.Err, new(salt.Unanswered)):
			res.Retcode = protocol.RunUnavailable
		case function.IsUsage(res.Err):
			res.Retcode = protocol.RunUsage
		}
	}
	return protocol.RunResult{Error: text, Hint: hint, Return: value.Value{V: res.Return}, Success: res.Success, Retcode: res.Retcode, Out: res.Out}
}

// PeerRun runs a runner, or a wheel function, for a minion.
func (s *Server) PeerRun(ctx context.Context, r *rpc.Request) error {
	var q protocol.Run
	if err := r.Decode(&q); err != nil {
		return err
	}
	list := []job.Command{q.Command}
	if err := protocol.ParseWords(list); err != nil {
		return err
	}
	q.Command = list[0]
	return s.runFor(ctx, r, q, s.Authz.Peer(r.From))
}

// execute runs a job for a runner, with its own rights or those of its user, and collects its
// progress.
func (s *Server) execute(ctx context.Context, who authz.Principal, q protocol.Publish) ([]job.Update, error) {
	permit := s.Authz.Publish
	if q.Internal {
		permit = s.Authz.Ping
	}
	return s.Jobs.Execute(ctx, q, who, permit(ctx, who, q))
}
