package cluster

import (
	"fmt"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/salt"
)

// TestChangesKeepTheirOrder: what has changed again before it was told is left out, the rest is in
// order, and there are never more than two for a minion at a member.
func TestChangesKeepTheirOrder(t *testing.T) {
	for events, want := range map[string]string{
		"+a1": "+a1", "+a1 +a2": "+a2", "+a1 -a": "-a", "-a +a1": "-a +a1", "-a +a1 -a": "-a", "-a +a1 -a +a2": "-a +a2",
		"-a +b1 +a1": "-a +b1 +a1", "+a1 +b1 -a": "+b1 -a", "+b1 -a -b": "-a -b",
	} {
		c := newChanges()
		for _, e := range strings.Fields(events) {
			if id := salt.MinionID("web1"); e[0] == '+' {
				c.add(e[1:2], id, &Minion{ID: id, Key: e[2:]})
			} else {
				c.add(e[1:], id, nil)
			}
		}
		var got []string
		for one := c.take(); one != nil; one = c.take() {
			if one.came == nil {
				got = append(got, "-"+one.member)
			} else {
				got = append(got, "+"+one.member+one.came.Key)
			}
		}
		if told := strings.Join(got, " "); told != want {
			t.Errorf("after %s told is %s, want %s", events, told, want)
		}
	}
	c := newChanges()
	for n := range 1000 {
		c.add("m1", "web1", &Minion{ID: "web1", Key: fmt.Sprint(n)})
		c.add("m1", "web1", nil)
	}
	c.add("m1", "web1", &Minion{ID: "web1"})
	if c.all.Len() > 2 || len(c.came)+len(c.went) != c.all.Len() {
		t.Errorf("there are %d changes", c.all.Len())
	}
}
