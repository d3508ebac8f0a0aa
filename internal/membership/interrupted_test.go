package membership

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/member"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// leavingSystem starts three members that have a leader, and answer each other; the last one leaves.
func leavingSystem(t *testing.T) (s *bustest.System, others []*Membership, last *Membership) {
	t.Helper()
	s = bustest.StartSystem(t, 3)
	s.Leader(t)
	var all []*Membership
	for _, m := range s.Members {
		all = append(all, linked(t, m, func(k *Membership) {
			k.journal, k.cfg = new(journal.Journal), new(config.Master)
			k.serveStatus()
			k.leaving.serve(k.exchange, k.log)
		}))
	}
	bustest.Until(t, "the members know each other", func() bool {
		return !slices.ContainsFunc(all, func(k *Membership) bool { return len(k.exchange.Others()) != 2 || k.broker.Cluster.Known() != 3 })
	})
	return s, all[:2], all[2]
}

// restart starts a member that was killed, up to the opening of its store.
func restart(t *testing.T, s *bustest.System, m *Membership) (member.Leave, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s.Rejoin(s.Members[2])
	err := m.CheckLeave(ctx, func(string) {})
	how, _, read := member.ReadLeave(m.mark)
	if read != nil {
		t.Fatal(read)
	}
	return how, err
}

// TestAMemberThatWasKilledBeforeItHasLeft: the others count it, so it is a member. Those that have its request
// to leave do not forget it when it is restarted.
func TestAMemberThatWasKilledBeforeItHasLeft(t *testing.T) {
	t.Parallel()
	s, others, last := leavingSystem(t)
	if err := member.WriteLeave(last.mark, member.Leaves); err != nil {
		t.Fatal(err)
	}
	if err := others[0].leaving.admit(last.name); err != nil { // the other one was not asked any more
		t.Fatal(err)
	}
	s.Members[2].Kill(t)
	s.Leader(t)
	if how, err := restart(t, s, last); err != nil || how != member.Stays {
		t.Errorf("the others count it, and it does not start: %v, its mark says %d", err, how)
	}
	if names := waiting(others[0]); len(names) > 0 {
		t.Errorf("%s still takes %q for members that leave", others[0].name, names)
	}
	s.Members[2].Start(t)
	bustest.Until(t, "all three are members", func() bool {
		return s.Members[0].Cluster.Known() == 3 && len(s.Members[0].Cluster.Members()) == 2
	})
}

// TestAMemberThatWasKilledAfterItHasLeft: the others count it no more, so it does not start, also when
// none of them runs.
func TestAMemberThatWasKilledAfterItHasLeft(t *testing.T) {
	t.Parallel()
	s, others, last := leavingSystem(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := last.Leave(ctx); err != nil {
		t.Fatal(err)
	}
	if !marked(t, last) {
		t.Error("a member that leaves is not marked")
	}
	s.Members[2].Kill(t)
	done := make(chan struct{})
	watching, stop := context.WithCancel(ctx)
	var forgotten keeping
	forgotten.fails.Store(1)
	go func() {
		defer close(done)
		others[0].leaving.watch(watching, others[0].broker.Cluster, &others[0].former, forgotten.Forget, others[0].log)
	}()
	defer func() { stop(); <-done }()
	bustest.Until(t, "it is forgotten", func() bool { return len(waiting(others[0])) == 0 && others[0].broker.Cluster.Known() == 2 })
	others[0].former.retry(ctx, nil, forgotten.Forget, others[0].log)
	if got := forgotten.name.Load(); got == nil || *got != last.name {
		t.Error("what is stored of it is kept")
	}
	how, err := restart(t, s, last)
	if !errors.Is(err, config.ErrMistake) || how != member.Left {
		t.Errorf("the others do not count it: %v, its mark says %d", err, how)
	}
	if n := others[0].broker.Cluster.Known(); n != 2 {
		t.Errorf("by its question %d members count", n)
	}
	s.Members[0].Stop()
	s.Members[1].Stop()
	if how, err := restart(t, s, last); !errors.Is(err, config.ErrMistake) || how != member.Left {
		t.Errorf("once it is known that it has left: %v, its mark says %d", err, how)
	}
}

// TestALeaveIsNotKnownWithoutTheLeader: as long as nobody knows whether it counts, it waits and stays as it is.
func TestALeaveIsNotKnownWithoutTheLeader(t *testing.T) {
	t.Parallel()
	s, others, last := leavingSystem(t)
	if err := member.WriteLeave(last.mark, member.Leaves); err != nil {
		t.Fatal(err)
	}
	s.Members[2].Kill(t)
	s.Members[1].Stop()
	bustest.Until(t, "it has lost the others", func() bool { return others[0].broker.Cluster.Known() == 0 })
	s.Rejoin(s.Members[2])
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("it waits")
	err := last.CheckLeave(ctx, func(string) { cancel(enough) })
	if how, _, _ := member.ReadLeave(last.mark); !errors.Is(err, enough) || how != member.Leaves {
		t.Errorf("nobody has said whether it counts: %v, its mark says %d", err, how)
	}
}

// TestALeaveThatIsWithdrawnIsNotCarriedOut: who forgets a member stops that when it stays.
func TestALeaveThatIsWithdrawnIsNotCarriedOut(t *testing.T) {
	var l leaving
	l.add("a")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if !l.forgetting("a", cancel) || !l.has("a") {
		t.Fatal("a member that leaves is not forgotten")
	}
	l.remove("a")
	if ctx.Err() == nil || l.has("a") {
		t.Error("a member that stays is being forgotten")
	}
	if l.forgetting("a", cancel) {
		t.Error("a member that stays is forgotten")
	}
}

// TestTheHintOfAMemberThatHasLeftIsEnoughToStartAlone: cluster_peers without cluster_id is a mistake, too.
func TestTheHintOfAMemberThatHasLeftIsEnoughToStartAlone(t *testing.T) {
	cfg, err := settings(nil), hasLeft("/cache/cluster/left", "then")
	for _, line := range []struct {
		key  string
		take func()
	}{{"cluster_id", func() { cfg.ClusterID = "" }}, {"cluster_peers", func() { cfg.ClusterPeers = nil }}} {
		if strings.Contains(salt.Hint(err), line.key) {
			line.take()
		}
	}
	if wrong := Check(cfg); cfg.ClusterID != "" || wrong != nil {
		t.Errorf("with the hint %q a master does not start alone: %v", salt.Hint(err), wrong)
	}
}
