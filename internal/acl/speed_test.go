package acl

import (
	"fmt"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/salt"
)

// slowest returns questions among a thousand rules, which only the last rule allows, or none.
func slowest(tb testing.TB) map[string]func() Verdict {
	var one, many, peers strings.Builder
	one.WriteString("publisher_acl:\n  fred:\n")
	many.WriteString("publisher_acl:\n")
	peers.WriteString("peer:\n")
	for i := range 1000 {
		fmt.Fprintf(&one, "  - web*:\n    - mod%d.*:\n        args: ['a%d.*']\n", i, i)
		fmt.Fprintf(&many, "  user%d|manager%d_.*: [{'G@role:web': ['test\\..*']}]\n", i, i)
		fmt.Fprintf(&peers, "  'host%d\\.example\\.com': [{'web*': [test.*, mod%d.*]}]\n", i, i)
	}
	asked := func(text string, q Question) func() Verdict {
		r := rules(tb, text)
		return func() Verdict { return r.Decide(q).Verdict }
	}
	last := ask(local("fred"), "mod999.run", "web1", "web2")
	last.Commands[0].Args = []any{"a999x"}
	return map[string]func() Verdict{
		"rules of one user":         asked(one.String(), last),
		"rules of a thousand users": asked(many.String(), ask(local("manager999_x"), "test.ping", "web1", "web2")),
		"rules of a thousand peers": asked(peers.String(), ask(Subject{Kind: Peer, Name: "host999.example.com"}, "mod999.run", "web1")),
		"refused to one user":       asked(one.String(), ask(local("fred"), "cmd.run", "web1")),
		"refused to nobody's rules": asked(many.String(), ask(local("eve"), "test.ping", "web1")),
		"rules of one user, inside": asked(one.String()+"  - web*: [run.here]\n", crossing(last)),
	}
}

// crossing returns the question with its function inside another one.
func crossing(q Question) Question {
	c := q.Commands[0]
	q.Functions = tables{}
	q.Commands = []salt.Command{{Function: "run.here", Args: append([]any{string(c.Function)}, c.Args...)}}
	return q
}

func BenchmarkDecide(b *testing.B) {
	for name, f := range slowest(b) {
		want := f()
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if f() != want {
					b.Fatal("decided otherwise")
				}
			}
		})
	}
}
