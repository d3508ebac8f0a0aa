package eventbus

import (
	"encoding/json"
	"testing"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/lease"
	"github.com/brinebus/brine/internal/protocol"
)

// TestPositionsMoveWithTheirJournal: a listener and a handler of the daemon go on where they were,
// in their own journal and in those of others, when a master becomes a member, and back.
func TestPositionsMoveWithTheirJournal(t *testing.T) {
	text := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, c := range map[string]struct {
		table, from, to string
		key             string
		value           any
		wantKey         string
		want            any
	}{
		"a listener joins":          {"positions", "", "m1", "0/x", stored{Seq: 7, User: "root"}, "0/x", stored{Seq: 7, User: "root", At: event.Position{"m1": 7}}},
		"with a mirror":             {"positions", "", "m1", "0/x", stored{Seq: 7, At: event.Position{"m2": 3}}, "0/x", stored{Seq: 7, At: event.Position{"m1": 7, "m2": 3}}},
		"at the beginning":          {"positions", "", "m1", "0/x", stored{}, "0/x", stored{At: event.Position{"m1": 0}}},
		"a listener leaves":         {"positions", "m1", "", "0/x", stored{At: event.Position{"m1": 7, "m2": 3}, Holder: lease.Holder{Member: "m1"}}, "0/x", stored{Seq: 7, At: event.Position{"m2": 3}}},
		"under another name":        {"positions", "m1", "n1", "0/x", stored{Seq: 7, At: event.Position{"m1": 7, "m2": 3}}, "0/x", stored{Seq: 7, At: event.Position{"n1": 7, "m2": 3}}},
		"a handler joins":           {"positions", "", "m1", "reactor/x", stored{Seq: 7}, "reactor@m1/x", stored{Seq: 7}},
		"a handler leaves":          {"positions", "m1", "", "reactor@m1/x", stored{Seq: 7}, "reactor/x", stored{Seq: 7}},
		"a handler of another":      {"positions", "m1", "", "reactor@m2/x", stored{Seq: 7}, "reactor@m2/x", stored{Seq: 7}},
		"a dead letter joins":       {"dead", "", "m1", letterKey("0", "x", "", 7), protocol.DeadLetter{Name: "x", Seq: 7}, letterKey("0", "x", "m1", 7), protocol.DeadLetter{Name: "x", Seq: 7, Journal: "m1"}},
		"a dead letter leaves":      {"dead", "m1", "", letterKey("0", "x", "m1", 7), protocol.DeadLetter{Name: "x", Seq: 7, Journal: "m1"}, letterKey("0", "x", "", 7), protocol.DeadLetter{Name: "x", Seq: 7}},
		"a dead letter of another":  {"dead", "m1", "", letterKey("0", "x", "m2", 7), protocol.DeadLetter{Name: "x", Seq: 7, Journal: "m2"}, letterKey("0", "x", "m2", 7), protocol.DeadLetter{Name: "x", Seq: 7, Journal: "m2"}},
		"an entry of another table": {"grains", "", "m1", "reactor/x", map[string]int{"seq": 7}, "reactor/x", map[string]int{"seq": 7}},
	} {
		key, value := MoveEntry(c.table, c.key, text(c.value), c.from, c.to)
		if want := string(text(c.want)); key != c.wantKey || string(value) != want {
			t.Errorf("%s: %s %s, want %s %s", name, key, value, c.wantKey, want)
		}
	}
	if key, value := MoveEntry("positions", "0/x", []byte("{"), "", "m1"); key != "0/x" || string(value) != "{" {
		t.Errorf("an unreadable one becomes %s %s", key, value)
	}
}

// TestPositionsFollowANewName: what is known about the journal of another master is about the same events under its new name.
func TestPositionsFollowANewName(t *testing.T) {
	text := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, c := range map[string]struct {
		table, key string
		value      any
		wantKey    string
		want       any
	}{
		"a listener":                {"positions", "0/x", stored{Seq: 7, At: event.Position{"m1": 7, "m2": 3, "m3": 5}}, "0/x", stored{Seq: 7, At: event.Position{"m1": 7, "m2_old1": 3, "m3": 5}}},
		"one that has no mirrors":   {"positions", "0/x", stored{Seq: 7}, "0/x", stored{Seq: 7}},
		"a handler":                 {"positions", "reactor@m2/x", stored{Seq: 7}, "reactor@m2_old1/x", stored{Seq: 7}},
		"a handler of another one":  {"positions", "reactor@m21/x", stored{Seq: 7}, "reactor@m21/x", stored{Seq: 7}},
		"a dead letter":             {"dead", letterKey("0", "x", "m2", 7), protocol.DeadLetter{Name: "x", Seq: 7, Journal: "m2"}, letterKey("0", "x", "m2_old1", 7), protocol.DeadLetter{Name: "x", Seq: 7, Journal: "m2_old1"}},
		"an entry of another table": {"grains", "reactor@m2/x", map[string]int{"m2": 7}, "reactor@m2/x", map[string]int{"m2": 7}},
	} {
		key, value := RenameEntry(c.table, c.key, text(c.value), "m2", "m2_old1")
		if want := string(text(c.want)); key != c.wantKey || string(value) != want {
			t.Errorf("%s: %s %s, want %s %s", name, key, value, c.wantKey, want)
		}
	}
	if key, value := RenameEntry("positions", "0/x", []byte("{"), "m2", "m1"); key != "0/x" || string(value) != "{" {
		t.Errorf("an unreadable one becomes %s %s", key, value)
	}
}
