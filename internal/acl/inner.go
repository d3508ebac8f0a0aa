package acl

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
)

// Functions is what the tables of functions say of a command.
type Functions interface {
	Read(s Scope, c salt.Command) Reading
}

// Reading is what a command amounts to.
type Reading struct {
	// Inner are the commands that it runs, stores for later or configures. Each is
	// decided about as if it had been asked for.
	Inner []Inner
	// Targets say whom it serves later. Whoever may not look at pillar by the target of a
	// job may not by these.
	Targets []salt.Target
	// Hidden says that it also does what its arguments do not tell. It is then for
	// operators, and for those whose rule names it and says {runs: any}.
	Hidden bool
	// Naming is how a rule must name it.
	Naming Naming
	// Own says that a person who has no rule for it may have it for what is their own.
	Own bool
}

// Naming is how a rule must name a function to grant it. The zero value is in any way
// at all.
type Naming int

// The ways of naming.
const (
	AnyPattern    Naming = iota // the pattern matches it
	NamesModule                 // by its own name, or as @module
	NamesFunction               // by its own name
)

// Inner is a command inside another.
type Inner struct {
	Scope   Scope
	Command salt.Command
	// Published says that it goes to the minions of Target, instead of to those of
	// the question.
	Published          bool
	Target, TargetType string
}

// Machine is the scope of functions of minions that run on the master's own machine.
// Only the blacklist is asked about them: the rule that grants the runner that does so
// is the permission.
const Machine Scope = Mine + 1

// maxInner bounds the commands inside those of a question, to any depth.
const maxInner = 100

// inside decides about the commands inside those of a question that is allowed
// itself.
type inside struct {
	r     *Rules
	left  int
	names []string
}

// decideInner decides about what is inside the commands, given the decision about the
// commands themselves.
func (in *inside) decide(q *Question, d Decision) Decision {
	if q.Scope == Mine {
		return d
	}
	for i := range q.Commands {
		outer := &q.Commands[i]
		list, targets := q.within(i)
		if refused := in.judgeTargets(q, outer.Function, targets); refused != nil {
			return *refused
		}
		for _, inner := range list {
			if in.left--; in.left < 0 {
				return refusal("there are more than %d commands inside this one", maxInner)
			}
			if _, err := salt.ParseFunction(string(inner.Command.Function)); err != nil && in.r.standing(q.Subject).Operator {
				continue // no function: it is told when it is run
			}
			in.note(inner)
			one := in.judge(q, inner, d.Within)
			if one.Verdict != Allow {
				return one.inside(outer.Function, inner)
			}
			if !inner.Published {
				d.Within = append(slices.Clip(d.Within), one.Within...)
			}
		}
	}
	return d
}

// within is what the command of that number amounts to.
func (q *Question) within(i int) (list []Inner, targets []salt.Target) {
	if i == 0 {
		list = slices.Clip(q.Beside)
	}
	if q.Functions == nil {
		return list, nil
	}
	r := q.Functions.Read(q.Scope, q.Commands[i])
	return append(list, r.Inner...), r.Targets
}

// judgeTargets refuses a command that has targets that look at pillar, where no rule
// grants that: nil when nothing is to be refused.
func (in *inside) judgeTargets(q *Question, outer salt.Function, targets []salt.Target) *Decision {
	if in.r.standing(q.Subject).Operator {
		return nil
	}
	for _, n := range targets {
		t, err := q.parse(n.Expression, n.Kind)
		why := ""
		if err != nil {
			why = err.Error()
		} else {
			why = in.r.MayTarget(q.Subject, t)
		}
		if why != "" {
			d := refusal("%s: the target among its arguments: %s", outer, why)
			return &d
		}
	}
	return nil
}

func (in *inside) note(i Inner) {
	name := i.Scope.prefix() + string(i.Command.Function)
	if !slices.Contains(in.names, name) {
		in.names = append(in.names, name)
	}
}

// inside is the refusal of a command because of one that it would run.
func (d Decision) inside(outer salt.Function, i Inner) Decision {
	if i.Published {
		d.Nearest = nil // it is about another target
	}
	d.Reason = fmt.Sprintf("%s would run %s: %s", outer, i.Scope.prefix()+string(i.Command.Function), d.Reason)
	return d
}

// judge decides about one command inside those of q: for who asks, and where the
// minions of q ask the master for it, for each of those that the rules mean.
func (in *inside) judge(q *Question, i Inner, within []*target.Target) Decision {
	inner, operator := *q, in.r.standing(q.Subject).Operator
	inner.Scope, inner.Commands, inner.Beside = i.Scope, []salt.Command{i.Command}, nil
	if i.Published {
		var err error
		if inner.Target, err = q.parse(i.Target, i.TargetType); err != nil && !operator {
			return refusal("target: %v", err)
		}
		inner.Minions = nil
	}
	d := in.r.decide(&inner, in)
	if d.Verdict != Allow || operator || q.Scope != Minions || i.Scope == Minions && !i.Published {
		return d
	}
	for id := range q.meant(within) {
		inner.Subject = Subject{Kind: Peer, Name: string(id)}
		if d := in.r.decide(&inner, in); d.Verdict != Allow {
			return d
		}
	}
	return d
}

func (q *Question) parse(expr, kind string) (*target.Target, error) {
	if q.Parse == nil {
		return nil, fmt.Errorf("nobody knows what %q means", expr)
	}
	return q.Parse(expr, kind)
}

// meant are the minions of the question, of those that all of within mean.
func (q *Question) meant(within []*target.Target) iter.Seq[salt.MinionID] {
	if q.Target == nil || q.Fleet == nil {
		return slices.Values(q.Minions)
	}
	return func(yield func(salt.MinionID) bool) {
		targets := append(slices.Clip(within), q.Target)
		for _, id := range q.Fleet.IDs() {
			facts := q.Fleet.Facts(id)
			all := !slices.ContainsFunc(targets, func(t *target.Target) bool {
				ok, err := t.Match(facts)
				return !ok || err != nil
			})
			if all && !yield(id) {
				return
			}
		}
	}
}

// prefix stands before a function to tell where it runs.
func (s Scope) prefix() string {
	return map[Scope]string{Runner: "@runner ", Wheel: "@wheel ", Mine: "@mine ", Machine: "@master "}[s]
}

// reading is what the tables say of a command. Without tables nothing is known of it.
func (q *Question) reading(c *salt.Command) Reading {
	switch {
	case q.Scope == Mine:
		return Reading{} // these are entries, not functions
	case q.Functions == nil:
		return Reading{Hidden: true, Naming: NamesFunction}
	}
	return q.Functions.Read(q.Scope, *c)
}

// grants tells whether the rule names the function as it has to be.
func (r *rule) grants(n Naming, f salt.Function) bool {
	return n == AnyPattern || r.literal == string(f) || n == NamesModule && r.module != "" && r.module == f.Module()
}

// literal is the function that a pattern names and that is all it matches, "" for a
// pattern that matches more. A dot may stand with its backslash or without.
func literal(module, pattern string) string {
	name := strings.ReplaceAll(pattern, `\.`, ".")
	if module != "" {
		name = module + "." + name
	}
	if strings.IndexFunc(name, func(r rune) bool { return !isPlain(r) && r != '.' }) >= 0 {
		return ""
	}
	return name
}

// unnamed and hiddenWhy are why a rule that matches a function does not grant it.
const (
	unnamed   = "such a function is granted only by a rule that names it, and by no pattern"
	hiddenWhy = "what it would run cannot be read from its arguments; a rule that names it may say {runs: any}"
)
