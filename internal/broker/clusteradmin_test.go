package broker_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/test/bustest"
)

// leaders returns the leader of each of these streams.
func leaders(t *testing.T, js jetstream.JetStream, streams ...string) (names []string) {
	t.Helper()
	for _, name := range streams {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		s, err := js.Stream(ctx, name)
		cancel()
		if err != nil || s.CachedInfo().Cluster == nil {
			return nil // there is an election
		}
		names = append(names, s.CachedInfo().Cluster.Leader)
	}
	return names
}

// TestAMemberGivesAwayWhatItLeads: afterwards it leads nothing, and its end makes nobody wait.
func TestAMemberGivesAwayWhatItLeads(t *testing.T) {
	s := bustest.NewSystem(t, 3)
	logs := map[string]*lines{}
	for _, m := range s.Members {
		log := &lines{}
		logs[m.Name] = log
		m.Change = func(o *broker.Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) }
	}
	s.Start(t)
	s.Linked(t)
	s.Leader(t)
	js, err := jetstream.New(s.Members[0].Conn())
	if err != nil {
		t.Fatal(err)
	}
	streams := []string{"A", "B", "C", "D", "E", "F"}
	for _, name := range streams {
		bustest.Until(t, "stream "+name, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Replicas: 3})
			return err == nil
		})
	}
	leaves := ""
	bustest.Until(t, "all have leaders", func() bool {
		all := leaders(t, js, streams...)
		if len(all) > 0 {
			leaves = all[0]
		}
		return leaves != "" && !strings.Contains(strings.Join(all, ","), ",,")
	})
	for _, m := range s.Members {
		if m.Name != leaves {
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if led, err := m.Cluster.StepDown(ctx); err != nil || led == 0 {
			t.Fatalf("it led %d streams, %v", led, err)
		}
	}
	for name, log := range logs {
		if says := strings.Contains(log.String(), "this member has stepped down"); says != (name == leaves) {
			t.Errorf("member %s logs that it has stepped down: %t, and it was %s", name, says, leaves)
		}
	}
	bustest.Until(t, leaves+" leads nothing", func() bool {
		all := leaders(t, js, streams...)
		for _, name := range all {
			if name == leaves || name == "" {
				return false
			}
		}
		return len(all) == len(streams)
	})
}

// TestAMemberThatIsForgotten does not count any more: of three members with one forgotten, the
// other two are all there are.
func TestAMemberThatIsForgotten(t *testing.T) {
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	m1 := s.Members[0].Cluster
	s.Members[2].Kill(t)
	forget := func(name string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		return m1.Forget(ctx, name)
	}
	bustest.Until(t, "the others have a leader", func() bool { err := forget("nobody"); return err != nil && strings.Contains(err.Error(), "refuses") })
	if n := m1.Known(); n != 3 {
		t.Errorf("%d members are known, want 3", n)
	}
	if err := forget("m3"); err != nil {
		t.Fatal(err)
	}
	bustest.Until(t, "two are left", func() bool { return m1.Known() == 2 })
}

// TestAMemberIsForgottenByALeaderThatNeverMetIt: the others were restarted after the loss of one, so that no
// leader knows its name. It does not count any more all the same.
func TestAMemberIsForgottenByALeaderThatNeverMetIt(t *testing.T) {
	t.Parallel()
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	lost, rest := s.Members[2], s.Members[:2]
	lost.Kill(t)
	for _, m := range rest {
		m.Stop()
	}
	for _, m := range rest { // both at once: alone neither has a leader
		m.Start(t)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, m := range rest {
		if err := m.Cluster.Leader(ctx); err != nil {
			t.Fatal(err)
		}
	}
	asked := rest[0].Cluster
	bustest.Until(t, "it knows who counts", func() bool { return asked.Known() == 3 })
	if err := asked.Forget(ctx, "nobody"); !errors.Is(err, broker.ErrNoMember) {
		t.Errorf("one that does not exist: %v", err)
	}
	if err := asked.Forget(ctx, lost.Name); err != nil {
		t.Errorf("the lost one: %v", err)
	}
	bustest.Until(t, "two count", func() bool { return rest[0].Cluster.Known() == 2 && rest[1].Cluster.Known() == 2 })
	if err := asked.Forget(ctx, lost.Name); !errors.Is(err, broker.ErrNoMember) {
		t.Errorf("the same once more: %v", err)
	}
}

// TestAMemberThatWasForgottenMakesNoMinority: of four members in the configuration one has left. Two of the
// other three are enough, also while one of them is stopped for a restart; one alone is not.
func TestAMemberThatWasForgottenMakesNoMinority(t *testing.T) {
	t.Parallel()
	s := bustest.StartSystem(t, 4)
	s.Leader(t)
	m := s.Members[0].Cluster
	s.Members[3].Kill(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := m.Forget(ctx, s.Members[3].Name); err != nil {
		t.Fatal(err)
	}
	bustest.Until(t, "three count", func() bool { return m.Known() == 3 })
	s.Members[2].Stop()
	bustest.Until(t, "one of the others is stopped", func() bool { return m.Routes() == 1 })
	bustest.Until(t, "there is a leader", func() bool { return m.Known() == 3 })
	if err := m.Minority(); err != nil {
		t.Errorf("two of three are reached: %v", err)
	}
	s.Isolate(t, s.Members[1])
	bustest.Until(t, "one of three is too few", func() bool { return errors.Is(m.Minority(), broker.ErrMinority) })
}

// TestNobodyIsForgottenWithoutTheQuorum: whoever asks for that is told what is missing, within a second, also if the others are
// lost while they wait for the leader.
func TestNobodyIsForgottenWithoutTheQuorum(t *testing.T) {
	t.Parallel()
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	m := s.Members[0]
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second) // as long as it may take where most are reached
	defer cancel()
	s.Members[1].Kill(t)
	s.Members[2].Kill(t)
	for _, seen := range []bool{false, true} {
		begun := time.Now()
		err := m.Cluster.Forget(ctx, s.Members[1].Name)
		if !errors.Is(err, broker.ErrMinority) || !strings.Contains(err.Error(), "reaches 0 of the 2 others") || time.Since(begun) > 5*time.Second {
			t.Errorf("the loss was seen before: %v: after %s: %v", seen, time.Since(begun), err)
		}
		bustest.Until(t, "it has no route", func() bool { return m.Cluster.Routes() == 0 })
	}
}
