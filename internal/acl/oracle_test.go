package acl

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
)

// about asks for a target by its text.
func about(t testing.TB, s Subject, function, expr string, minions fleet) Question {
	t.Helper()
	parsed, err := target.Parse(expr, target.Compound, target.Options{Nodegroups: map[string]any{"guess": "I@pass:h*", "webs": "web*"}})
	if err != nil {
		t.Fatal(err)
	}
	return Question{Subject: s, Commands: []salt.Command{{Function: salt.Function(function)}}, Target: parsed, Fleet: minions, Functions: tables{}}
}

const oracle = `
publisher_acl:
  fred: [{'web*': [test.*]}, {'G@role:web': [pkg.*]}, {'I@tier:web': [disk.*]}]
  deployer: [{"web*": [test.*]}, {"@target": ["I@role", "I@site:name:*"]}]
  all: [.*]
  any: [.*, {"@target": ["I@*"]}]
external_auth:
  file: {fred: [{'web*': [test.*]}]}
peer:
  web1: [{"db*": [test.*]}, {"@target": ["I@role"]}]
  web2: [.*]
`

// The answer does not depend on minions outside the principal's rules: not on their ids, grains
// or pillar, nor on whether they exist.
func TestNoAnswerDependsOnOthers(t *testing.T) {
	r := rules(t, oracle)
	web1 := target.Facts{ID: "web1", Grains: map[string]any{"role": "web"}, Pillar: map[string]any{"tier": "web"}}
	others := []fleet{
		{web1},
		{web1, {ID: "db1", Grains: map[string]any{"role": "db", "key": "s"}, Pillar: map[string]any{"pass": "hunter2", "role": "db"}}},
		{web1, {ID: "db1", Grains: map[string]any{"role": "x"}, Pillar: map[string]any{"pass": "else"}}, {ID: "app1"}, {ID: "d", Grains: map[string]any{}, Pillar: map[string]any{}}},
	}
	words := []string{"db1", "db*", "d?1", "E@db", "*", "web1", "web*", "app*", "L@web1,db1", "I@pass:h*", "J@pass:h.*", "I@role:db", "G@role:web", "G@key:*", "P@key:s", "N@guess", "N@webs", "not db1", "not web*", "I@tier:web", "S@10.0.0.0/8", "nosuch"}
	rnd := rand.New(rand.NewPCG(3, 4))
	allowed := 0
	for range 3000 {
		expr := words[rnd.IntN(len(words))]
		for range rnd.IntN(3) {
			expr += " " + []string{"and", "or"}[rnd.IntN(2)] + " " + words[rnd.IntN(len(words))]
		}
		for _, fun := range []string{"test.ping", "pkg.version", "disk.usage", "cmd.run", "test.ping,cmd.run"} {
			for _, s := range []Subject{local("fred"), {Kind: External, Backend: "file", Name: "fred"}, local("nobody")} {
				var first string
				for i, minions := range others {
					q := about(t, s, strings.Split(fun, ",")[0], expr, minions)
					for _, f := range strings.Split(fun, ",")[1:] {
						q.Commands = append(q.Commands, salt.Command{Function: salt.Function(f)})
					}
					d := r.Decide(q)
					answer := fmt.Sprint(d.Verdict, d.Rule, d.Where, d.Reason)
					if i == 0 {
						first = answer
					}
					if answer != first {
						t.Fatalf("%s %s %q: %s, and with other minions: %s", s.Name, fun, expr, first, answer)
					}
					if d.Verdict == Allow {
						allowed++
					}
				}
			}
		}
	}
	if allowed == 0 {
		t.Error("nothing was allowed: the test says little")
	}
}

func TestPillarTargets(t *testing.T) {
	r := rules(t, oracle)
	for _, c := range []struct {
		who   Subject
		fun   string
		expr  string
		allow bool
	}{
		{local("fred"), "test.ping", "web* and I@pass:h*", false},
		{local("fred"), "test.ping", "db1 and I@pass:h*", false},
		{local("fred"), "test.ping", "web1 and not I@pass:h*", false},
		{local("fred"), "test.ping", "N@guess and web1", false},
		{local("fred"), "disk.usage", "I@tier:web", true}, // the pillar words that the rule itself has
		{local("fred"), "disk.usage", "I@tier:w*", false},
		{local("fred"), "disk.usage", "I@tier:web and J@tier:w.*", false},
		{local("fred"), "disk.usage", "web* and I@tier:web", true},
		{local("deployer"), "test.ping", "web* and I@role:w*", true},
		{local("deployer"), "test.ping", "web* and J@role:w.*", true},
		{local("deployer"), "test.ping", "web* and I|@role|web", true},
		{local("deployer"), "test.ping", "I@role:w*", false}, // not those of other rules
		{local("deployer"), "test.ping", "web* and I@roles:w*", false},
		{local("deployer"), "test.ping", "web* and I@r*:w*", false},
		{local("deployer"), "test.ping", "web* and I@*:w*", false},
		{local("deployer"), "test.ping", "web* and I@site:name:x", true},
		{local("deployer"), "test.ping", "web* and I@site:key:x", false},
		{local("deployer"), "test.ping", "web* and I@site:*", false},
		{local("all"), "test.ping", "I@role:web", false},
		{local("any"), "test.ping", "I@role:web or J@pass:h.*", true},
		{Subject{Kind: Local, Name: "root", Operator: true}, "test.ping", "I@pass:h*", true},
		{Subject{Kind: Peer, Name: "web1"}, "test.ping", "db* and I@role:d*", true},
		{Subject{Kind: Peer, Name: "web1"}, "test.ping", "db* and I@pass:h*", false},
		{Subject{Kind: Peer, Name: "web2"}, "test.ping", "I@role:db", false},
	} {
		q := about(t, c.who, c.fun, c.expr, hosts)
		if d := r.Decide(q); (d.Verdict == Allow) != c.allow {
			t.Errorf("%s: %s on %q: %+v, want allowed %v", c.who.Name, c.fun, c.expr, d, c.allow)
		}
	}
	for text, want := range map[string]string{
		"publisher_acl: {fred: ['@target']}":                        "needs the keys of pillar",
		"publisher_acl: {fred: [{'@target': [role]}]}":              "not a key of pillar",
		"publisher_acl: {fred: [{'@target': ['I@r*']}]}":            "is a pattern",
		"publisher_acl: {fred: [{'@target': ['J@role:x']}]}":        "not a key of pillar",
		"peer: {web1: [{'@target': ['I@']}]}":                       "not a key of pillar",
		"external_auth: {pam: {fred: ['@target': [{'I@a': [b]}]]}}": "text is wanted",
	} {
		if _, err := parse(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// The decision has the targets of the rules that allowed it.
func TestWithinOfADecision(t *testing.T) {
	r := rules(t, oracle)
	d := r.Decide(about(t, local("fred"), "test.ping", "web1", hosts))
	if len(d.Within) != 1 || d.Within[0].String() != "web*" {
		t.Errorf("within %v, want web*", d.Within)
	}
	if d := r.Decide(about(t, local("all"), "test.ping", "*", hosts)); len(d.Within) != 0 {
		t.Errorf("within %v, want every minion", d.Within)
	}
	if d := r.Decide(about(t, local("fred"), "test.ping", "web1 or G@a:b", hosts)); d.Verdict == Allow || d.Nearest == nil {
		t.Errorf("%+v, want a refusal with the nearest rule", d)
	}
}
