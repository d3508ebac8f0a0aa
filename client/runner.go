package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// RunnerOptions change how a runner is run. The zero value is usual.
type RunnerOptions struct {
	Timeout time.Duration // for runners that wait for minions; 0 is as the master has it
}

// RunnerJob is a runner that goes on at the master: its jid, and the tag of its events.
type RunnerJob struct{ ID, Tag string }

// Runner runs a runner on the master and returns what that returns.
func (c *Conn) Runner(ctx context.Context, cmd Command, opts ...RunnerOptions) (any, error) {
	return c.run(ctx, cmd, protocol.Run{}, opts)
}

// Wheel runs a wheel function of the master.
func (c *Conn) Wheel(ctx context.Context, cmd Command, opts ...RunnerOptions) (any, error) {
	return c.run(ctx, cmd, protocol.Run{Wheel: true}, opts)
}

// StartRunner starts a runner and leaves it to the master.
func (c *Conn) StartRunner(ctx context.Context, cmd Command, opts ...RunnerOptions) (RunnerJob, error) {
	return c.start(ctx, cmd, protocol.Run{Async: true}, opts)
}

// StartWheel starts a wheel function and leaves it to the master.
func (c *Conn) StartWheel(ctx context.Context, cmd Command, opts ...RunnerOptions) (RunnerJob, error) {
	return c.start(ctx, cmd, protocol.Run{Async: true, Wheel: true}, opts)
}

// PreviewRunner says whether a runner may be run, by its error, and runs nothing.
func (c *Conn) PreviewRunner(ctx context.Context, cmd Command) error {
	return c.preview(ctx, cmd, protocol.Run{Preview: true})
}

// PreviewWheel says whether a wheel function may be run, and runs nothing.
func (c *Conn) PreviewWheel(ctx context.Context, cmd Command) error {
	return c.preview(ctx, cmd, protocol.Run{Preview: true, Wheel: true})
}

func (c *Conn) preview(ctx context.Context, cmd Command, q protocol.Run) (err error) {
	if q.Command, err = cmd.wire(); err != nil {
		return err
	}
	return known(c.rpc.Ask(ctx, protocol.OpRun, q, nil))
}

// begin asks for a runner and reads how it begins.
func (c *Conn) begin(ctx context.Context, cmd Command, q protocol.Run, opts []RunnerOptions) (*rpc.Stream, RunnerJob, error) {
	var err error
	if q.Command, err = cmd.wire(); err != nil {
		return nil, RunnerJob{}, err
	}
	for _, o := range opts {
		q.Timeout = job.Seconds(o.Timeout.Seconds())
	}
	stream, err := c.rpc.Call(protocol.OpRun, q)
	if err != nil {
		return nil, RunnerJob{}, known(err)
	}
	var start protocol.RunStart
	if err := stream.Decode(ctx, &start); err != nil && !(q.Async && errors.Is(err, io.EOF)) { // it may be all that comes
		stream.Close()
		return nil, RunnerJob{}, known(err)
	}
	return stream, RunnerJob{string(start.JID), start.Tag}, nil
}

func (c *Conn) start(ctx context.Context, cmd Command, q protocol.Run, opts []RunnerOptions) (RunnerJob, error) {
	stream, started, err := c.begin(ctx, cmd, q, opts)
	if err == nil {
		stream.Close()
	}
	return started, err
}

func (c *Conn) run(ctx context.Context, cmd Command, q protocol.Run, opts []RunnerOptions) (any, error) {
	stream, _, err := c.begin(ctx, cmd, q, opts)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	var res protocol.RunResult
	if err := stream.Decode(ctx, &res); err != nil {
		return nil, known(err)
	}
	return res.Return.V, runError(cmd.Function, res)
}

// runError is why a runner has failed, nil where it has not.
func runError(function string, res protocol.RunResult) error {
	kind := ErrFailed
	if res.Retcode == protocol.RunRefused {
		kind = ErrDenied
	}
	switch {
	case res.Error != "":
		return failure{salt.WithHint(errors.New(res.Error), res.Hint), kind}
	case !res.Success:
		return failure{fmt.Errorf("%s has failed", function), kind}
	}
	return nil
}
