package function

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/brinebus/brine/internal/salt"
)

// Result is the result of a call.
type Result struct {
	Return  any // what the function returned, or the text of its failure
	Retcode int
	Success bool   // whether Retcode is 0
	Out     string // the outputter that suits Return, "" for the usual one
	Err     error  // why the function failed; nil if it returned
}

// Run executes a function of the table.
func (t Table) Run(ctx context.Context, c Call) Result {
	if c.Host == nil {
		c.Host = &Host{}
	}
	c.table = t
	f, err := c.find(ctx)
	if err != nil {
		return failed(&c, err)
	}
	if c.Begun != nil {
		c.Begun()
	}
	if c.arguments, err = f.bind(salt.Command{Function: c.Function, Args: c.Args, Kwargs: c.Kwargs}); err != nil {
		return failed(&c, err)
	}
	value, err := c.invoke(ctx, f)
	if err != nil {
		return failed(&c, err)
	}
	code := c.retcode
	if code == 0 && !reportsSuccess(value) {
		code = 1
	}
	return Result{Return: value, Retcode: code, Success: code == 0, Out: f.Out}
}

// Missing returns why Run would not find the function of a call; nil if it exists.
func (t Table) Missing(ctx context.Context, c Call) error {
	if c.Host == nil {
		c.Host = &Host{}
	}
	c.table = t
	_, err := c.find(ctx)
	return err
}

// Unfit returns why Run would not begin a call: there is no such function, or the arguments do not match its signature.
func (t Table) Unfit(ctx context.Context, c Call) error {
	if c.Host == nil {
		c.Host = &Host{}
	}
	c.table = t
	f, err := c.find(ctx)
	if err == nil {
		_, err = f.bind(salt.Command{Function: c.Function, Args: c.Args, Kwargs: c.Kwargs})
	}
	return err
}

// find returns the function of the call: a built-in one, otherwise one of the site's own
// programs.
func (c *Call) find(ctx context.Context) (*Function, error) {
	if err := c.Host.offers(c.Function.Module()); err != nil {
		return nil, &UnknownError{Function: c.Function, Cause: err}
	}
	if _, f := c.table.Find(string(c.Function)); f != nil {
		return f, nil
	}
	f, err := c.Host.custom(ctx, string(c.Function))
	switch {
	case err != nil:
		return nil, &UnknownError{Function: c.Function, Cause: err}
	case f == nil:
		return nil, &UnknownError{Function: c.Function, Nearest: c.Available(ctx).Suggest(string(c.Function))}
	}
	return f, nil
}

// Available is everything that can be called.
func (c *Call) Available(ctx context.Context) Table {
	closed := func(m *Module) bool { return c.Host.offers(m.Name) != nil }
	return slices.DeleteFunc(c.table.With(ctx, c.Host.Custom), closed)
}

// invoke runs the function itself; a panic becomes an ExceptionError.
func (c *Call) invoke(ctx context.Context, f *Function) (value any, err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	defer func() {
		if p := recover(); p != nil {
			c.Host.Logger().Debug("function panicked", "jid", c.JID, "fun", c.Function, "panic", p, "stack", string(debug.Stack()))
			value, err = nil, &ExceptionError{fmt.Sprint(p)}
		}
	}()
	value, err = f.run(ctx, c)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = context.Cause(ctx)
	}
	return value, err
}

// run runs the function; one that makes others do something only if that is allowed.
func (f *Function) run(ctx context.Context, c *Call) (any, error) {
	if f.Calls == nil {
		return f.Run(ctx, c)
	}
	caller, err := c.caller(f)
	if err != nil {
		return nil, err
	}
	return f.Calls.Run(ctx, c, caller)
}

// failed is the result of a call that ended with err. A return code set by the function is
// kept.
func failed(c *Call, err error) Result {
	code := c.retcode
	if code == 0 {
		code = 1
	}
	return Result{Return: answer(c.Function, err), Retcode: code, Err: err}
}

// reportsSuccess follows Salt: a dictionary whose "result" or "success" is
// false is a failure, though the function returned.
func reportsSuccess(v any) bool {
	m, ok := v.(map[string]any)
	return !ok || m["result"] != false && m["success"] != false
}
