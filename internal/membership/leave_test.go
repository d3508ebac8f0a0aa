package membership

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/cluster"
	"github.com/brinebus/brine/internal/dispatch"
	"github.com/brinebus/brine/internal/member"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// noMinions has none.
type noMinions struct{}

func (noMinions) Came(string, cluster.Minion) {}
func (noMinions) Went(string, salt.MinionID)  {}
func (noMinions) Rules() string               { return "" }
func (noMinions) Minions() int                { return 0 }

func (noMinions) Forget(context.Context, string) error { return nil }

func (noMinions) Reload() (runner.Reloaded, error) { return runner.Reloaded{}, nil }

// keeping remembers whose entries it was to forget last, and fails for some times.
type keeping struct {
	noMinions
	fails atomic.Int64
	name  atomic.Pointer[string]
}

func (k *keeping) Forget(_ context.Context, name string) error {
	if k.fails.Add(-1) >= 0 {
		return errors.New("nothing can be stored")
	}
	k.name.Store(&name)
	return nil
}

// linked returns a member with its exchange. serve registers what it answers.
func linked(t *testing.T, m *bustest.Member, serve func(*Membership)) *Membership {
	t.Helper()
	k := &Membership{identity: identity{name: m.Name}, log: m.Log, mark: filepath.Join(t.TempDir(), "left")}
	var err error
	if k.cluster, err = m.Options(); err != nil {
		t.Fatal(err)
	}
	k.broker, k.own, k.jobs = m.Broker, noMinions{}, dispatch.All{Dispatcher: &dispatch.Dispatcher{}}
	k.exchange = cluster.New(cluster.Options{Name: m.Name, Conn: m.Conn(), Minions: noMinions{}, Log: m.Log})
	serve(k)
	if err := k.exchange.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.exchange.Stop)
	return k
}

// marked reports whether the mark of a member says that it leaves.
func marked(t *testing.T, k *Membership) bool {
	t.Helper()
	how, _, err := member.ReadLeave(k.mark)
	if err != nil || how == member.Left {
		t.Errorf("the mark of %s: %v, %v", k.name, how, err)
	}
	return how == member.Leaves
}

// waiting are the members that leave, as another one knows it.
func waiting(k *Membership) []string {
	names, _ := k.leaving.names()
	return names
}

// TestOneMemberLeavesAtATime: a member does not leave while another one does, also if both are asked at
// once: neither knows then whether enough would be left.
func TestOneMemberLeavesAtATime(t *testing.T) {
	t.Parallel()
	s := bustest.StartSystem(t, 4)
	s.Leader(t)
	var all []*Membership
	for _, m := range s.Members {
		all = append(all, linked(t, m, func(k *Membership) { k.leaving.serve(k.exchange, k.log) }))
	}
	bustest.Until(t, "the members know each other", func() bool {
		return !slices.ContainsFunc(all, func(k *Membership) bool { return len(k.exchange.Others()) != 3 || k.broker.Cluster.Known() != 4 })
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	leave := func(n int) error {
		_, err := all[n].Leave(ctx)
		return err
	}
	left := make(chan error, 2)
	for n := range 2 {
		go func() { left <- leave(n) }()
	}
	if first, second := <-left, <-left; first == nil && second == nil {
		t.Error("two members leave at once")
	}
	one, two := marked(t, all[0]), marked(t, all[1])
	if one && two {
		t.Error("two members are marked as leaving")
	}
	if !one && !two { // each has refused the other one
		if err := leave(0); err != nil {
			t.Fatalf("a member alone: %v", err)
		}
	}
	if err := leave(2); err == nil || salt.Hint(err) == "" || marked(t, all[2]) {
		t.Errorf("a third member leaves while another one does: %v", err)
	}
	// One that has not heard of it is refused by who has.
	for _, name := range waiting(all[3]) {
		all[3].leaving.remove(name)
	}
	if err := leave(3); err == nil || !strings.Contains(err.Error(), "leaving") || marked(t, all[3]) {
		t.Errorf("a fourth member leaves while another one does: %v", err)
	}
}

// TestALeaveThatIsLate: a member that does not stop counts again, and others may leave.
func TestALeaveThatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l leaving
		if err := l.admit("a"); err != nil {
			t.Fatal(err)
		}
		if err := l.admit("a"); err != nil {
			t.Errorf("it asks again: %v", err)
		}
		if l.admit("b") == nil || l.begin() == nil {
			t.Error("another member leaves, too")
		}
		time.Sleep(leaveTime + time.Second)
		if err := l.begin(); err != nil {
			t.Errorf("the first one is late: %v", err)
		}
		if l.admit("b") == nil {
			t.Error("another member leaves while this one does")
		}
		if list, late := l.names(); len(list) > 0 || !slices.Equal(late, []string{"a"}) {
			t.Errorf("leaving are %q, late are %q", list, late)
		}
		l.end()
		if err := l.admit("b"); err != nil {
			t.Errorf("this member does not leave after all: %v", err)
		}
	})
}

