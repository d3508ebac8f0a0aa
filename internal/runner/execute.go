package runner

import (
	"context"
	"fmt"
	"time"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/salt"
)

// saltModule runs functions of minions, on minions and on the master's machine.
func saltModule(h *Host) *function.Module {
	e := execution{h}
	return &function.Module{Name: "salt", Doc: "Functions of minions, run by a runner.", Functions: []function.Function{
		{Name: "cmd", Class: function.AsDaemon, Doc: "Run a function of minions on the machine of the master, as the user of the master.", Example: "salt-run salt.cmd test.ping\nsalt-run salt.cmd cmd.run 'df -h'",
			Params: []function.Param{{Name: "fun", Kind: function.String, Required: true}}, Varargs: true, Kwargs: true, Calls: &function.Calls{Read: e.onMaster, Run: e.cmd}},
		{Name: "execute", Class: function.Changes, Doc: "Run a function on minions and return what each returned. The caller must be allowed to publish it.",
			Example: "salt-run salt.execute '*' test.ping\nsalt-run salt.execute 'G@os:Debian' cmd.run arg='[uptime]' tgt_type=compound",
			Params: []function.Param{{Name: "tgt", Kind: function.String, Required: true}, {Name: "fun", Kind: function.String, Required: true},
				{Name: "arg", Kind: function.List}, {Name: "timeout", Kind: function.Float, Default: 5.0}, {Name: "tgt_type", Kind: function.String, Default: "glob"},
				{Name: "kwarg", Kind: function.Map}}, Calls: &function.Calls{Read: executed, Run: e.execute}},
	}}
}

type execution struct{ *Host }

// onMaster reads the function that salt.cmd runs. A function inside it needs the same permission as
// if salt.cmd ran it directly.
func (e execution) onMaster(a *function.Arguments) function.Reading {
	c := salt.Command{Function: salt.Function(a.String("fun")), Args: a.Varargs(), Kwargs: a.Extra()}
	inside := e.Functions.Read(c)
	r := function.Reading{Inner: []function.Inner{{Way: function.OnMaster, Command: c}}, Hidden: inside.Hidden}
	for _, i := range inside.Inner {
		if i.Way == function.Here {
			i.Command.Args = append([]any{string(i.Command.Function)}, i.Command.Args...)
			i.Command.Function = "salt.cmd"
		}
		r.Inner = append(r.Inner, i)
	}
	return r
}

func (e execution) cmd(ctx context.Context, c *function.Call, r *function.Caller) (any, error) {
	fun, err := salt.ParseFunction(c.String("fun"))
	if err != nil {
		return nil, err
	}
	return e.onMachine(ctx, c, r, salt.Command{Function: fun, Args: c.Varargs(), Kwargs: c.Extra()})
}

// onMachine runs a function of minions on the master's machine and returns its return.
func (e execution) onMachine(ctx context.Context, c *function.Call, r *function.Caller, command salt.Command) (any, error) {
	res := r.OnMaster(ctx, e.Functions, command, e.Machine)
	if res.Err != nil {
		return nil, res.Err
	}
	c.SetRetcode(res.Retcode)
	return res.Return, nil
}

// job reads the job that a runner wants to run.
func (e Execute) job() function.Reading {
	c := salt.Command{Function: e.Command.Function, Args: e.Command.Args, Kwargs: e.Command.Kwargs}
	return function.Reading{Inner: []function.Inner{{Way: function.Published, Command: c, Target: e.Target, TargetType: e.TargetType}}}
}

// asked reads the arguments of salt.execute.
func asked(a *function.Arguments) Execute {
	return Execute{
		Target: a.String("tgt"), TargetType: a.String("tgt_type"), Command: job.Command{Function: salt.Function(a.String("fun")), Args: a.List("arg"), Kwargs: a.Map("kwarg")},
		Timeout: time.Duration(a.Float("timeout") * float64(time.Second)),
	}
}

func executed(a *function.Arguments) function.Reading { return asked(a).job() }

func (e execution) execute(ctx context.Context, c *function.Call, r *function.Caller) (any, error) {
	if _, err := salt.ParseFunction(c.String("fun")); err != nil {
		return nil, err
	}
	rets, err := e.returns(ctx, c, r, asked(c.Bound()))
	out := make(map[string]any, len(rets))
	for id, v := range rets {
		out[string(id)] = v
	}
	return out, err
}

// returns runs a job and returns the return of each minion. Minions that did not return are only
// logged, as in Salt; the return code is then 1.
func (h *Host) returns(ctx context.Context, c *function.Call, _ *function.Caller, e Execute) (map[salt.MinionID]any, error) {
	updates, err := h.Execute(ctx, e)
	if err != nil {
		return nil, fmt.Errorf("%s on %s: %w", e.Command.Function, e.Target, err)
	}
	rets := map[salt.MinionID]any{}
	last := map[salt.MinionID]job.State{}
	for _, u := range updates {
		last[u.ID] = u.State
		if u.State.Returned() {
			rets[u.ID] = u.Return.V
		}
	}
	for id, state := range last {
		if state != job.Done {
			c.SetRetcode(1)
			h.Log.Warn("a minion did not succeed", "jid", c.JID, "minion", id, "state", string(state))
		}
	}
	return rets, nil
}
