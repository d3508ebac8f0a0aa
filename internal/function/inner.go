package function

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// Calls describes a function that makes others do something: it runs them, stores them for
// later, or configures them. Only a row with Calls gets a Caller, and so reaches the engine,
// other minions, the runners of the master and the schedule. The decision about the function
// uses the row to find the inner commands, and decides about them as if each had been requested
// directly.
type Calls struct {
	// Read finds them in the arguments, and in nothing else: master and minion must get the
	// same result.
	Read func(a *Arguments) Reading
	Run  func(ctx context.Context, c *Call, r *Caller) (any, error)
}

// Reading is what the arguments of a function show about the commands inside it.
type Reading struct {
	Inner []Inner
	// Targets are targets among the arguments that the master evaluates later, to decide who
	// may read something.
	Targets []salt.Target
	// Hidden means that the function also does something that its arguments do not show: what
	// the minion has stored, or what a file or the pillar names.
	Hidden bool
}

// Way is where a command inside another runs.
type Way int

// The ways.
const (
	Here      Way = iota // where the outer function runs, in the same table
	Published            // on the minions of a target
	ByMaster             // a runner, on the master
	Wheel                // a wheel function, on the master
	OnMaster             // a function of minions, on the master's own machine
)

// Inner is one command inside another.
type Inner struct {
	Way                Way
	Command            salt.Command
	Target, TargetType string // of a Published one
}

// Key identifies the command with its arguments. It is "" if it cannot be encoded, which cannot
// happen with a received message.
func (i Inner) Key() string {
	args, kwargs := i.Command.Args, i.Command.Kwargs
	if args == nil {
		args = []any{}
	}
	if kwargs == nil {
		kwargs = map[string]any{}
	}
	b, err := value.Encode([]any{int64(i.Way), string(i.Command.Function), args, kwargs, i.Target, i.TargetType})
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return base64.RawStdEncoding.EncodeToString(sum[:])
}

// Runs makes the Read of a function that runs another one in the same place.
func Runs(f func(a *Arguments) salt.Command) func(a *Arguments) Reading {
	return func(a *Arguments) Reading { return Reading{Inner: []Inner{{Command: f(a)}}} }
}

// Nothing is the Read of a function with a Caller that runs, stores and starts no other one.
func Nothing(*Arguments) Reading { return Reading{} }

// Hidden is the Read of a function whose arguments do not show what it will run.
func Hidden(*Arguments) Reading { return Reading{Hidden: true} }

// maxInner limits the commands inside one, to any depth.
const maxInner = 100

// Read returns what the arguments of a command show about the commands inside it. A function
// that is not in the table is one of the site's own programs, or unknown: neither reaches the
// engine.
func (t Table) Read(c salt.Command) Reading {
	_, f := t.Find(string(c.Function))
	if f == nil || f.Calls == nil {
		return Reading{}
	}
	return f.read(c)
}

func (f *Function) read(c salt.Command) Reading {
	a, err := f.bind(c)
	if err != nil {
		return Reading{Hidden: true} // the function does not run here; another table may not refuse it
	}
	return f.Calls.Read(&a)
}

// ReachOf returns the reach for commands that were allowed with all their inner commands.
func (t Table) ReachOf(commands []salt.Command) salt.Reach {
	w := walk{table: t}
	for _, c := range commands {
		w.add(Inner{Command: c})
	}
	return w.reach
}

// walk collects the keys of inner commands.
type walk struct {
	table Table
	reach salt.Reach
	seen  int
}

func (w *walk) add(i Inner) {
	if w.seen++; w.seen > 2*maxInner || i.Way != Here {
		return
	}
	r := w.table.Read(i.Command)
	if r.Hidden {
		w.reach.Hidden = append(w.reach.Hidden, i.Key())
	}
	for _, inner := range r.Inner {
		w.reach.Judged = append(w.reach.Judged, inner.Key())
		w.add(inner)
	}
}

// UnjudgedError means that a function would have made another one do something without a
// decision about it. Neither has run.
type UnjudgedError struct {
	Function, Inner salt.Function // Inner is "" if it cannot be determined
}

func (e *UnjudgedError) Error() string {
	if e.Inner == "" {
		return fmt.Sprintf("what %s would run cannot be read from its arguments, and no rule of the master lets it run that", e.Function)
	}
	return fmt.Sprintf("%s would run %s, about which the master did not decide", e.Function, e.Inner)
}

// Unwrap makes it a refusal.
func (e *UnjudgedError) Unwrap() error { return ErrRefused }

