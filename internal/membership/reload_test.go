package membership

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// TestEachMemberReloads: each says what has changed there. One with a mistake, one that does not know the request
// and one that is not reached are named with the reason, and keep nobody from the others.
func TestEachMemberReloads(t *testing.T) {
	s := bustest.StartSystem(t, 4)
	s.Linked(t)
	reloads := func(r runner.Reloaded, err error) func(*Membership) {
		return func(k *Membership) { serveReload(k, func() (runner.Reloaded, error) { return r, err }) }
	}
	asks := linked(t, s.Members[0], func(*Membership) {})
	linked(t, s.Members[1], reloads(runner.Reloaded{Changed: []string{"publisher_acl"}, Restart: []string{"ret_port"}}, nil))
	linked(t, s.Members[2], reloads(runner.Reloaded{}, errors.Join(salt.WithHint(errors.New("master:3: publisher_acl: no"), "write yes"), errors.New("master:4: no"))))
	linked(t, s.Members[3], func(*Membership) {}) // of an older version
	bustest.Until(t, "they know each other", func() bool { return len(asks.exchange.Others()) == 3 })
	names := []string{s.Members[1].Name, s.Members[2].Name, s.Members[3].Name, "m9"}
	all := reloadAt(t.Context(), names, asks.exchange.Ask)
	if len(all) != len(names) {
		t.Fatalf("%d results: %+v", len(all), all)
	}
	for i, one := range all {
		if one.Name != names[i] {
			t.Errorf("result %d is that of %s", i, one.Name)
		}
	}
	if ok := all[0]; ok.Err != nil || !slices.Equal(ok.Changed, []string{"publisher_acl"}) || !slices.Equal(ok.Restart, []string{"ret_port"}) {
		t.Errorf("one that reloads: %+v", ok)
	}
	for i, want := range map[int]string{1: "stays in force:\nmaster:3: publisher_acl: no\n  hint: write yes\nmaster:4: no", 2: "is it of an older version?", 3: "it is not reached"} {
		if err := all[i].Err; err == nil || !strings.Contains(err.Error(), want) || salt.Hint(err) == "" {
			t.Errorf("%s: %v (%s), want %q and a hint", all[i].Name, err, salt.Hint(err), want)
		}
	}
}
