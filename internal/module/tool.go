package module

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/process"
)

// toolTimeout limits the system tools that functions use: one that takes longer hangs, for example
// on a dead file server or a lock.
const toolTimeout = 10 * time.Minute

// tool runs a program of the system in the C locale and returns its result. The error for a missing
// program is ErrUnavailable.
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

// output runs a program of the system that must succeed and returns its stdout.
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
