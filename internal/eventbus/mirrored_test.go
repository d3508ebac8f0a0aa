package eventbus

import (
	"testing"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/protocol"
)

// TestTextsOfAMirrorAreLookedAt: a message that is not an event on one line is skipped before
// anything checks whether the listener wants it, and its reader continues after it.
func TestTextsOfAMirrorAreLookedAt(t *testing.T) {
	l := &listener{q: protocol.Listen{}}
	var err error
	if l.match, err = event.NewMatcher(event.Fnmatch, []string{"nobody/hears"}); err != nil {
		t.Fatal(err)
	}
	m, p := &mirrored{of: l}, &part{l: l}
	for seq, text := range map[uint64]string{
		1: `{"tag":"app/1","from":"web1","data":{}}` + "\n" + `{"tag":"salt/auth","from":"master","data":{}}`,
		2: `{"tag":"app/1","from":"web1","data":{}`,
		3: `no event`,
	} {
		p.next, l.judged = seq, event.Head{}
		if err := m.hear(t.Context(), p, journal.Text{Seq: seq, Body: []byte(text)}); err != nil {
			t.Errorf("%q ends the reading: %v", text, err)
		}
		if l.judged != (event.Head{}) {
			t.Errorf("%q was asked for", text)
		}
		if p.next != seq+1 {
			t.Errorf("after %q it goes on at %d", text, p.next)
		}
	}
	p.next = 9
	if err := m.hear(t.Context(), p, journal.Text{Seq: 9, Body: []byte(`{"tag":"app/1","from":"web1","data":{}}`)}); err != nil || l.judged.Tag != "app/1" {
		t.Errorf("an event was not asked for: %v, %v", l.judged, err)
	}
}
