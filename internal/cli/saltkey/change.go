package saltkey

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// verb is one of the three decisions about keys.
type verb struct {
	act       string // its name in the master's events
	option    string // the option that names the keys; with "-all" appended, the one for all
	done      string // "accepted"
	byDefault bool   // what Enter means
	apply     func(keys, pki.Entry) error
	states    func(t *tool) []pki.State // the states that patterns without a fingerprint match
}

var (
	accept   = verb{"accept", "accept", "accepted", true, keys.Accept, acceptStates}
	reject   = verb{"reject", "reject", "rejected", true, keys.Reject, rejectStates}
	deletion = verb{"delete", "delete", "deleted", false, keys.Delete, func(*tool) []pki.State { return pki.AllStates() }}
)

// acceptStates includes denied keys only with their own option: a key whose id belongs to
// another key must not be accepted with the rest by accident.
func acceptStates(t *tool) []pki.State {
	states := []pki.State{pki.Pending}
	if t.opts.Bool("include-rejected") || t.opts.Bool("include-all") {
		states = append(states, pki.Rejected)
	}
	if t.opts.Bool("include-denied") {
		states = append(states, pki.Denied)
	}
	return states
}

func rejectStates(t *tool) []pki.State {
	states := []pki.State{pki.Pending}
	if t.opts.Bool("include-accepted") || t.opts.Bool("include-all") {
		states = append(states, pki.Accepted)
	}
	if t.opts.Bool("include-denied") {
		states = append(states, pki.Denied)
	}
	return states
}

// runNamed decides about the keys that the option names. If one of the names matches nothing,
// nothing is changed.
func (v verb) runNamed(ctx context.Context, t *tool) error {
	patterns, err := pki.ParsePatterns(t.opts.StringSlice(v.option), t.hash)
	if err != nil {
		return cli.Fail(cli.Usage, err)
	}
	store, entries, err := t.entries()
	if err != nil {
		return err
	}
	chosen, err := pki.Pick(entries, patterns, v.states(t))
	if err != nil {
		return whereElse(err)
	}
	return v.decide(ctx, t, store, chosen)
}

// maxElsewhere is how many keys in other states a hint lists.
const maxElsewhere = 3

// whereElse adds to a pattern without a match what it matches in other states.
func whereElse(err error) error {
	var none *pki.NoMatchError
	if !errors.As(err, &none) || len(none.Elsewhere) == 0 {
		return err
	}
	var list []string
	for i, e := range none.Elsewhere {
		if i == maxElsewhere {
			list = append(list, "...")
			break
		}
		list = append(list, fmt.Sprintf("%s is %s", e.ID, pki.StateWords([]pki.State{e.State})))
	}
	return salt.WithHint(err, strings.Join(list, ", ")+"; the options --include-accepted, --include-rejected and --include-denied widen the choice")
}

// runAll decides about all keys of the states. If there are none, that is not an error: a
// script may repeat it.
func (v verb) runAll(ctx context.Context, t *tool) error {
	store, entries, err := t.entries()
	if err != nil {
		return err
	}
	states := v.states(t)
	chosen := slices.DeleteFunc(entries, func(e pki.Entry) bool { return !slices.Contains(states, e.State) })
	if len(chosen) == 0 && !t.quiet() {
		t.env.Note("there is no key to be %s", v.done)
	}
	return v.decide(ctx, t, store, chosen)
}

// decide asks, carries it out, and prints what was done.
func (v verb) decide(ctx context.Context, t *tool, store keys, chosen []pki.Entry) error {
	if err := v.checkConflicts(chosen); err != nil {
		return err
	}
	if len(chosen) > 0 {
		switch yes, err := v.confirm(ctx, t, chosen); {
		case err != nil:
			return err
		case !yes:
			t.env.Reply("nothing changed")
			return nil
		}
	}
	t.announce(ctx, v.act, chosen)
	done, err := v.carryOut(t, store, chosen)
	if !t.forPeople() && !t.quiet() {
		err = errors.Join(t.show(v.result(t, done)), err)
	}
	return err
}

// checkConflicts refuses to accept two keys for one id, before any is accepted.
func (v verb) checkConflicts(chosen []pki.Entry) error {
	if v.done == accept.done && severalKeys(chosen) {
		return salt.WithHint(errors.New("two of these keys have the same id, which can have one accepted key only"),
			"name one by its fingerprint, as in web1@SHA256:0f:5b:13:aa; salt-key -L -v shows them")
	}
	return nil
}

// confirm shows what is going to happen and asks, unless -y is given. If standard output is for
// the result only, the list goes to standard error.
func (v verb) confirm(ctx context.Context, t *tool, chosen []pki.Entry) (bool, error) {
	intro := fmt.Sprintf("The following keys are going to be %s:", v.done)
	list, err := t.keyList(chosen)
	if err != nil {
		return false, err
	}
	if err := t.tell("%s\n%s", intro, list); err != nil || t.opts.Bool("yes") {
		return err == nil, err
	}
	if t.quiet() || !t.forPeople() {
		fmt.Fprintf(t.env.Stderr, "%s\n%s\n", intro, list)
	}
	yes, err := t.env.Confirm(ctx, "Proceed?", v.byDefault)
	if errors.Is(err, cli.ErrNoInput) {
		return false, salt.WithHint(fmt.Errorf("%w; nothing changed", err), "-y proceeds without asking")
	}
	return yes, err
}

// carryOut changes what it can and reports what it cannot.
func (v verb) carryOut(t *tool, store keys, chosen []pki.Entry) (done []pki.Entry, err error) {
	failed := cli.OK
	for i, label := range t.labels(chosen, false) {
		if err := v.apply(store, chosen[i]); err != nil {
			failed = max(failed, t.env.Report(explain(err)))
			continue
		}
		done = append(done, chosen[i])
		if err := t.tell("Key for minion %s %s.", label, v.done); err != nil {
			return done, err
		}
	}
	return done, cli.Exit(failed)
}

// result is the result for programs: the keys by their new state, as Salt's wheel functions
// return it; deleted ones by their old state.
func (v verb) result(t *tool, done []pki.Entry) map[string]any {
	moved := slices.Clone(done)
	for i := range moved {
		switch v.done {
		case accept.done:
			moved[i].State = pki.Accepted
		case reject.done:
			moved[i].State = pki.Rejected
		}
	}
	return t.idLists(moved, nil)
}
