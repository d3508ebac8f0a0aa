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

// RunnerOptions change how a runner is run. The zero value has the defaults.
type RunnerOptions struct {
	Timeout time.Duration // for runners that wait for minions; 0 means the master's default
	// Begun is called with the runner's job as soon as it begins; it may be nil.
	Begun func(RunnerJob)
	// Detach returns when the runner has begun, without its result, like [Conn.StartRunner].
	Detach bool
}

// RunnerJob is a runner that runs on the master: its jid, and the tag of its events.
type RunnerJob struct{ ID, Tag string }

// Runner runs a runner on the master and returns its result. If it fails, the error is a
// [RunnerError].
func (c *Conn) Runner(ctx context.Context, cmd Command, opts ...RunnerOptions) (any, error) {
	return c.run(ctx, cmd, protocol.Run{}, opts)
}

// Wheel runs a wheel function of the master and returns its result.
func (c *Conn) Wheel(ctx context.Context, cmd Command, opts ...RunnerOptions) (any, error) {
	return c.run(ctx, cmd, protocol.Run{Wheel: true}, opts)
}

// StartRunner starts a runner without waiting for its result.
func (c *Conn) StartRunner(ctx context.Context, cmd Command, opts ...RunnerOptions) (RunnerJob, error) {
	return c.start(ctx, cmd, protocol.Run{Async: true}, opts)
}

// StartWheel starts a wheel function without waiting for its result.
func (c *Conn) StartWheel(ctx context.Context, cmd Command, opts ...RunnerOptions) (RunnerJob, error) {
	return c.start(ctx, cmd, protocol.Run{Async: true, Wheel: true}, opts)
}

// Result is the result of a runner or a wheel function, not decoded: the members of its maps
// are in their original order.
type Result struct {
	JSON      json.RawMessage
	Success   bool
	Retcode   int
	Outputter string // how the function wants its value to be shown, a value of 'salt --out'; "" is the default
}

// Value decodes the result, to what [Conn.Runner] returns.
func (r Result) Value() (any, error) {
	v, err := value.Decode(r.JSON)
	if err != nil {
		err = fmt.Errorf("unreadable answer: %w", err)
	}
	return v, err
}

// RunnerResult is [Conn.Runner] for programs that print the result or pass it on. It returns no
// error for a runner that has returned a result with success false.
func (c *Conn) RunnerResult(ctx context.Context, cmd Command, opts ...RunnerOptions) (Result, error) {
	return c.result(ctx, cmd, protocol.Run{}, opts)
}

// WheelResult is the same for a wheel function.
func (c *Conn) WheelResult(ctx context.Context, cmd Command, opts ...RunnerOptions) (Result, error) {
	return c.result(ctx, cmd, protocol.Run{Wheel: true}, opts)
}

// PreviewRunner returns the error that running this runner would be refused with, nil if it is
// permitted. It runs nothing.
func (c *Conn) PreviewRunner(ctx context.Context, cmd Command, opts ...RunnerOptions) error {
	return c.preview(ctx, cmd, protocol.Run{Preview: true}, opts)
}

// PreviewWheel is the same for a wheel function.
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

// put adds the options to a request.
func (o RunnerOptions) put(q *protocol.Run) {
	q.Timeout, q.Async = job.Seconds(o.Timeout.Seconds()), q.Async || o.Detach
}

// begin sends a request for a runner and reads the start of the answer.
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
	if err := stream.Decode(ctx, &start); err != nil && !(q.Async && errors.Is(err, io.EOF)) { // there may be no further message
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

// rawResult is protocol.RunResult with the result not decoded.
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

// RunnerError is the error of a runner or wheel function that has failed. For errors.Is it is
// [ErrFailed], [ErrDenied] if the function itself was refused something, [ErrUnavailable] if the store of the
// masters cannot be asked now, or [ErrUsage] if its arguments are wrong.
type RunnerError struct {
	Function string
	Reason   string // "" if the function has returned a result with success false
	because  []error
}

// Error implements error.
func (e *RunnerError) Error() string { return e.because[0].Error() }

// Unwrap returns the kinds of the error, for errors.Is.
func (e *RunnerError) Unwrap() []error { return e.because }

// runError returns why a runner has failed, nil if it has not.
func runError(function string, res protocol.RunResult) error {
	kind := ErrFailed
	switch {
	case res.Retcode == protocol.RunRefused:
		kind = ErrDenied
	case res.Retcode == protocol.RunUnavailable && res.Error != "":
		kind = ErrUnavailable
	case res.Retcode == protocol.RunUsage && res.Error != "":
		kind = ErrUsage
	}
	switch {
	case res.Error != "":
		return &RunnerError{function, res.Error, []error{salt.WithHint(errors.New(res.Error), res.Hint), kind}}
	case !res.Success:
		return &RunnerError{function, "", []error{fmt.Errorf("%s has failed", function), kind}}
	}
	return nil
}
