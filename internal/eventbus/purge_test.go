package eventbus

import (
	"slices"
	"testing"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/bustest"
)

// purge asks for the removal of events, as salt-event does.
func (w *world) purge(c *rpc.Conn, q protocol.Purge) (done protocol.Purged, err error) {
	err = c.Ask(w.bounded(), protocol.OpPurge, q, &done)
	return done, err
}

// TestTheJournalOfALostMemberIsPurged: an operator removes events from the journal of a member that runs, and of one that
// does not, at another member; nothing is removed from others. Who is no operator is refused, and so is a journal that is none.
func TestTheJournalOfALostMemberIsPurged(t *testing.T) {
	t.Parallel()
	_, list := startCluster(t)
	m1, m3 := list[0], list[2]
	c := m1.dial()
	m1.mustFire(c, "m1/1")
	m3.mustFire(m3.dial(), "m3/1", "m3/2", "m3/3", "m3/4")
	left := func(want ...string) {
		t.Helper()
		h := m1.mustListen(c, protocol.Listen{FromSeq: 1, UntilEnd: true, Mirrors: true})
		var got []string
		for {
			line, err := h.line()
			if err != nil {
				break
			}
			e, err := event.Read(line)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e.Tag)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("left are %q, want %q", got, want)
		}
	}
	left("m1/1", "m3/1", "m3/2", "m3/3", "m3/4")
	if done, err := m1.purge(c, protocol.Purge{Before: 1, Journal: "m3", JournalBefore: 2}); err != nil || done != (protocol.Purged{Count: 1, Journal: "m3"}) {
		t.Errorf("purged %+v, %v", done, err)
	}
	left("m1/1", "m3/2", "m3/3", "m3/4")
	m1.mustFire(c, "m1/2")
	m3.kill()
	bustest.Until(t, "the journal of m3 has a leader", func() bool {
		done, err := m1.purge(c, protocol.Purge{Before: 1, Journal: "m3", Tags: []string{"m3/2"}})
		return err == nil && done.Count == 1
	})
	left("m1/1", "m1/2", "m3/3", "m3/4")
	if _, err := m1.purge(c, protocol.Purge{Before: 1, Journal: "m4"}); rpc.CodeOf(err) != rpc.NotFound {
		t.Errorf("a journal that is none: %v", err)
	}
	m1.as("bob")
	m1.grant("bob: {fire: '*', listen: '*'}")
	for _, name := range []string{"m1", "m3", "m4"} {
		if _, err := m1.purge(c, protocol.Purge{Before: 1, Journal: name}); rpc.CodeOf(err) != rpc.Denied {
			t.Errorf("bob purges the journal of %s: %v", name, err)
		}
	}
	m1.as("")
	left("m1/1", "m1/2", "m3/3", "m3/4")
	if done, err := m1.purge(c, protocol.Purge{Before: 1, Journal: "m3"}); err != nil || done.Count != 1 {
		t.Errorf("purged %+v, %v", done, err)
	}
	left("m1/1", "m1/2", "m3/4") // the newest stays
	if done, err := m1.purge(c, protocol.Purge{Before: 1, Journal: "m1", JournalBefore: 2}); err != nil || done.Count != 1 {
		t.Errorf("purged %+v of its own journal, %v", done, err)
	}
	left("m1/2", "m3/4")
}

// TestAMirrorIsNotPurged: the mirror of a journal that is somewhere else follows that.
func TestAMirrorIsNotPurged(t *testing.T) {
	w := start(t)
	w.events.SetMirrors("own-0a", func(string) bool { return true })
	put := w.mirror("other-0b")
	put("other/1")
	if _, err := w.purge(w.dial(), protocol.Purge{Before: 1, Journal: "other-0b"}); rpc.CodeOf(err) != rpc.Usage {
		t.Errorf("it is purged: %v", err)
	}
}
