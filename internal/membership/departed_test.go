package membership

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/member"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/test/bustest"
)

// statusOf is what a member says of another one.
func statusOf(t *testing.T, k *Membership, name string) runner.MemberStatus {
	t.Helper()
	status, err := k.ClusterStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := slices.IndexFunc(status.Members, func(m runner.MemberStatus) bool { return m.Name == name })
	if n < 0 {
		t.Fatalf("%s is not among %+v", name, status.Members)
	}
	return status.Members[n]
}

// TestAMemberThatHasLeftIsNotLost: it is shown as one that has left, also by a member that was restarted since, or that did
// not run at that time; one that only does not run is not.
func TestAMemberThatHasLeftIsNotLost(t *testing.T) {
	t.Parallel()
	s, dirs := removing(t, 4)
	s.Start(t)
	s.Linked(t)
	s.Leader(t)
	var all []*Membership
	var ends []func()
	for n, m := range s.Members[:3] {
		k := with(t, m, dirs[n])
		k.leaving.serve(k.exchange, k.log)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { k.leaving.watch(ctx, k.broker.Cluster, &k.former, k.own.Forget, k.log) })
		end := func() { cancel(); wg.Wait() }
		t.Cleanup(end)
		all, ends = append(all, k), append(ends, end)
	}
	one, two, leaver := all[0], all[1], s.Members[2]
	others(t, one, 2)
	others(t, two, 2)
	bustest.Until(t, "they count each other", func() bool { return one.broker.Cluster.Known() == 4 })

	for _, k := range all[:2] {
		if err := k.leaving.admit(leaver.Name); err != nil {
			t.Fatal(err)
		}
	}
	ends[2]()
	all[2].exchange.Stop()
	leaver.Stop()
	before := time.Now()
	bustest.Until(t, "it is shown as one that has left", func() bool {
		return !statusOf(t, one, leaver.Name).Left.IsZero() && !statusOf(t, two, leaver.Name).Left.IsZero()
	})
	if at := statusOf(t, one, leaver.Name).Left; at.Before(before.Add(-time.Minute)) || at.After(time.Now()) {
		t.Errorf("it has left at %s, want some moment after %s", at, before)
	}
	s.Members[3].Stop()
	bustest.Until(t, "another one is stopped", func() bool { return one.broker.Cluster.Routes() == 1 })
	if got := statusOf(t, one, s.Members[3].Name); !got.Left.IsZero() {
		t.Errorf("one that was stopped has left: %+v", got)
	}
	again := &departed{path: member.LeftFile(dirs[0]), names: one.place().All, log: slog.New(slog.DiscardHandler)}
	if again.all()[leaver.Name].IsZero() {
		t.Error("a restart forgets it")
	}
	one.leaving.departed.change(func(list map[string]time.Time) { clear(list) })
	if statusOf(t, one, leaver.Name).Left.IsZero() {
		t.Error("one that did not run does not learn it from the others")
	}
}

// TestWhoHasLeft: what is said of one that counts for elections is old, and so is what was known before it answered.
func TestWhoHasLeft(t *testing.T) {
	now := time.Now().UTC()
	left := func(at time.Time) map[string]time.Time { return map[string]time.Time{"c": at} }
	for name, c := range map[string]struct {
		all  map[string]said
		want time.Time
	}{
		"nobody knows":             {map[string]said{"a": {}, "b": {}}, time.Time{}},
		"one knows":                {map[string]said{"a": {}, "b": {Left: left(now)}}, now},
		"it has left twice":        {map[string]said{"a": {Left: left(now.Add(-time.Hour))}, "b": {Left: left(now)}}, now},
		"another one is only away": {map[string]said{"a": {Left: left(now), Away: []string{"d"}}}, now},
		"it counts":                {map[string]said{"a": {Away: []string{"c"}}, "b": {Left: left(now)}}, time.Time{}},
	} {
		if got := leftAt("c", c.all); !got.Equal(c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}

	d := &departed{path: member.LeftFile(t.TempDir()), names: []string{"a", "b", "c"}, log: slog.New(slog.DiscardHandler)}
	d.add("c", now)
	d.add("elsewhere", now)
	d.back([]string{"c"}, now.Add(-time.Second)) // it has answered, and left after that
	if list := d.all(); len(list) != 1 || !list["c"].Equal(now) {
		t.Errorf("known are %v, want c alone", list)
	}
	d.back([]string{"c"}, now.Add(time.Second))
	again := &departed{path: d.path, names: d.names, log: d.log}
	if list := again.all(); len(list) != 0 {
		t.Errorf("it is a member again, and known are %v", list)
	}

	if err := os.WriteFile(d.path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	damaged := &departed{path: d.path, names: d.names, log: d.log}
	if len(damaged.all()) != 0 {
		t.Error("a damaged file says something")
	}
	damaged.add("c", now)
	if list, err := member.ReadLeft(d.path); err != nil || !list["c"].Equal(now) {
		t.Errorf("it is not written anew: %v, %v", list, err)
	}
}
