package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/salt"
)

// Runner runs a runner on the master and returns what that returns.
func (c *Conn) Runner(ctx context.Context, cmd Command) (any, error) { return c.run(ctx, cmd, false) }

// Wheel runs a wheel function of the master.
func (c *Conn) Wheel(ctx context.Context, cmd Command) (any, error) { return c.run(ctx, cmd, true) }

func (c *Conn) run(ctx context.Context, cmd Command, wheel bool) (any, error) {
	command, err := cmd.wire()
	if err != nil {
		return nil, err
	}
	stream, err := c.rpc.Call(protocol.OpRun, protocol.Run{Wheel: wheel, Command: command})
	if err != nil {
		return nil, known(err)
	}
	defer stream.Close()
	var start protocol.RunStart
	if err := stream.Decode(ctx, &start); err != nil {
		return nil, known(err)
	}
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
