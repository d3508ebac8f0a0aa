package function

import (
	"context"
	"errors"
	"time"

	"github.com/brinebus/brine/internal/salt"
)

// Publisher reaches other minions, and the runners of the master, through the master. A refusal
// of the master is an error that wraps ErrRefused.
type Publisher interface {
	// Publish runs functions on other minions and returns when no more returns are expected.
	// For a target without minions the error wraps ErrNoMatch.
	Publish(ctx context.Context, p Publication) ([]Answer, error)
	// Runner runs a runner or a wheel function. If it fails, the error says why, and what is
	// known so far is returned with it.
	Runner(ctx context.Context, q RunnerCall) (RunnerAnswer, error)
}

// RunnerCall is a runner, or a wheel function, that is to be run on the master.
type RunnerCall struct {
	salt.Command
	Wheel   bool
	Timeout time.Duration // for its return; 0 waits as long as it runs
	Async   bool          // start it, and do not wait
}

// RunnerAnswer is the result of a runner.
type RunnerAnswer struct {
	JID     salt.JID
	Tag     string // its events on the master's bus begin with it
	Return  any    // nil with Async
	Out     string // the outputter that suits Return
	Retcode int
}

// Publication is what is to be run where.
type Publication struct {
	Target, TargetType string
	Calls              []salt.Command // several for a compound command
	Compound           bool
	Timeout            time.Duration // for minions that are connected and silent
	Returner           string
	Via                string // the master to go through, as MasterConnection names it; "" is any
	Check              bool   // run nothing: only return the target minions, if permitted
	Async              bool   // start it, and do not wait
}

// Answer is the result of a publication on one minion.
type Answer struct {
	JID      salt.JID // of the job
	ID       salt.MinionID
	Returned bool
	Failed   bool // it returned, and the function had failed
	Return   any
	Out      string // the outputter that suits Return
	Retcode  any    // of the function; by return of a compound command
	Text     string // why it did not return
}

// ErrNoMatch is wrapped by the error for a target that matches no minion.
var ErrNoMatch = errors.New("no minion matched")

// Inner returns the commands of a publication as the master decides about them.
func (p Publication) Inner() []Inner {
	list := make([]Inner, len(p.Calls))
	for i, c := range p.Calls {
		list[i] = Inner{Way: Published, Command: c, Target: p.Target, TargetType: p.TargetType}
	}
	return list
}

// Inner returns the command as the master decides about it.
func (q RunnerCall) Inner() Inner {
	if q.Wheel {
		return Inner{Way: Wheel, Command: q.Command}
	}
	return Inner{Way: ByMaster, Command: q.Command}
}
