package module

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/process"
)

// toolTimeout bounds the tools of the system that functions ask: one that takes
// longer hangs, on a dead file server or a lock.
const toolTimeout = 10 * time.Minute

// tool runs a program of the system in the C locale and returns how it ended.
// A missing program is ErrUnavailable.
func tool(ctx context.Context, args ...string) (process.Ending, error) {
	if _, err := exec.LookPath(args[0]); err != nil {
		return process.Ending{}, function.Unavailable("program " + args[0])
	}
	p := process.Program{Args: args, Env: process.Environ(true), Timeout: toolTimeout}
	e, err := p.Run(ctx)
	if err == nil && e.TimedOut {
		err = fmt.Errorf("%s: no answer within %v", args[0], toolTimeout)
	}
	return e, err
}

// output runs a program of the system that must succeed and returns what it
// wrote to stdout.
func output(ctx context.Context, args ...string) (string, error) {
	e, err := tool(ctx, args...)
	if err != nil {
		return "", err
	}
	if e.Code != 0 {
		return "", e.Failure(args[0])
	}
	return e.Stdout, nil
}
