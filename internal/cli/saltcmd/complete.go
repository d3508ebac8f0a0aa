package saltcmd

import (
	"context"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/protocol"
)

// complete completes targets, by id and by nodegroup, and functions.
func complete(ctx context.Context, env *cli.Env, c cli.Completion) []string {
	doc := c.Opts.Bool("doc")
	switch n := len(c.Words); {
	case c.Flag != "":
		return nil
	case n == 1 && !doc || n == 0 && doc:
		return client.WordsInList(ctx, env, c, protocol.FunctionWords)
	case n > 0:
		return nil
	}
	return client.TargetWords(ctx, env, c)
}
