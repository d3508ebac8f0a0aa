package journal_test

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
)

// making is a store whose journal is not there yet when it is opened for the first time, although it
// was listed: the server lists a stream before it has made it.
type making struct {
	jetstream.JetStream
	made    bool // the second attempt finds it
	settled jetstream.StreamConfig
	opened  int
}

func (m *making) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	if m.opened++; m.opened > 1 {
		return m.JetStream.Stream(ctx, name)
	}
	if err := m.DeleteStream(ctx, name); err != nil {
		return nil, err
	}
	s, err := m.JetStream.Stream(ctx, name)
	if m.made {
		if _, err := m.CreateStream(ctx, m.settled); err != nil {
			return nil, err
		}
	}
	return s, err
}

// TestAJournalThatIsListedAndNotThere: what is listed while another member makes it is waited for, and
// what was removed since is no journal of a member.
func TestAJournalThatIsListedAndNotThere(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int{"made": 1, "removed": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			js, err := jetstream.New(bustest.StartStore(t).Conn())
			if err != nil {
				t.Fatal(err)
			}
			m := &making{JetStream: js, made: want == 1, settled: jetstream.StreamConfig{Name: "EVENTS_m1", Subjects: []string{"made.>"}, Storage: jetstream.MemoryStorage}}
			if _, err := js.CreateStream(inTime(t), m.settled); err != nil {
				t.Fatal(err)
			}
			peers, err := journal.PeersBy(inTime(t), m)
			if err != nil || len(peers) != want || want == 1 && peers[0].Name != "m1" {
				t.Errorf("%d journals, want %d: %v", len(peers), want, err)
			}
			if m.opened != 1+want {
				t.Errorf("it was opened %d times", m.opened)
			}
		})
	}
}
