package membership

import (
	"testing"

	"github.com/brinebus/brine/test/bustest"
)

// TestOneMemberKnowsWhoIsFormer: a member that is away is not a former one. Of one that was taken out, that is known to the one that
// leads the group of all members.
func TestOneMemberKnowsWhoIsFormer(t *testing.T) {
	t.Parallel()
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	var all []*Membership
	for _, m := range s.Members {
		all = append(all, linked(t, m, func(*Membership) {}))
	}
	bustest.Until(t, "the members know each other", func() bool {
		for _, m := range all {
			if len(m.exchange.Others()) != 2 || m.broker.Cluster.Known() != 3 {
				return false
			}
		}
		return true
	})
	of := func(n int) Auditors {
		a, ok := AuditorsOf(all[n])
		if !ok {
			t.Fatal("it is a member")
		}
		return a
	}
	if _, ok := AuditorsOf(nil); ok {
		t.Error("a single master has others")
	}
	lost := all[2].name
	if !of(0).Runs(lost) || of(0).Former(lost) || of(1).Former(lost) {
		t.Error("one that runs is a former one")
	}
	all[2].exchange.Stop()
	s.Members[2].Stop()
	bustest.Until(t, "it is away, and the others have a leader", func() bool {
		_, first := all[0].broker.Cluster.Counts(lost)
		_, second := all[1].broker.Cluster.Counts(lost)
		return !of(0).Runs(lost) && !of(1).Runs(lost) && first != second && len(all[0].broker.Cluster.Members()) == 1 && len(all[1].broker.Cluster.Members()) == 1
	})
	if of(0).Former(lost) || of(1).Former(lost) {
		t.Error("one that is away is a former one")
	}
	if err := all[0].broker.Cluster.Forget(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	bustest.Until(t, "one member knows it", func() bool { return of(0).Former(lost) != of(1).Former(lost) })
}
