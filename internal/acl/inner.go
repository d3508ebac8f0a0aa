package acl

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
)

// Functions says, from the tables of functions, what a command does.
type Functions interface {
	Read(s Scope, c salt.Command) Reading
}

// Reading is what a command does.
type Reading struct {
	// Inner are the commands that it runs, stores for later or configures. Each is decided
	// about as if it had been requested directly.
	Inner []Inner
	// Targets are for whom it is stored. They may match by pillar only if the target of a job
	// may.
	Targets []salt.Target
	// Hidden means that it also does something that its arguments do not show. It is then only
	// for operators, and for rules that name it with {runs: any}.
	Hidden bool
	// Naming is how a rule must name it.
	Naming Naming
	// Own means that a person without a rule may use it for what is their own.
	Own bool
}

// Naming is how a rule must name a function to grant it. The zero value is in any way.
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
	// Published means that it goes to the minions of Target instead of those of the question.
	Published          bool
	Target, TargetType string
}

// Machine is the scope of minion functions that run on the master's own machine. Only the
// blacklist applies to them: the rule that grants the runner is the permission.
const Machine Scope = Mine + 1

// maxInner limits the commands inside those of a question, to any depth.
const maxInner = 100

// inside decides about the commands inside those of an allowed question.
type inside struct {
	r     *Rules
	left  int
	names []string
}

// decide decides about the inner commands, given the decision about the outer ones.
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
				continue // not a function: reported when it is run
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

// within returns what the command with that index does.
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

// judgeTargets refuses a command with targets that match by pillar if no rule grants that; nil
// if nothing is refused.
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

// inside is the refusal of a command because of one inside it.
func (d Decision) inside(outer salt.Function, i Inner) Decision {
	if i.Published {
		d.Nearest = nil // it belongs to another target
	}
	d.Reason = fmt.Sprintf("%s would run %s: %s", outer, i.Scope.prefix()+string(i.Command.Function), d.Reason)
	return d
}

// judge decides about one command inside those of q: for the subject and, if the minions of q
// send the request to the master, for each of those that the rules match.
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
		return nil, fmt.Errorf("%q has no known meaning", expr)
	}
	return q.Parse(expr, kind)
}

// meant returns the minions of the question that all targets of within match.
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

// prefix is written before a function to show where it runs.
func (s Scope) prefix() string {
	return map[Scope]string{Runner: "@runner ", Wheel: "@wheel ", Mine: "@mine ", Machine: "@master "}[s]
}

// reading returns what the tables say about a command. Without tables, nothing is known.
func (q *Question) reading(c *salt.Command) Reading {
	switch {
	case q.Scope == Mine:
		return Reading{} // these are entries, not functions
	case q.Functions == nil:
		return Reading{Hidden: true, Naming: NamesFunction}
	}
	return q.Functions.Read(q.Scope, *c)
}

// grants reports whether the rule names the function as required.
func (r *rule) grants(n Naming, f salt.Function) bool {
	return n == AnyPattern || r.literal == string(f) || n == NamesModule && r.module != "" && r.module == f.Module()
}

// literal returns the function that a pattern names if it matches nothing else, otherwise "". A
// dot may be written with or without a backslash.
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
