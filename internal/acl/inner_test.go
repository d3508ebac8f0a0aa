package acl

import (
	"fmt"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
)

// tables is a small set of functions: run.here and run.both run others, as test.cross_test and
// a compound function do; push.to publishes; store.run runs something stored elsewhere.
type tables struct{}

func (tables) Read(s Scope, c salt.Command) Reading {
	inner := func(s Scope, args []any) Inner {
		i := Inner{Scope: s}
		if len(args) > 0 {
			i.Command = salt.Command{Function: salt.Function(fmt.Sprint(args[0])), Args: args[1:]}
		}
		return i
	}
	switch name := string(c.Function); {
	case s == Minions && name == "run.here":
		return Reading{Inner: []Inner{inner(Minions, c.Args)}}
	case s == Minions && name == "run.both":
		return Reading{Inner: []Inner{inner(Minions, c.Args[:1]), inner(Minions, c.Args[1:])}}
	case s == Minions && name == "run.runner":
		return Reading{Inner: []Inner{inner(Runner, c.Args)}}
	case s == Minions && (name == "publish.to" || name == "push.to"):
		i := inner(Minions, c.Args[1:])
		i.Published, i.Target, i.TargetType = true, c.Args[0].(string), "glob"
		return Reading{Inner: []Inner{i}}
	case s == Minions && name == "store.run":
		return Reading{Hidden: true}
	case s == Runner && c.Function.Module() == "audit":
		return Reading{Naming: NamesModule}
	case s == Runner && name == "salt.cmd":
		return Reading{Naming: NamesFunction, Inner: []Inner{inner(Machine, c.Args)}}
	}
	return Reading{}
}

func parseInner(expr, kind string) (*target.Target, error) {
	return target.Parse(expr, target.Kind(kind), target.Options{})
}

// in is a question about another scope.
func in(s Scope, q Question) Question {
	q.Scope, q.Minions = s, nil
	return q
}

// call is a question for one function with arguments.
func call(s Subject, on salt.MinionID, fun string, args ...any) Question {
	q := ask(s, fun, on)
	q.Commands[0].Args, q.Parse = args, parseInner
	return q
}

const innerRules = `
publisher_acl:
  fred:
    - web*: [test.*, run.*, pkg.*, {cmd.run: {args: [uptime]}}]
    - push.to
  ann:
    - '*': [run.here, store.run, test.ping]
  bob:
    - '*': [{store.run: {runs: any}}, run.*]
  joe:
    - '*': [{store.run: {args: [job]}}]
  eve:
    - '@runner'
    - run.*
  kim:
    - '@runner': [salt.cmd]
  lou:
    - '@salt': [cmd]
  max:
    - '@salt'
    - '@audit'
  pat:
    - '@runner': ['salt.*', 'salt\.cm[d]', '.*']
publisher_acl_blacklist:
  modules: [pkg.*, shadow.*]
peer:
  web1: [run.*, test.*]
peer_run:
  web1: ['.*']
  web2: [salt.cmd]
`

