package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// RunnerOptions change how a runner is run. The zero value is usual.
type RunnerOptions struct {
	Timeout time.Duration // for runners that wait for minions; 0 is as the master has it
	// Begun is told what the runner is at the master as soon as it begins; nil is nobody.
	Begun func(RunnerJob)
	// Detach leaves it to the master, as [Conn.StartRunner] does: nothing is returned.
	Detach bool
}

// RunnerJob is a runner that goes on at the master: its jid, and the tag of its events.
type RunnerJob struct{ ID, Tag string }

// Runner runs a runner on the master and returns what that returns. One that has failed is a [RunnerError].
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

// Result is what a runner or a wheel function has returned, not taken apart: the members of its maps have the order in
// which they were made.
type Result struct {
	JSON      json.RawMessage
	Success   bool
	Retcode   int
	Outputter string // what it would have its value shown by, one of those of 'salt --out'; "" is the usual one
}

// Value is what was returned, as [Conn.Runner] returns it.
func (r Result) Value() (any, error) {
	v, err := value.Decode(r.JSON)
	if err != nil {
		err = fmt.Errorf("unreadable answer: %w", err)
	}
	return v, err
}

// RunnerResult is [Conn.Runner] for who prints what was returned or passes it on. One that has returned and says that it
// did not succeed is not an error here.
func (c *Conn) RunnerResult(ctx context.Context, cmd Command, opts ...RunnerOptions) (Result, error) {
	return c.result(ctx, cmd, protocol.Run{}, opts)
}

// WheelResult is the same of a wheel function.
func (c *Conn) WheelResult(ctx context.Context, cmd Command, opts ...RunnerOptions) (Result, error) {
	return c.result(ctx, cmd, protocol.Run{Wheel: true}, opts)
}

// PreviewRunner says whether a runner may be run so, by its error, and runs nothing.
func (c *Conn) PreviewRunner(ctx context.Context, cmd Command, opts ...RunnerOptions) error {
	return c.preview(ctx, cmd, protocol.Run{Preview: true}, opts)
}

// PreviewWheel says whether a wheel function may be run so, and runs nothing.
func (c *Conn) PreviewWheel(ctx context.Context, cmd Command, opts ...RunnerOptions) error {
	return c.preview(ctx, cmd, protocol.Run{Preview: true, Wheel: true}, opts)
}

func (c *Conn) preview(ctx context.Context, cmd Command, q protocol.Run, opts []RunnerOptions) (err error) {
	if q.Command, err = cmd.wire(); err != nil {
		return err
	}
	last(opts).put(&q)
	return known(c.rpc.Ask(ctx, protocol.OpRun, q, nil))
}

// put sets what the options say.
func (o RunnerOptions) put(q *protocol.Run) {
	q.Timeout, q.Async = job.Seconds(o.Timeout.Seconds()), q.Async || o.Detach
}

// begin asks for a runner and reads how it begins.
func (c *Conn) begin(ctx context.Context, cmd Command, q protocol.Run, opts []RunnerOptions) (*rpc.Stream, RunnerJob, error) {
	var err error
	if q.Command, err = cmd.wire(); err != nil {
		return nil, RunnerJob{}, err
	}
	o := last(opts)
	o.put(&q)
	stream, err := c.rpc.Call(protocol.OpRun, q)
	if err != nil {
		return nil, RunnerJob{}, known(err)
	}
	var start protocol.RunStart
	if err := stream.Decode(ctx, &start); err != nil && !(q.Async && errors.Is(err, io.EOF)) { // it may be all that comes
		stream.Close()
		return nil, RunnerJob{}, known(err)
	}
	began := RunnerJob{string(start.JID), start.Tag}
	if o.Begun != nil {
		o.Begun(began)
	}
	return stream, began, nil
}

func (c *Conn) start(ctx context.Context, cmd Command, q protocol.Run, opts []RunnerOptions) (RunnerJob, error) {
	stream, started, err := c.begin(ctx, cmd, q, opts)
	if err == nil {
		stream.Close()
	}
	return started, err
}

func (c *Conn) run(ctx context.Context, cmd Command, q protocol.Run, opts []RunnerOptions) (any, error) {
	res, err := c.result(ctx, cmd, q, opts)
	if len(res.JSON) == 0 {
		return nil, err
	}
	v, unread := res.Value()
	if err == nil && !res.Success {
		err = runError(cmd.Function, protocol.RunResult{Retcode: res.Retcode})
	}
	return v, cmp.Or(err, unread)
}

// rawResult is protocol.RunResult with what was returned as it stands.
type rawResult struct {
	protocol.RunResult
	Return json.RawMessage `json:"return"`
}

func (c *Conn) result(ctx context.Context, cmd Command, q protocol.Run, opts []RunnerOptions) (Result, error) {
	stream, _, err := c.begin(ctx, cmd, q, opts)
	if err != nil {
		return Result{}, err
	}
	defer stream.Close()
	if last(opts).Detach {
		return Result{}, nil
	}
	var res rawResult
	if err := stream.Decode(ctx, &res); err != nil {
		return Result{}, known(err)
	}
	out := Result{JSON: res.Return, Success: res.Success, Retcode: res.Retcode, Outputter: res.Out}
	if len(out.JSON) == 0 {
		out.JSON = json.RawMessage("null")
	}
	if res.Error != "" {
		return out, runError(cmd.Function, res.RunResult)
	}
	return out, nil
}

// RunnerError is the error of a runner or wheel function that has failed: [ErrFailed] for errors.Is, or
// [ErrDenied] where it was refused something on the way.
type RunnerError struct {
	Function string
	Reason   string // "" where the function has returned something and says that it did not succeed
	because  []error
}

// Error implements error.
func (e *RunnerError) Error() string { return e.because[0].Error() }

// Unwrap is for errors.Is.
func (e *RunnerError) Unwrap() []error { return e.because }

// runError is why a runner has failed, nil where it has not.
func runError(function string, res protocol.RunResult) error {
	kind := ErrFailed
	if res.Retcode == protocol.RunRefused {
		kind = ErrDenied
	}
	switch {
	case res.Error != "":
		return &RunnerError{function, res.Error, []error{salt.WithHint(errors.New(res.Error), res.Hint), kind}}
	case !res.Success:
		return &RunnerError{function, "", []error{fmt.Errorf("%s has failed", function), kind}}
	}
	return nil
}
