package runner

import (
	"context"
	"fmt"
	"time"

	"brine/internal/job"
	"brine/internal/module"
	"brine/internal/salt"
)

// saltModule runs functions: of minions on minions, and on the master's machine.
func saltModule(h *Host) *module.Module {
	e := execution{h}
	return &module.Module{Name: "salt", Doc: "Functions of minions, run by a runner.", Functions: []module.Function{
		{Name: "cmd", Doc: "Run a function of minions on the machine of the master, as the user of the master.", Example: "salt-run salt.cmd test.ping\nsalt-run salt.cmd cmd.run 'df -h'",
			Params: []module.Param{{Name: "fun", Kind: module.String, Required: true}}, Varargs: true, Kwargs: true, Run: e.cmd},
		{Name: "execute", Doc: "Run a function on minions and return what each returned. Whoever asks must be allowed to publish it.",
			Example: "salt-run salt.execute '*' test.ping\nsalt-run salt.execute 'G@os:Debian' cmd.run arg='[uptime]' tgt_type=compound",
			Params: []module.Param{{Name: "tgt", Kind: module.String, Required: true}, {Name: "fun", Kind: module.String, Required: true},
				{Name: "arg", Kind: module.List}, {Name: "timeout", Kind: module.Float, Default: 5.0}, {Name: "tgt_type", Kind: module.String, Default: "glob"},
				{Name: "kwarg", Kind: module.Map}}, Run: e.execute},
	}}
}

type execution struct{ *Host }

func (e execution) cmd(ctx context.Context, c *module.Call) (any, error) {
	fun, err := salt.ParseFunction(c.String("fun"))
	if err != nil {
		return nil, err
	}
	res := module.Run(ctx, module.Call{JID: c.JID, Function: fun, Args: c.Varargs(), Kwargs: c.Extra(), Host: e.Machine})
	if res.Err != nil {
		return nil, res.Err
	}
	c.SetRetcode(res.Retcode)
	return res.Return, nil
}

func (e execution) execute(ctx context.Context, c *module.Call) (any, error) {
	fun, err := salt.ParseFunction(c.String("fun"))
	if err != nil {
		return nil, err
	}
	rets, err := e.returns(ctx, c, Execute{
		Target: c.String("tgt"), TargetType: c.String("tgt_type"), Command: job.Command{Function: fun, Args: c.List("arg"), Kwargs: c.Map("kwarg")},
		Timeout: time.Duration(c.Float("timeout") * float64(time.Second)),
	})
	out := make(map[string]any, len(rets))
	for id, v := range rets {
		out[string(id)] = v
	}
	return out, err
}

// returns runs a job and returns what each minion returned. Those that did not
// return are named in the log only, as with Salt; the return code is then 1.
func (h *Host) returns(ctx context.Context, c *module.Call, e Execute) (map[salt.MinionID]any, error) {
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
