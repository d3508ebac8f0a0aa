package saltcall

import (
	"context"
	"fmt"
	"strings"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
)

// isCheck reports whether the caller is a monitoring program that needs one line and an exit code:
// for status.master without an argument or an output option.
func isCheck(opts *urcli.Context, c job.Command) bool {
	return c.Function == "status.master" && len(c.Args)+len(c.Kwargs) == 0 && !opts.IsSet("out") && !opts.Bool("local")
}

// check shows the state of the connections between the minion's daemon and its masters.
func check(ctx context.Context, env *cli.Env, opts *urcli.Context, cfg *config.Minion) error {
	wait, err := patience(opts, cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	conn, err := client.Dial(env, cfg.SockDir, client.MinionSocket)
	if err != nil {
		return client.Unwell(env, err)
	}
	defer conn.Close()
	var s protocol.Status
	if err := conn.Ask(ctx, protocol.OpStatus, nil, &s); err != nil {
		return client.Unwell(env, client.Error(err))
	}
	level, text := judge(s)
	return client.Checked(env, level, text)
}

// judge returns the result for the status of a minion's daemon.
func judge(s protocol.Status) (level client.Level, text string) {
	var in, out []string
	for _, m := range s.Masters {
		if m.Connected {
			in = append(in, m.Master)
		} else {
			out = append(out, m.Master)
		}
	}
	waiting := fmt.Sprintf("%d messages wait in the outbox", s.Outbox)
	switch {
	case len(s.Masters) == 0:
		return client.LevelOK, "the minion is to have no master"
	case len(in) == 0:
		return client.LevelCritical, "no master is connected; the minion waits for " + s.Waiting + "; " + waiting
	case len(out) > 0:
		return client.LevelWarning, "not connected to " + strings.Join(out, ", ") + ", but to " + strings.Join(in, ", ") + "; " + waiting
	}
	return client.LevelOK, "connected to " + strings.Join(in, ", ") + "; " + waiting
}
