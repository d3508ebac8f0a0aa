package admission

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// TestDecisionsOfRulesAreGathered: what rules decide about more keys than are written one by one has a line and an entry
// with their number, when the minute is over or the master ends. What people decide is written in any case.
func TestDecisionsOfRulesAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t)
		var said bytes.Buffer
		w.Log = slog.New(slog.NewTextHandler(&said, nil))
		if err := w.Keys.Configure(&config.Master{AutoAccept: true}); err != nil {
			t.Fatal(err)
		}
		changed := make(chan pki.Seen)
		go w.Watch(changed)
		key := bustest.Key(t).Public()
		admit := func(id salt.MinionID) {
			t.Helper()
			if v, err := w.Keys.Admit(id, key, "192.0.2.66:1", "192.0.2.66"); err != nil || v.State != pki.Accepted {
				t.Fatalf("%s: %+v, %v", id, v, err)
			}
			changed <- ofID(id)
			synctest.Wait()
		}
		done := func() ([]audit.Entry, int) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return slices.Clone(w.notes), len(w.acts)
		}
		admit("m0")
		if notes, events := done(); len(notes) != 1 || events != 1 || notes[0].Minion != "m0" || notes[0].Rule != "auto_accept" {
			t.Fatalf("one decision is %+v, with %d events", notes, events)
		}
		w.byRules.n = maxByRules // as if there had been as many; Watch does nothing now
		for _, id := range []salt.MinionID{"m1", "m2", "m3", "m4", "m5"} {
			admit(id)
		}
		if err := w.Keys.By(audit.Who{User: "root"}).Delete(w.entry("m1")); err != nil {
			t.Fatal(err)
		}
		changed <- ofID("m1")
		synctest.Wait()
		if notes, _ := done(); len(notes) != 2 || notes[1].Fun != "key.delete" || notes[1].User != "root" {
			t.Errorf("within the minute there are %+v", notes)
		}
		time.Sleep(time.Minute + 2*secondLook)
		synctest.Wait()
		check := func(n int, want string) {
			t.Helper()
			notes, _ := done()
			if len(notes) != n {
				t.Fatalf("there are %d entries, want %d: %+v", len(notes), n, notes)
			}
			e := notes[n-1]
			if got := fmt.Sprint(e.Fun, " ", e.Verdict, " ", e.Rule, " ", e.Count, " ", e.Minions); got != want {
				t.Errorf("the last one is %s, want %s", got, want)
			}
		}
		check(3, "key.accept allowed auto_accept 5 [m1 m2 m3 m4 m5]")
		if text := said.String(); strings.Count(text, "written one by one") != 1 || !strings.Contains(text, "count=5") || strings.Contains(text, "m5") {
			t.Errorf("the log has %s", text)
		}
		admit("m6")
		check(4, "key.accept allowed auto_accept 1 [m6]")
		if notes, events := done(); notes[3].Minion != "m6" || events != 3 {
			t.Errorf("in the next minute the decision is %+v, with %d events", notes[3], events)
		}
		w.byRules.n = maxByRules
		admit("m7")
		close(changed)
		synctest.Wait()
		check(5, "key.accept allowed auto_accept 1 [m7]")
		if w.told != len(w.notes) {
			t.Errorf("%d of %d entries are about what has taken effect, which must not get lost", w.told, len(w.notes))
		}
	})
}

// TestDecisionsOfRulesOfOtherMembersAreGathered: they are as many as those of its rules at each member, and leave those of the own
// rules their events. What people decide at other members has an entry in any case.
func TestDecisionsOfRulesOfOtherMembersAreGathered(t *testing.T) {
	w := begin(t)
	there := w.Keys.By(audit.Who{Source: "the master m2", Elsewhere: true})
	accept := func(id salt.MinionID, by *keyring.Store) {
		t.Helper()
		w.Admit(w.peer(string(id), bustest.Key(t)))
		if err := by.Accept(w.entry(id)); err != nil {
			t.Fatal(err)
		}
		if err := w.Keys.Refresh(); err != nil {
			t.Fatal(err)
		}
		w.notes, w.acts = nil, nil
		w.announceKeys(w.Keys.Take())
	}
	rule := "a rule of the master m2"
	accept("m0", there.Under(rule))
	if len(w.notes) != 1 || w.notes[0].Rule != rule || w.notes[0].Source != "the master m2" || len(w.acts) > 0 {
		t.Errorf("one decision is %+v, with %d events", w.notes, len(w.acts))
	}
	w.byOthers.n = maxByRules // as if there had been as many
	for _, id := range []salt.MinionID{"m1", "m2"} {
		if accept(id, there.Under(rule)); len(w.notes) > 0 {
			t.Errorf("%s has entries of its own: %+v", id, w.notes)
		}
	}
	if accept("m3", there); len(w.notes) != 1 || w.notes[0].Rule != "" {
		t.Errorf("what somebody has decided is %+v", w.notes)
	}
	if accept("m4", w.Keys.By(audit.Who{}).Under("auto_accept")); len(w.notes) != 1 || len(w.acts) != 1 {
		t.Errorf("the own rule has the entries %+v and %d events", w.notes, len(w.acts))
	}
	w.notes = nil
	w.tellGathered(true)
	if len(w.notes) != 1 || w.notes[0].Rule != rule || w.notes[0].Count != 2 || !slices.Equal(w.notes[0].Minions, []salt.MinionID{"m1", "m2"}) {
		t.Errorf("gathered are %+v", w.notes)
	}
}

// TestADeletedKeyThatWaitsAgainWasDeleted: its minion may show it again before the deletion was seen.
func TestADeletedKeyThatWaitsAgainWasDeleted(t *testing.T) {
	w := begin(t)
	peer := w.peer("web1", bustest.Key(t))
	w.Admit(peer)
	if err := w.Keys.Store.Accept(w.entry("web1")); err != nil {
		t.Fatal(err)
	}
	if err := w.Keys.Refresh(); err != nil {
		t.Fatal(err)
	}
	w.Keys.Take()
	if err := w.Keys.By(audit.Who{User: "root"}).Delete(w.entry("web1")); err != nil {
		t.Fatal(err)
	}
	w.Admit(peer)
	if state := w.entry("web1").State; state != pki.Pending {
		t.Fatalf("it is %s", state)
	}
	if err := w.Keys.Refresh(); err != nil {
		t.Fatal(err)
	}
	w.notes, w.acts = nil, nil
	w.announceKeys(w.Keys.Take())
	if len(w.notes) != 1 || w.notes[0].Fun != "key.delete" || w.notes[0].User != "root" || !slices.Equal(w.acts, []any{"delete"}) || !slices.Equal(w.gone, []salt.MinionID{"web1"}) {
		t.Errorf("entries %+v, events %v, forgotten %v", w.notes, w.acts, w.gone)
	}
}

// TestGatheredIDsAreBounded: the ids are listed up to a limit, and counted.
func TestGatheredIDsAreBounded(t *testing.T) {
	b, now := byRules{}, time.Now()
	for n := range maxByRules + 2*maxGathered {
		if own := b.own(pki.Name{ID: salt.MinionID(fmt.Sprint("m", n))}, keyring.Reject, "autoreject_file: f", now); own != (n < maxByRules) {
			t.Fatalf("decision %d has an entry of its own: %t", n, own)
		}
	}
	list := b.take(now.Add(time.Minute), false)
	if len(list) != 1 || list[0].Count != 2*maxGathered || len(list[0].Minions) != maxGathered {
		t.Errorf("gathered are %d", len(list))
	}
}