func TestInner(t *testing.T) {
	r := rules(t, innerRules)
	fred, ann, bob := local("fred"), local("ann"), local("bob")
	root := Subject{Kind: Local, Name: "root", Operator: true}
	web1 := Subject{Kind: Peer, Name: "web1"}
	runner := func(s Subject, fun string, args ...any) Question { return in(Runner, call(s, "", fun, args...)) }
	for name, c := range map[string]struct {
		q     Question
		allow bool
		why   string // in the reason
	}{
		"what is inside is allowed":                {call(fred, "web1", "run.here", "test.ping"), true, ""},
		"what is inside is not":                    {call(fred, "web1", "run.here", "cmd.shell", "id"), false, "run.here would run cmd.shell: no rule"},
		"its arguments fit":                        {call(fred, "web1", "run.here", "cmd.run", "uptime"), true, ""},
		"its arguments do not":                     {call(fred, "web1", "run.here", "cmd.run", "id"), false, "argument 1"},
		"the blacklist inside":                     {call(fred, "web1", "run.here", "pkg.remove"), false, "blacklist"},
		"the blacklist inside, for root":           {call(root, "web1", "run.here", "pkg.remove"), false, "blacklist"},
		"three deep":                               {call(fred, "web1", "run.here", "run.here", "run.here", "cmd.run", "id"), false, "argument 1"},
		"the second of two":                        {call(fred, "web1", "run.both", "test.ping", "cmd.run", "id"), false, "cmd.run"},
		"no name at all":                           {call(fred, "web1", "run.here"), false, ""},
		"publishing where they may":                {call(fred, "web1", "push.to", "web*", "test.ping"), true, ""},
		"publishing where they may not":            {call(fred, "web1", "push.to", "db*", "test.ping"), false, "does not cover"},
		"publishing what they may, the minion not": {call(fred, "web1", "push.to", "web*", "pkg.list"), false, "blacklist"},
		"publishing by a minion without rules":     {call(fred, "web2", "push.to", "web*", "test.ping"), false, "peer has no rule for web2"},
		"hidden without a word":                    {call(ann, "web1", "store.run", "job"), false, "cannot be read"},
		"hidden inside":                            {call(ann, "web1", "run.here", "store.run", "job"), false, "cannot be read"},
		"hidden with arguments alone":              {call(local("joe"), "web1", "store.run", "job"), false, "cannot be read"},
		"hidden with the word":                     {call(bob, "web1", "store.run", "job"), true, "runs: any"},
		"hidden inside with the word":              {call(bob, "web1", "run.here", "store.run", "job"), true, "run"},
		"hidden for root":                          {call(root, "web1", "store.run", "job"), true, ""},
		"a minion, what is inside":                 {call(web1, "db1", "run.here", "cmd.run", "id"), false, "peer"},
		"a minion, what it may":                    {call(web1, "db1", "run.here", "test.ping"), true, ""},
		"a minion, publishing inside":              {call(web1, "db1", "run.here", "publish.to", "web1", "test.ping"), false, "publish again"},
		"a runner inside, the user may not":        {call(fred, "web1", "run.runner", "manage.up"), false, "@runner manage.up"},
		"a runner inside, both may":                {call(local("eve"), "web1", "run.runner", "manage.up"), true, ""},
		"a runner inside, the minion may not":      {call(local("eve"), "web2", "run.runner", "manage.up"), false, "web2"},
		"master by @runner":                        {runner(local("eve"), "salt.cmd", "cmd.run", "id"), false, "by a rule that names it"},
		"master by name":                           {runner(local("kim"), "salt.cmd", "cmd.run", "id"), true, "salt.cmd"},
		"master by name below its module":          {runner(local("lou"), "salt.cmd", "cmd.run", "id"), true, "cmd"},
		"master by its module":                     {runner(local("max"), "salt.cmd", "cmd.run", "id"), false, "by a rule that names it"},
		"master by patterns":                       {runner(local("pat"), "salt.cmd", "cmd.run", "id"), false, "by a rule that names it"},
		"audit log by its module":                  {runner(local("max"), "audit.tail"), true, ""},
		"audit log by a pattern":                   {runner(local("pat"), "audit.tail"), false, "by a rule that names it"},
		"master, blacklist":                        {runner(local("kim"), "salt.cmd", "shadow.info", "root"), false, "blacklist"},
		"master, blacklist for root":               {runner(root, "salt.cmd", "shadow.info", "root"), false, "blacklist"},
		"master by a minion's pattern":             {runner(web1, "salt.cmd", "cmd.run", "id"), false, "by a rule that names it"},
		"master by a minion that is named":         {runner(Subject{Kind: Peer, Name: "web2"}, "salt.cmd", "test.ping"), true, ""},
		"master by such a minion, blacklist":       {runner(Subject{Kind: Peer, Name: "web2"}, "salt.cmd", "shadow.info"), false, "blacklist"},
		"the machine is not a scope to ask in":     {in(Machine, call(root, "", "test.ping")), false, "as a runner"},
	} {
		t.Run(name, func(t *testing.T) {
			d := r.Decide(c.q)
			if (d.Verdict == Allow) != c.allow || !strings.Contains(d.Reason+d.Rule, c.why) {
				t.Errorf("Decide = %+v, want allowed %v with %q", d, c.allow, c.why)
			}
		})
	}
	if d := r.Decide(call(fred, "web1", "run.here", "run.here", "test.ping")); strings.Join(d.Inner, ",") != "run.here,test.ping" {
		t.Errorf("inner functions are %q", d.Inner)
	}
	if d := r.Decide(runner(root, "salt.cmd", "test.ping")); !d.Operator || strings.Join(d.Inner, ",") != "@master test.ping" {
		t.Errorf("root's decision is %+v", d)
	}
}

// The number of commands inside a command is limited, however they are nested.
func TestInnerIsBounded(t *testing.T) {
	args := []any{}
	for range maxInner + 1 {
		args = append(args, "run.here")
	}
	d := rules(t, innerRules).Decide(call(local("fred"), "web1", "run.here", append(args, "test.ping")...))
	if d.Verdict == Allow || !strings.Contains(d.Reason, "more than") {
		t.Errorf("Decide = %+v", d)
	}
}

// Without tables nothing is known about a function, and only a rule with its name grants it.
func TestUnknownFunctions(t *testing.T) {
	q := call(local("fred"), "web1", "test.ping")
	q.Functions = nil
	if d := rules(t, innerRules).Decide(q); d.Verdict == Allow {
		t.Errorf("allowed: %+v", d)
	}
}

func TestRunsAnyIsForNames(t *testing.T) {
	for text, ok := range map[string]bool{
		`{fred: [{'*': [{mine.update: {runs: any}}]}]}`:                           true,
		`{fred: [{'*': [{'mine\.update': {args: [x], runs: any}}]}]}`:             true,
		`{fred: [{'*': [{mine.*: {runs: any}}]}]}`:                                false,
		`{fred: [{'*': [{mine.update: {runs: all}}]}]}`:                           false,
		`{fred: [{'*': [{mine.update: {runs: true}}]}]}`:                          false,
		`{fred: [{'*': [{mine.update: [{args: [a]}, {args: [b], runs: any}]}]}]}`: true,
	} {
		s, err := ParseSetting("publisher_acl", text, "master")
		if err != nil {
			t.Fatal(err)
		}
		if _, err = Parse(Config{PublisherACL: s}); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}
