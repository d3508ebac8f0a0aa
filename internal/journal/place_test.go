package journal_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
)

// TestPlaces: the name of a stream says what it is and whose, and its place has that name.
func TestPlaces(t *testing.T) {
	for name, want := range map[string]journal.Place{
		"EVENTS":              {Kind: journal.EventsKind, Own: true},
		"EVENTS_10_0_0_1_452": {Kind: journal.EventsKind, Member: "10_0_0_1_452", Own: true},
		"EVENTS_a-1":          {Kind: journal.EventsKind, Member: "a-1", Own: true},
		"MIRROR_a-1":          {Kind: journal.MirrorKind, Member: "a-1", Own: true},
		"AUDIT":               {Kind: journal.QueueKind, Name: "AUDIT", Own: true},
		"AUDIT_m1":            {Kind: journal.QueueKind, Name: "AUDIT", Member: "m1", Own: true},
		"KV_grains":           {Kind: journal.TableKind, Name: "grains"},
		"KV_plans_10_0_0_1":   {Kind: journal.TableKind, Name: "plans_10_0_0_1"},
		"KV_plans-m1":         {Kind: journal.TableKind, Name: "plans", Member: "m1", Own: true},
	} {
		got, err := journal.PlaceOf(name, []byte(`{}`))
		if err != nil || got != want || got.Stream() != name {
			t.Errorf("%s is %+v (%s), %v, want %+v", name, got, got.Stream(), err, want)
		}
	}
	for _, name := range []string{"", "EVENTS_", "EVENTS_a/b", "MIRROR_", "KV_a-", "KV_a.b", "AUDIT.>", "x y", "KV_../x"} {
		if got, err := journal.PlaceOf(name, []byte(`{}`)); err == nil {
			t.Errorf("%q is %+v", name, got)
		}
	}
	from, to := journal.Place{Kind: journal.TableKind, Name: "plans"}, journal.Place{Kind: journal.TableKind, Name: "plans", Member: "m1"}
	for subject, want := range map[string]string{"$KV.plans.x": "$KV.plans-m1.x", "$KV.plans2.x": "$KV.plans2.x", "salt.event.x": "salt.event.x"} {
		if got := from.Subject(subject, to); got != want {
			t.Errorf("%s becomes %s, want %s", subject, got, want)
		}
	}
}

// TestOwnTablesAreMarked: the store of a single master says which of its tables would be its own
// in a cluster, also where an earlier version has made them; a table that is marked is not
// updated again.
func TestOwnTablesAreMarked(t *testing.T) {
	b := bustest.StartStore(t)
	j, err := journal.Open(inTime(t), b.Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	own := func() bool {
		answer, err := b.Conn().RequestWithContext(inTime(t), "$JS.API.STREAM.INFO.KV_plans", nil)
		if err != nil {
			t.Fatal(err)
		}
		var info struct {
			Config json.RawMessage `json:"config"`
		}
		if err := json.Unmarshal(answer.Data, &info); err != nil {
			t.Fatal(err)
		}
		p, err := journal.PlaceOf("KV_plans", info.Config)
		if err != nil || p.Member != "" {
			t.Fatal(p, err)
		}
		return p.Own
	}
	updates, err := b.Conn().SubscribeSync("$JS.EVENT.ADVISORY.STREAM.*.KV_plans")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.Table(inTime(t), "plans"); err != nil || own() {
		t.Fatal("a table of all is marked", err)
	}
	for range 3 {
		if _, err := j.OwnTable(inTime(t), "plans"); err != nil || !own() {
			t.Fatal("it is not marked", err)
		}
		if _, err := j.Table(inTime(t), "plans"); err != nil || !own() {
			t.Fatal("the mark is lost", err)
		}
	}
	var seen []string
	for len(seen) < 2 {
		m, err := updates.NextMsgWithContext(inTime(t))
		if err != nil {
			t.Fatal(seen, err)
		}
		seen = append(seen, m.Subject)
	}
	if err := b.Conn().FlushWithContext(inTime(t)); err != nil {
		t.Fatal(err)
	}
	if n, _, err := updates.Pending(); n > 0 || err != nil || !strings.Contains(seen[0], "CREATED") || !strings.Contains(seen[1], "UPDATED") {
		t.Errorf("%q and %d more changes of its settings", seen, n)
	}
}
