package dispatch

import (
	"context"
	"errors"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// unknown are the functions of a job that are not known here: extensions, or misspelled. If
// nobody waits for the job, nobody would see its failure, so the start of the job waits until
// one of the minions has begun it.
type unknown struct {
	names   map[salt.Function]bool
	minions int    // that have reported a missing function
	said    string // the text of one of them
	found   bool
}

// errFound ends the waiting.
var errFound = errors.New("found")

// unknownOf returns the functions of a request that are not in the tables of this program.
func (d *Dispatcher) unknownOf(commands []job.Command) *unknown {
	u := &unknown{names: map[salt.Function]bool{}}
	for _, c := range commands {
		if d.Known != nil && !d.Known(c.Function) {
			u.names[c.Function] = true
		}
	}
	return u
}

// begun waits until a minion has begun the job, all have reported missing functions, or the
// job's timeout has passed. The error, only in the second case, is what a minion has reported.
func (u *unknown) begun(ctx context.Context, w *watcher) error {
	if len(u.names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, w.run.plan.Timeout.Duration())
	defer cancel()
	err := w.each(ctx, func(t update) error { return u.hear(w.run.d, ctx, t) })
	if u.found || u.minions == 0 || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	if err != nil {
		return err
	}
	return rpc.Errorf(rpc.NotFound, "%s", u.said).WithHint("'salt-run jobs.lookup_jid %s' shows what each minion has said", w.run.plan.Start.JID)
}

// hear handles an update about one minion.
func (u *unknown) hear(d *Dispatcher, ctx context.Context, t update) error {
	switch {
	case t.State == job.Running:
		u.found = true
		return errFound
	case !t.State.Returned():
		return nil
	}
	left := int(maxInline)
	one, err := d.whole(ctx, t, &left)
	if err != nil {
		return err
	}
	if said := u.missing(one.Return); said != "" {
		u.minions, u.said = u.minions+1, said
		return nil
	}
	u.found = true
	return errFound
}

// missing returns a minion's message about a missing function; "" if it has all.
func (u *unknown) missing(ret value.Value) string {
	each, compound := ret.V.(map[string]any)
	for name := range u.names {
		said := ret.V
		if compound {
			said = each[string(name)]
		}
		if function.SaysUnknown(name, said) {
			return said.(string)
		}
	}
	return ""
}
