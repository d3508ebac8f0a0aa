package saltrun

import (
	"context"
	"strings"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/protocol"
)

// complete completes runners and wheel functions, and the first argument of those about jobs, keys
// and minions.
func complete(ctx context.Context, env *cli.Env, c cli.Completion) []string {
	kind := protocol.RunnerWords
	switch n := len(c.Words); {
	case c.Flag != "" || n > 1:
		return nil
	case n == 1 && strings.HasPrefix(c.Words[0], "jobs."):
		kind = protocol.JobWords
	case n == 1 && (strings.HasPrefix(c.Words[0], "key.") || strings.HasPrefix(c.Words[0], "cache.")):
		kind = protocol.MinionWords
	case n == 1:
		return nil
	case c.Opts.Bool("wheel"):
		kind = protocol.WheelWords
	}
	return client.Words(ctx, env, c, kind, c.Prefix)
}
