package membership

import (
	"maps"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/test/bustest"
)

// TestAllStreamsGetTheCopiesOfTheSettings: also those that nobody opens, but not while the settings of the members
// differ, and not the journal of a member that may write it.
func TestAllStreamsGetTheCopiesOfTheSettings(t *testing.T) {
	t.Parallel()
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	js, err := jetstream.New(s.Members[0].Conn())
	if err != nil {
		t.Fatal(err)
	}
	writes := "EVENTS_" + nameOf(s.Peers[1])
	for _, stream := range []string{"KV_positions", "AUDIT_gone", "EVENTS_gone", writes} {
		bustest.Until(t, stream+" is there", func() bool {
			_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: stream, Subjects: []string{stream + ".>"}, Metadata: map[string]string{"kept": "true"}})
			return err == nil
		})
	}
	// has returns how many copies a stream is to have.
	has := func(stream string) int {
		s, err := js.Stream(t.Context(), stream)
		if err != nil {
			return 0
		}
		if c := s.CachedInfo().Config; c.Metadata["kept"] != "true" || len(c.Subjects) != 1 {
			t.Errorf("%s is changed to %+v", stream, c)
		}
		return s.CachedInfo().Config.Replicas
	}
	var all []*Membership
	for _, m := range s.Members {
		all = append(all, linked(t, m, func(k *Membership) {
			k.identity.copies, k.identity.peers = 3, s.Peers
			k.copyKeeper.every = 50 * time.Millisecond
		}))
	}
	say := func(copies func(member int) int) {
		for _, k := range all {
			for i, m := range s.Members {
				k.heard.set(m.Name, said{shape: shape{Copies: copies(i)}})
			}
		}
	}
	for _, k := range all {
		bustest.Until(t, "the members know each other", func() bool { return len(k.exchange.Others()) == 2 })
	}
	same := func(int) int { return 3 }
	say(same)
	other := map[string]int{}
	for _, k := range all {
		maps.Copy(other, otherCopies(k))
	}
	if want := map[string]int{"KV_positions": 1, "AUDIT_gone": 1, "EVENTS_gone": 1}; !maps.Equal(other, want) {
		t.Errorf("%v are to get other copies, want %v", other, want)
	}
	say(func(member int) int { return 5 - 2*(member%2) }) // the second one is restarted with the new settings
	for _, k := range all {
		if other := otherCopies(k); len(other) > 0 {
			t.Errorf("while the settings differ %v get other copies", other)
		}
		go repeat(t.Context(), k.copyKeeper.every, func() { keepCopies(t.Context(), k) })
	}
	say(same)
	for stream := range other {
		bustest.Until(t, stream+" has three copies", func() bool { return has(stream) == 3 })
	}
	if n := has(writes); n != 1 {
		t.Errorf("the journal that its member may write gets %d copies", n)
	}
}
