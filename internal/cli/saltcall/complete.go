package saltcall

import (
	"context"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/module"
)

// complete completes built-in functions: it needs no daemon.
func complete(_ context.Context, _ *cli.Env, c cli.Completion) []string {
	if c.Flag != "" || len(c.Words) > 0 {
		return nil
	}
	return module.Builtin().Functions("*")
}