// check refuses a command of the table that would do more than the reach allows, at any depth.
func (t Table) check(reach salt.Reach, i Inner, depth int) error {
	r := t.Read(i.Command)
	if depth > maxInner || r.Hidden && !slices.Contains(reach.Hidden, i.Key()) {
		return &UnjudgedError{Function: i.Command.Function}
	}
	for _, inner := range r.Inner {
		if !slices.Contains(reach.Judged, inner.Key()) {
			return &UnjudgedError{Function: i.Command.Function, Inner: inner.Command.Function}
		}
		if inner.Way != Here {
			continue
		}
		if err := t.check(reach, inner, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// Caller lets one call run other functions: only rows with Calls get one, and only for what
// they declare.
type Caller struct {
	c       *Call
	reading Reading
}

// Host is the minion of the call.
func (r *Caller) Host() *Host { return r.c.Host }

// caller checks what a call would make others do.
func (c *Call) caller(f *Function) (*Caller, error) {
	if !c.Reach.Free {
		if err := c.table.check(c.Reach, Inner{Command: c.asked}, 0); err != nil {
			c.retcode = CodeRefused
			return nil, err
		}
	}
	return &Caller{c: c, reading: f.Calls.Read(&c.arguments)}, nil
}

// declared refuses what the row does not declare, which is a bug of the row.
func (r *Caller) declared(i Inner) error {
	key := i.Key()
	if r.reading.Hidden || slices.ContainsFunc(r.reading.Inner, func(d Inner) bool { return d.Key() == key }) {
		return nil
	}
	return &UnjudgedError{Function: r.c.Function, Inner: i.Command.Function}
}

// Keeps refuses a call that would leave something in force that its arguments do not show,
// because it existed before: no decision was made about that combination.
func (r *Caller) Keeps(i Inner) error {
	if r.c.Reach.Free {
		return nil
	}
	err := r.declared(i)
	if err != nil {
		r.c.retcode = CodeRefused
	}
	return err
}

// Known returns an *UnknownError for a function that the call would store for later and that
// does not exist on this minion: it fails now, not when it is due.
func (r *Caller) Known(ctx context.Context) error {
	for _, i := range r.reading.Inner {
		if i.Way != Here {
			continue
		}
		c := Call{Function: i.Command.Function, Host: r.c.Host, table: r.c.table}
		if _, err := c.find(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Call runs another function for the same job, as a separate function.
func (r *Caller) Call(ctx context.Context, inner salt.Command) Result {
	call := Call{JID: r.c.JID, Function: inner.Function, Args: inner.Args, Kwargs: inner.Kwargs, Host: r.c.Host, Reach: r.c.Reach}
	if err := r.declared(Inner{Command: inner}); err != nil {
		call.retcode = CodeRefused
		return failed(&call, err)
	}
	if r.reading.Hidden {
		call.Reach.Free = true      // the check has allowed it
		call.Reach.Programs = false // the present caller has not chosen what was stored before
	}
	return r.c.table.Run(ctx, call)
}

// OnMaster runs a function of t, the table of minions, on the master's own machine, host.
func (r *Caller) OnMaster(ctx context.Context, t Table, c salt.Command, host *Host) Result {
	call := Call{JID: r.c.JID, Function: c.Function, Args: c.Args, Kwargs: c.Kwargs, Host: host, Reach: salt.Reach{Free: true}}
	if err := r.declared(Inner{Way: OnMaster, Command: c}); err != nil {
		call.retcode = CodeRefused
		return failed(&call, err)
	}
	return t.Run(ctx, call)
}

// Publisher returns the Publisher for other minions and runners of the master.
func (r *Caller) Publisher() (Publisher, error) {
	if r.c.Host.Publisher == nil {
		return nil, fmt.Errorf("Cannot run publish commands without a connection to a salt master. No command sent: %w", ErrUnavailable)
	}
	return declaredPublisher{r, r.c.Host.Publisher}, nil
}

// declaredPublisher is a Publisher for what the row declares.
type declaredPublisher struct {
	r  *Caller
	to Publisher
}

// Publish implements Publisher.
func (d declaredPublisher) Publish(ctx context.Context, p Publication) ([]Answer, error) {
	for _, i := range p.Inner() {
		if err := d.r.declared(i); err != nil {
			return nil, err
		}
	}
	return d.to.Publish(ctx, p)
}

// Runner implements Publisher.
func (d declaredPublisher) Runner(ctx context.Context, q RunnerCall) (RunnerAnswer, error) {
	if err := d.r.declared(q.Inner()); err != nil {
		return RunnerAnswer{}, err
	}
	return d.to.Runner(ctx, q)
}
