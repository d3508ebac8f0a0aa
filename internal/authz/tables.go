package authz

import (
	"github.com/brinebus/brine/internal/acl"
	"github.com/brinebus/brine/internal/extension"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/module"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/salt"
)

// Tables are what the tables of this program say of the commands that somebody asks
// for. They implement acl.Functions. A minion of another version may have other rows:
// what its rows find and these do not, it refuses.
type Tables struct {
	minions, runners, wheel function.Table
	added                   *extension.Set // runners that people have added
}

// NewTables returns those of this program, with the runners that people have added.
func NewTables(added *extension.Set) Tables {
	h := &runner.Host{Functions: module.Builtin()} // rows are read here, and never run
	return Tables{module.Builtin(), runner.Table(h), runner.Wheel(h), added}
}

// of is the table of a scope; nil for what has none.
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
		return out // the runner has told what is inside
	}
	r := table.Read(c)
	out.Hidden, out.Targets = r.Hidden, r.Targets
	out.Own = s == acl.Runner && table.Own(c.Function)
	for _, i := range r.Inner {
		out.Inner = append(out.Inner, asked(s, i))
	}
	return out
}

// naming is how a rule must name a function of the master. One that is not in the
// table is a program that people have added, or nothing, which runs nowhere.
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

// asked is a command inside another as who asks for it directly would write it: the
// master reads the texts of what minions publish as words.
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
		if err := ParseWords(list); err == nil { // or the master refuses it when the minion asks
			out.Command = salt.Command(list[0])
		}
	}
	return out
}

// reach is what commands that were allowed may make others do.
func (t Tables) reach(s acl.Scope, list []salt.Command, d acl.Decision) salt.Reach {
	if d.Operator {
		return salt.Reach{Free: true, Programs: true}
	}
	return t.of(s).ReachOf(list)
}

// Known says whether minions of this version have a function, without what people have added.
func Known(name salt.Function) bool {
	_, f := module.Builtin().Find(string(name))
	return f != nil
}

func functionsOf(t function.Table) []salt.Function {
	names := t.Functions("")
	out := make([]salt.Function, len(names))
	for i, name := range names {
		out[i] = salt.Function(name)
	}
	return out
}
