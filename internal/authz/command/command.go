// Package command answers, from this program's tables of functions, what a requested command
// does: which other commands it runs, how a rule must name it, what it may make others do. It
// is asked before a decision, and decides nothing.
//
// It only reads the rows of packages module and runner, and never runs their functions.
package command

import (
	"github.com/brinebus/brine/internal/acl"
	"github.com/brinebus/brine/internal/extension"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/module"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/salt"
)

// Tables describe requested commands, from the tables of this program. They implement
// acl.Functions. A minion of another version may have other rows: it refuses what its own rows
// find and these do not.
type Tables struct {
	minions, runners, wheel function.Table
	added                   *extension.Set // the site's own runners
}

// New returns the tables of this program, with the site's own runners.
func New(added *extension.Set) Tables {
	h := &runner.Host{Functions: module.Builtin()}
	return Tables{module.Builtin(), runner.Table(h), runner.Wheel(h), added}
}

// of returns the table of a scope; nil for one without a table.
func (t Tables) of(s acl.Scope) function.Table {
	switch s {
	case acl.Minions, acl.Machine:
		return t.minions
	case acl.Runner:
		return t.runners
	case acl.Wheel:
		return t.wheel
	}
	return nil
}

// Read implements acl.Functions.
func (t Tables) Read(s acl.Scope, c salt.Command) acl.Reading {
	table := t.of(s)
	out := acl.Reading{Naming: t.naming(s, c.Function)}
	if s == acl.Machine {
		return out // the runner has reported the inner commands
	}
	r := table.Read(c)
	out.Hidden, out.Targets = r.Hidden, r.Targets
	out.Own = s == acl.Runner && table.Own(c.Function)
	for _, i := range r.Inner {
		out.Inner = append(out.Inner, asked(s, i))
	}
	return out
}

// naming is how a rule must name a function of the master. One that is not in the table is one
// of the site's own programs, or unknown and runs nowhere.
func (t Tables) naming(s acl.Scope, name salt.Function) acl.Naming {
	if s != acl.Runner && s != acl.Wheel {
		return acl.AnyPattern
	}
	class, known := t.of(s).Class(name)
	switch {
	case known && !class.ByName(), !known && t.added.Find(name.Module()) == nil:
		return acl.AnyPattern
	case !known || class == function.Secret:
		return acl.NamesModule
	}
	return acl.NamesFunction
}

// asked returns a command inside another as if it was requested directly: the master parses the
// texts of minions' requests as words.
func asked(s acl.Scope, i function.Inner) acl.Inner {
	out := acl.Inner{Scope: s, Command: i.Command, Target: i.Target, TargetType: i.TargetType}
	switch i.Way {
	case function.Published:
		out.Scope, out.Published = acl.Minions, true
	case function.ByMaster:
		out.Scope = acl.Runner
	case function.Wheel:
		out.Scope = acl.Wheel
	case function.OnMaster:
		out.Scope = acl.Machine
	}
	if s == acl.Minions && i.Way != function.Here {
		list := []job.Command{job.Command(i.Command)}
		if err := protocol.ParseWords(list); err == nil { // otherwise the master refuses the minion's request
			out.Command = salt.Command(list[0])
		}
	}
	return out
}

// Reach returns what commands that were allowed may make others do.
func (t Tables) Reach(s acl.Scope, list []salt.Command, d acl.Decision) salt.Reach {
	if d.Operator {
		return salt.Reach{Free: true, Programs: true}
	}
	return t.of(s).ReachOf(list)
}

// Known reports whether minions of this version have a function, without extensions.
func (t Tables) Known(name salt.Function) bool {
	_, f := t.minions.Find(string(name))
	return f != nil
}

// Runners returns the names of the functions in the table of runners.
func (t Tables) Runners() []salt.Function { return names(t.runners) }

// Wheel returns the names in the table of wheel functions.
func (t Tables) Wheel() []salt.Function { return names(t.wheel) }

// Added returns the names of the site's own runners.
func (t Tables) Added() (list []string) {
	for _, p := range t.added.Programs() {
		list = append(list, p.Name)
	}
	return list
}

// Sending is the command with which minions fire the returns of a job, with the requested tag.
func Sending(tag string) salt.Command { return module.Sending(tag) }

func names(t function.Table) []salt.Function {
	list := t.Functions("")
	out := make([]salt.Function, len(list))
	for i, name := range list {
		out[i] = salt.Function(name)
	}
	return out
}
