package target

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/salt"
)

func effort() *Effort {
	e := DefaultEffort
	return &e
}

func parsed(t testing.TB, expr string) *Target {
	t.Helper()
	out, err := Parse(expr, Compound, Options{Nodegroups: map[string]any{"webs": "web* and not web9", "list": []any{"web1", "web2"}}})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		t, s string
		want bool
	}{
		{"web1", "web*", true},
		{"web1,web2", "web*", true}, // one odd name
		{"db1", "web*", false},
		{"L@web1,web2", "web*", true},
		{"L@web1,db1", "web*", false},
		{"web*", "web*", true},
		{"web1*", "web*", true},
		{"we*", "web*", false},
		{"*", "web*", false},
		{"*", "*", true},
		{"web?", "web*", true},
		{"web*", "web?", false},
		{"web[0-4]", "web[0-9]", true},
		{"web[0-9]", "web[0-4]", false},
		{"*b*", "*b*", true},
		{"*ab*", "*b*", true},
		{"*.example.com", "*example*", true},
		{`E@web\d`, "web*", true},
		{`E@web`, "web*", true},
		{`E@.*web`, "web*", false},
		{`E@web\d+$`, `E@web\d`, true},
		{`E@web\d`, `E@web\d+$`, false},
		{`E@(?!db)web`, "web*", false}, // looks ahead: not proven
		{`E@(?!db)web`, "E@(?!db)web", true},
		{"web1*", `E@web\d`, true},
		{"web*", `E@web\d`, false},
		{"web* and not web2", "web*", true},
		{"web* and not web2", "web* and not web2", true},
		{"web*", "web* and not web2", false},
		{"web1", "web* and not web2", true},
		{"web1*", "web* and not web2*", true},
		{"web*", "* and not db*", true},
		{"web*", "not L@db1,db2", true},
		{"d*", "not L@db1,db2", false},
		{"web* or db*", "web* or db*", true},
		{"db* or web*", "web* or db*", true},
		{"web* or db*", "web*", false},
		{"G@os:Debian", "web*", false},
		{"web* and G@os:Debian", "web*", true},
		{"G@os:Debian and web*", "web*", true},
		{"not G@os:Debian", "web*", false},
		{"web* and not G@os:Debian", "web*", true},
		{"web*", "G@role:web", false},
		{"web* and G@role:web", "G@role:web", true},
		{"G@role:web", "G@role:*", true},
		{"G@role:web:front", "G@role:*", true},
		{"P@role:web|db", "G@role:*", true},
		{"G@role:web", "G@role:w*", true},
		{"G@role:web", "G@role:d*", false},
		{"G@role:*", "G@role:web", false},
		{"I@role:web", "G@role:web", false},
		{"I@role:web", "I@role:*", true},
		{"db1 and I@pass:h*", "web*", false},
		{"db1 and not I@pass:h*", "web*", false},
		{"web1 and I@pass:h*", "web*", true},
		{"S@10.0.0.0/8", "S@10.0.0.0/8", true},
		{"N@webs", "web*", true},
		{"N@webs", "N@webs", true},
		{"web*", "N@webs", false},
		{"N@list", "web*", true},
		{"web1 or ( web* and G@a:b )", "web*", true},
		{"web1 or ( G@a:b )", "web*", false},
		{"web* and db*", "x*", true}, // nobody
	} {
		s := parsed(t, c.s)
		if got := parsed(t, c.t).Within(s, s.MeansByID, effort()); got != c.want {
			t.Errorf("%q within %q = %v, want %v", c.t, c.s, got, c.want)
		}
	}
}

// What is said to be within must be: whatever minion one thinks of.
func TestWithinIsTrue(t *testing.T) {
	words := []string{"a*", "*a", "ab*", "b*", "*", "a", "ab", "E@a", "E@a.*b$", "E@[ab]+$", "L@a,b,ab", "not", "not a*", "not *b", "G@x:1", "not G@x:1", "P@x:.*", "G@x:*", "[ab]?", "?b*"}
	var minions []Facts
	for _, id := range []string{"a", "b", "ab", "ba", "aab", "bb", "c", "ac", "abb", "cb"} {
		minions = append(minions, Facts{ID: salt.MinionID(id), Grains: map[string]any{}, Pillar: map[string]any{}},
			Facts{ID: salt.MinionID(id), Grains: map[string]any{"x": "1"}}, Facts{ID: salt.MinionID(id), Grains: map[string]any{"x": "2"}})
	}
	r := rand.New(rand.NewPCG(1, 2))
	random := func() *Target {
		var expr []string
		for i := range 1 + r.IntN(3) {
			if i > 0 {
				expr = append(expr, []string{"and", "or"}[r.IntN(2)])
			}
			expr = append(expr, words[r.IntN(len(words))])
		}
		out, err := Parse(strings.Join(expr, " "), Compound, Options{})
		if err != nil {
			return nil
		}
		return out
	}
	proven := 0
	for range 5000 {
		a, b := random(), random()
		if a == nil || b == nil || !a.Within(b, b.MeansByID, effort()) {
			continue
		}
		proven++
		i := slices.IndexFunc(minions, func(f Facts) bool {
			in, _ := a.Match(f)
			out, _ := b.Match(f)
			return in && !out
		})
		if i >= 0 {
			t.Fatalf("%q is not within %q: %v", a, b, minions[i])
		}
	}
	if proven < 300 {
		t.Errorf("only %d were proven: the test says little", proven)
	}
}

// A proof is part of each decision, and who asks chooses one side of it.
func TestWithinEnds(t *testing.T) {
	long := "*" + strings.Repeat("a*b?", 200)
	many := make([]string, 2000)
	for i := range many {
		many[i] = fmt.Sprintf("( *a%d* and not G@k%d:v )", i, i)
	}
	for _, expr := range []string{long, strings.Join(many, " or "), "E@(a|b)*a" + strings.Repeat("(a|b)", 60) + "$", "E@(?=x)(a+)+$", "( E@(a|b)*a" + strings.Repeat("(a|b)", 60) + "$ ) or " + strings.Join(many, " or ")} {
		for _, s := range []string{"web*", "E@(a|b)*b" + strings.Repeat("(a|b)", 60), "not ( " + expr + " )"} {
			other, err := Parse(s, Compound, Options{})
			if err != nil {
				continue
			}
			this, err := Parse(expr, Compound, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if this.Within(other, other.MeansByID, effort()) {
				t.Errorf("%.40q is within %.40q", expr, s)
			}
		}
	}
}

func BenchmarkWithin(b *testing.B) {
	for _, c := range [][2]string{{"web1", "web*"}, {"web*", "web*"}, {"web1*", "web*"}, {"web*", "db*"}, {"*", "web*"}, {"web* and G@os:Debian", "web*"}, {`E@web\d`, "web*"}, {"web*", "G@role:web"}} {
		x, y := parsed(b, c[0]), parsed(b, c[1])
		b.Run(c[0]+" in "+c[1], func(b *testing.B) {
			for b.Loop() {
				x.Within(y, y.MeansByID, effort())
			}
		})
	}
}
