package journal_test

import (
	"sync/atomic"
	"testing"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
)

// TestACopyThatIsBehindDoesNotLead: another member leads the journal of a member whose own copy is not current. It is
// not asked to give way: the stream would have no leader until the others elect one.
func TestACopyThatIsBehindDoesNotLead(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	var current atomic.Bool
	var looks atomic.Int64
	current.Store(true)
	j := openMember(t, s.Members[0], func(o *journal.Options) {
		o.Server = "m1"
		o.Current = func(string) bool {
			looks.Add(1)
			return current.Load()
		}
	})
	leads := func(name string) bool {
		now, err := j.Leader(t.Context())
		return err == nil && now == name
	}
	bustest.Until(t, "m1 leads", func() bool { return leads("m1") })
	current.Store(false)
	leadBy(t, j, "m2")
	begun := looks.Load()
	bustest.Until(t, "it looks several times", func() bool { return looks.Load() > begun+20 })
	if !leads("m2") {
		t.Error("m2 has given way")
	}
	current.Store(true)
	bustest.Until(t, "m1 leads again", func() bool { return leads("m1") })
}
