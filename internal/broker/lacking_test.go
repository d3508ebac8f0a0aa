package broker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/test/bustest"
)

// TestCopiesOfLostMembersLackAtOnce: when the link to a member is lost, each stream with a copy there counts at the next look of
// each that is left, whoever led it, and also when no others are left to elect a leader.
func TestCopiesOfLostMembersLackAtOnce(t *testing.T) {
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	js, err := jetstream.New(s.Members[0].Conn())
	if err != nil {
		t.Fatal(err)
	}
	const streams = 6
	for n := range streams {
		bustest.Until(t, "a stream", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: fmt.Sprintf("S%d", n), Replicas: 3})
			return err == nil
		})
	}
	for _, m := range s.Members {
		if at := len(s.Members[0].Cluster.At(m.Name)); m != s.Members[0] && at != streams {
			t.Errorf("%s has %d streams", m.Name, at)
		}
		bustest.Until(t, "nothing lacks at "+m.Name, func() bool { return len(m.Cluster.Lacking()) == 0 })
	}
	all := func(m *bustest.Member) {
		t.Helper()
		bustest.Until(t, m.Name+" sees the loss", func() bool { return len(m.Cluster.Members()) < len(s.Members)-1 })
		lacks := m.Cluster.Lacking()
		for n := range streams {
			if lacks[fmt.Sprintf("S%d", n)] == "" {
				t.Errorf("at %s S%d lacks nothing: %q", m.Name, n, lacks)
			}
		}
	}
	left := s.Members[0]
	s.Isolate(t, s.Members[2])
	all(s.Members[1])
	all(left)
	s.Isolate(t, s.Members[1])
	bustest.Until(t, "it is alone", func() bool { return len(left.Cluster.Members()) == 0 })
	all(left)
}
