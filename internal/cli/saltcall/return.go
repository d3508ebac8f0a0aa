package saltcall

import (
	"context"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/route"
	"github.com/brinebus/brine/internal/extension"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/returner"
	"github.com/brinebus/brine/internal/salt"
)

// returners prepares the returners that get the return besides the master.
func (c *call) returners(fire route.Fire) (returner.Set, error) {
	host := &returner.Host{ID: c.cfg.ID, Config: c.cfg.Raw, Log: c.log.Logger, Custom: extension.OfMinion(extension.Returners, c.cfg.ModuleDirs, c.cfg.CacheDir, c.log.Logger), ConfigDir: c.cfg.ConfigDir, Disabled: c.cfg.DisableReturners}
	if fire != nil {
		host.Fire = func(ctx context.Context, tag string, data any) error {
			ctx, cancel := context.WithTimeout(ctx, c.wait)
			defer cancel()
			return fire(ctx, tag, data)
		}
	}
	s, err := returner.Open([]string{c.opts.String("return")}, returner.Options{Tag: c.opts.String("tag")}, host)
	if err != nil {
		return s, cli.Fail(cli.Failed, err)
	}
	return s, nil
}

func returned(id salt.MinionID, jid salt.JID, command job.Command, res function.Result) returner.Return {
	e := &job.Envelope{Commands: []job.Command{command}}
	return returner.Return{
		ID: id, JID: jid, Fun: e.Fun(), Args: e.Arguments(), Return: res.Return, Retcode: res.Retcode, Success: res.Success,
	}
}
