package client

import (
	"errors"
	"testing"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/protocol"
)

// TestPassing: the position of a listener follows from the lines alone, whether or not events
// are decoded; lines that the daemon must not send do not change it.
func TestPassing(t *testing.T) {
	l := &Listener{mirrors: true, at: event.Position{}}
	for _, test := range []struct {
		line         string
		event        bool
		passed       uint64
		at           string
		lost, missed uint64
	}{
		{`{"tag":"a","data":{},"seq":7}`, true, 7, "", 0, 0},
		{`{"tag":"a","data":{"seq":99},"master":"m2-b","seq":3}`, true, 7, "m2-b:3", 0, 0},
		{`{"passed":12,"lost":2}`, false, 12, "m2-b:3", 2, 0},
		{`{"passed":5,"missed":4}`, false, 12, "m2-b:3", 6, 4}, // it never goes back
		{`{"passed":8,"master":"m2-b"}`, false, 12, "m2-b:8", 6, 4},
	} {
		is, err := l.pass([]byte(test.line))
		if err != nil || is != test.event || l.Position() != test.passed || l.Positions() != test.at || l.Lost() != test.lost || l.Missed() != test.missed {
			t.Errorf("%s: an event: %v, %v; then %+v", test.line, is, err, l)
		}
	}
	for _, line := range []string{`{"tag":"a","data":{}}`, `{"passed":"x"}`, ``} {
		if is, err := l.pass([]byte(line)); is || err == nil || l.Position() != 12 {
			t.Errorf("%q is an event: %v, %v; then %d", line, is, err, l.Position())
		}
	}
	l.live = true
	if is, err := l.pass([]byte(`{"tag":"a","data":{}}`)); !is || err != nil || l.Position() != 12 {
		t.Errorf("an event that is not stored: %v, %v", is, err)
	}
}

// TestAheadOfTheJournal: a listener whose position is after the end of the journal continues
// where the daemon has begun.
func TestAheadOfTheJournal(t *testing.T) {
	l := newListener(nil, nil, ListenOptions{}, protocol.Ready{Ready: true, Start: 1, Last: 40, Ahead: 97})
	if l.Position() != 0 || l.End() != 40 || l.Ahead() != 97 {
		t.Errorf("it goes on behind %d, of %d, and was at %d", l.Position(), l.End(), l.Ahead())
	}
}

// TestJournalsThatAreGone: the daemon names the journals without which a listener goes on.
func TestJournalsThatAreGone(t *testing.T) {
	l := newListener(nil, nil, ListenOptions{}, protocol.Ready{Ready: true, Gone: []string{"m2-b"}, At: event.Position{"m2-c": 4}})
	if len(l.Gone()) != 1 || l.Gone()[0] != "m2-b" || l.Positions() != "m2-c:3" {
		t.Errorf("gone are %q, and it goes on behind %s", l.Gone(), l.Positions())
	}
}

// TestNamesOfRequests: the same events in the same batches are one request; those without a
// name are none.
func TestNamesOfRequests(t *testing.T) {
	name := FireOptions{ID: "x"}.request(3)
	for why, other := range map[string]string{
		"cut in another way": FireOptions{ID: "x"}.request(2), "further on": FireOptions{ID: "x", First: 3}.request(3), "another name": FireOptions{ID: "y"}.request(3),
	} {
		if other == name {
			t.Errorf("%s: the name is the same", why)
		}
	}
	if again := (FireOptions{ID: "x"}).request(3); again != name || len(name) > 64 {
		t.Errorf("again it is %q, not %q", again, name)
	}
	if none := (FireOptions{First: 3}).request(3); none != "" {
		t.Errorf("no name is %q", none)
	}
}

// TestUnsure: only errors that say so leave open whether something was done.
func TestUnsure(t *testing.T) {
	if !Unsure(ErrLost) || Unsure(errors.New("other")) || Unsure(nil) || Unsure(ErrDenied) {
		t.Error("it is taken for unsure, or not, by the wrong errors")
	}
}
