package minion

import (
	"slices"
	"strings"
	"testing"
)

func TestRoster(t *testing.T) {
	join := func(s []string) string { return strings.ReplaceAll(strings.Join(s, " "), ":1", "") }
	r := newRoster([]string{"a", "b", "c", "a"}, 1, false, false)
	if got := join(r.round()); got != "a b c" {
		t.Errorf("first round: %s", got)
	}
	r.failed("a:1")
	if got := join(r.round()); got != "b c a" {
		t.Errorf("after a failed: %s, want it at the end", got)
	}
	if got := join(r.round()); got != "a b c" {
		t.Errorf("the round after that: %s, want the whole list again", got)
	}
	r.failed("nosuch:1")
	if got := join(r.round()); got != "a b c" {
		t.Errorf("after a stranger failed: %s", got)
	}
	if r.first() != "" {
		t.Error("failback without master_failback")
	}
	s := newRoster([]string{"a", "b", "c", "d", "e"}, 1, true, true)
	orders := map[string]bool{}
	for range 200 {
		order := s.round()
		orders[join(order)] = true
		slices.Sort(order[1:])
		if join(order) != "a b c d e" {
			t.Fatalf("shuffled with failback: %v, want a first and each once", order)
		}
	}
	if len(orders) < 10 {
		t.Errorf("200 shuffles gave %d orders", len(orders))
	}
}