// spooled is a spool that has some jobs.
type spooled struct {
	dispatch.Spool
	jobs int
}

func (s *spooled) Jobs() int { return s.jobs }

// TestAMemberLeavesNoJobBehind: what it has run without the quorum is stored first, for all members.
func TestAMemberLeavesNoJobBehind(t *testing.T) {
	t.Parallel()
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	var all []*Membership
	for _, m := range s.Members {
		all = append(all, linked(t, m, func(k *Membership) { k.leaving.serve(k.exchange, k.log) }))
	}
	one := all[0]
	bustest.Until(t, "the members know each other", func() bool { return len(one.exchange.Others()) == 2 && one.broker.Cluster.Known() == 3 })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	spool := &spooled{jobs: 2}
	one.jobs.Spool = spool
	if _, err := one.Leave(ctx); err == nil || !strings.Contains(salt.Hint(err), "unstored_jobs") || marked(t, one) || len(waiting(all[1])) > 0 {
		t.Errorf("it leaves with jobs that are not stored: %v", err)
	}
	spool.jobs = 0
	if _, err := one.Leave(ctx); err != nil || !marked(t, one) {
		t.Errorf("it does not leave when they are stored: %v", err)
	}
}

// TestNoMemberLeavesWhileCopiesAreMissing: another one may be the only one that has what a stream lacks. What so few
// members cannot have is not waited for.
func TestNoMemberLeavesWhileCopiesAreMissing(t *testing.T) {
	t.Parallel()
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	var lacks atomic.Pointer[map[string]string]
	one := linked(t, s.Members[0], func(*Membership) {})
	one.copies = 5
	for _, m := range s.Members[1:] {
		linked(t, m, func(k *Membership) {
			k.leaving.serve(k.exchange, k.log)
			k.exchange.Handle(kindStatus, func(context.Context, string, []byte) (any, error) { return said{Lacks: *lacks.Load()}, nil })
		})
	}
	bustest.Until(t, "the members know each other", func() bool { return len(one.exchange.Others()) == 2 && one.broker.Cluster.Known() == 3 })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, what := range []string{"m3 is 7 entries behind, and was heard 1ms ago", broker.CopiesOf(2, 5)} {
		lacks.Store(&map[string]string{"EVENTS_m2": what, "KV_keys": broker.CopiesOf(3, 5)})
		if _, err := one.Leave(ctx); err == nil || !strings.Contains(err.Error(), "1 stream without all copies, such as EVENTS_m2: "+what) || !strings.Contains(salt.Hint(err), "lacking: 0") || marked(t, one) {
			t.Errorf("it leaves though %s: %v", what, err)
		}
	}
	lacks.Store(&map[string]string{"KV_keys": broker.CopiesOf(3, 5)})
	if _, err := one.Leave(ctx); err != nil || !marked(t, one) {
		t.Errorf("it does not leave though three members have all that they can: %v", err)
	}
}

// TestALeaveThatFailsIsWithdrawn: a member that cannot inform all others does not leave. Those that it
// has informed do not forget it when it is restarted.
func TestALeaveThatFailsIsWithdrawn(t *testing.T) {
	t.Parallel()
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	asked := make(chan string, 1)
	one := linked(t, s.Members[0], func(*Membership) {})
	two := linked(t, s.Members[1], func(k *Membership) { k.leaving.serve(k.exchange, k.log) })
	linked(t, s.Members[2], func(k *Membership) {
		k.exchange.Handle(kindLeave, func(context.Context, string, []byte) (any, error) {
			asked <- waiting(two)[0]
			return nil, errors.New("its disk is full")
		})
	})
	bustest.Until(t, "the members know each other", func() bool { return len(one.exchange.Others()) == 2 })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := one.Leave(ctx); err == nil || marked(t, one) {
		t.Errorf("it leaves: %v", err)
	}
	if name := <-asked; name != one.name {
		t.Errorf("%s was told that %q leaves", two.name, name)
	}
	if names := waiting(two); len(names) > 0 {
		t.Errorf("%s still takes %q for members that leave", two.name, names)
	}
}
