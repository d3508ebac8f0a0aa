package membership

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/test/bustest"
)

// TestWhoIsMissing: a member that waits says which others are linked, and which are not.
func TestWhoIsMissing(t *testing.T) {
	t.Parallel()
	s := bustest.NewSystem(t, 3)
	for _, m := range s.Members[:2] {
		m.Start(t)
	}
	i := identity{self: s.Peers[0]}
	bustest.Until(t, "the second one is linked", func() bool {
		linked, missing := i.present(s.Members[0].Cluster)
		return slices.Equal(linked, []string{"m2"}) && slices.Equal(missing, s.Peers[2:])
	})
}

// TestWaitHint: where no command is answered, the hint names none for that machine, and the way to go on without the
// others only where most of them are missing.
func TestWaitHint(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		missing []string
		want    string
		not     string
	}{
		"most are missing": {fmt.Errorf("%w: 0 of 2", broker.ErrMinority), []string{"a:1", "b:1"}, "'The others are lost for ever'", "salt-"},
		"one is missing":   {errNew, []string{"b:1"}, "another member is not reached", "lost for ever"},
		"no leader":        {errors.New("no leader"), []string{"b:1"}, "start the members that are missing", "lost for ever"},
		"nobody":           {errors.New("no leader"), nil, "at a member that is ready", "missing"},
	} {
		if got := waitHint(c.err, c.missing); !strings.Contains(got, c.want) || strings.Contains(got, c.not) {
			t.Errorf("%s: the hint is %q", name, got)
		}
	}
}
