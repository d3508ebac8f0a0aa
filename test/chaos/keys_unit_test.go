package chaos

import (
	"slices"
	"testing"
	"time"
)

// TestJudgeOfDecisions: it knows which states of a key follow from what was acknowledged.
func TestJudgeOfDecisions(t *testing.T) {
	start := time.Now()
	one, other := &machine{name: "one"}, &machine{name: "other"}
	at := func(m *machine, a act, second float64, acked bool) decision {
		begun := start.Add(time.Duration(second * float64(time.Second)))
		return decision{a.name, m, begun, begun.Add(100 * time.Millisecond), acked}
	}
	first := decision{act: remove.name, acked: true}
	for _, c := range []struct {
		name string
		all  []decision
		lost *machine
		want []string
	}{
		{"none", nil, nil, []string{"delete"}},
		{"the last one", []decision{at(one, accept, 0, true), at(other, reject, 3, true)}, nil, []string{"reject"}},
		{"what is not confirmed later", []decision{at(one, reject, 0, true), at(other, accept, 3, false)}, nil, []string{"reject", "accept"}},
		{"at the same time", []decision{at(one, reject, 0, true), at(other, accept, 0.5, true)}, nil, []string{"reject", "accept"}},
		{"the stricter one of a member that was away", []decision{at(one, reject, 0, true), at(other, accept, 3, true)}, one, []string{"reject", "accept"}},
		{"no key comes back by a member that was away", []decision{at(one, accept, 0, true), at(other, reject, 3, true)}, one, []string{"reject"}},
		{"what a member that was away has lifted itself", []decision{at(other, remove, 0, true), at(one, reject, 1.5, true), at(one, accept, 2, true)}, one, []string{"delete", "reject", "accept"}},
		{"what it has not", []decision{at(other, remove, 0, true), at(one, accept, 1.5, true), at(one, reject, 2, true)}, one, []string{"accept", "reject"}},
		{"nor by what is not confirmed", []decision{at(one, accept, 0, false), at(other, reject, 3, true)}, one, []string{"reject"}},
	} {
		got := permitted(append([]decision{first}, c.all...), func(m *machine) bool { return m != nil && m == c.lost })
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
