package upstream

import (
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/salt"
)

func TestRoster(t *testing.T) {
	join := func(s []string) string { return strings.Join(s, " ") }
	list := func(shuffle, failback bool, masters ...string) *roster {
		rs := newRosters(&config.Minion{Master: masters, MasterIsList: true, MasterPort: 1, MasterType: "failover", RandomMaster: shuffle, MasterFailback: failback})
		if len(rs) != 1 {
			t.Fatalf("%d rosters for failover", len(rs))
		}
		return rs[0]
	}
	r := list(false, false, "a", "b", "c", "a:1")
	if got := join(r.round()); got != "a b c" {
		t.Errorf("first round: %s", got)
	}
	r.failed("a")
	if got := join(r.round()); got != "b c a" {
		t.Errorf("after a failed: %s, want it at the end", got)
	}
	if got := join(r.round()); got != "b c a" {
		t.Errorf("the round after that: %s, want the same", got)
	}
	r.failed("b")
	if got := join(r.round()); got != "c a b" {
		t.Errorf("after b failed too: %s", got)
	}
	r.failed("nosuch")
	if got := join(r.round()); got != "c a b" {
		t.Errorf("after an unknown master failed: %s", got)
	}
	if r.first() != "" {
		t.Error("failback without master_failback")
	}
	s := list(true, true, "a", "b", "c", "d", "e")
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

func TestRosters(t *testing.T) {
	show := func(rs []*roster) string {
		all := []string{}
		for _, r := range rs {
			all = append(all, strings.Join(r.masters, ","))
		}
		return strings.Join(all, " ")
	}
	for name, c := range map[string]struct {
		kind    string
		masters []string
		list    bool
		want    string
	}{
		"one":                         {"str", []string{"a"}, false, "a"},
		"a list of one":               {"str", []string{"a"}, true, "a"},
		"all at once":                 {"str", []string{"a", "b", "b:4506"}, true, "a b"},
		"failover":                    {"failover", []string{"a", "b"}, true, "a,b"},
		"none":                        {"disable", []string{"a", "b"}, true, ""},
		"an empty list":               {"failover", nil, true, ""},
		"distributed, one":            {"distributed", []string{"a"}, true, "a"},
		"distributed, one of several": {"distributed", []string{"a", "b", "c"}, true, "c,a,b"}, // zlib.crc32(b"web1") % 3 is 2
	} {
		cfg := &config.Minion{ID: salt.MinionID("web1"), Master: c.masters, MasterIsList: c.list, MasterPort: 4506, MasterType: c.kind}
		if got := show(newRosters(cfg)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
