package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
)

// TestADecisionThatHasTakenEffectIsStoredLater: while nothing can be stored, somebody deletes keys. The entries and the
// events are stored when it is possible again, also after a restart, in order and with the time of the decision. What the
// spool has is stored once; this store takes entries although it says that it has failed.
func TestADecisionThatHasTakenEffectIsStoredLater(t *testing.T) {
	store := &failing{}
	c := startCut(t)
	c.lost.Store(false) // it is no member that runs jobs nevertheless
	var err error
	if c.opts.Queue, err = journal.OpenQueue(t.Context(), c.bus.Conn(), "AUDIT", store); err != nil {
		t.Fatal(err)
	}
	c.restart()
	var mu sync.Mutex
	var announced []any
	decided := func() *Decided {
		return NewDecided(c.l, func(_ string, data any) {
			mu.Lock()
			defer mu.Unlock()
			announced = append(announced, data.(map[string]string)["id"])
		})
	}
	tell := func(d *Decided, id string) {
		d.Tell(Entry{Kind: Key, Verdict: Allowed, Who: Who{User: id}, Fun: "key.delete"}, "salt/key", map[string]string{"id": id})
	}
	d := decided()
	tell(d, "before")
	d.Close()
	if _, err := os.Stat(c.path); !errors.Is(err, fs.ErrNotExist) || !slices.Equal(announced, []any{"before"}) {
		t.Errorf("what can be stored is announced as %v, and there is a spool: %v", announced, err)
	}

	store.lost.Store(true)
	d = decided()
	for _, id := range []string{"one", "two", "three"} {
		tell(d, id)
	}
	d.Close()
	if !slices.Equal(announced, []any{"before"}) {
		t.Errorf("an event comes before its entry: %v", announced)
	}
	away := time.Now()
	c.restart()
	store.lost.Store(false)
	c.heal()
	if got, want := c.users(), []string{"one", "two", "three"}; !slices.Equal(got, want) {
		t.Errorf("entries of %q, want %q", got, want)
	}
	told := 0
	if err := c.opts.Journal.Read(t.Context(), journal.Query{}, func(e event.Event) error {
		if e.Tag == "salt/key" {
			told++
		}
		return nil
	}); err != nil || told != 3 {
		t.Errorf("%d events, want 3: %v", told, err)
	}
	for _, line := range c.lines(Query{}) {
		var e Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.Time.After(away) {
			t.Errorf("the decision of %s is dated %s, after %s", e.User, e.Time, away)
		}
	}
	c.verify()
}

// TestADecisionOfAnotherMasterHasTheRoomOfDecisions: it has taken effect here, too, although its event is not stored here.
// Refusals that fill their half of the spool, and the share of the nameless, do not keep its entry out, also after a restart.
func TestADecisionOfAnotherMasterHasTheRoomOfDecisions(t *testing.T) {
	store := &failing{}
	c := startCut(t)
	var err error
	if c.opts.Queue, err = journal.OpenQueue(t.Context(), c.bus.Conn(), "AUDIT", store); err != nil {
		t.Fatal(err)
	}
	c.restart()
	store.lost.Store(true)
	tell := func(master string) {
		d := NewDecided(c.l, func(string, any) { t.Error("there is an event") })
		d.Tell(Entry{Kind: Key, Verdict: Allowed, Who: Who{Source: "the master " + master}, Fun: "key.reject"}, "", nil)
		d.Close()
	}
	c.opts.Spool.limits[shareNotes], c.opts.Spool.ofNote = 4<<10, 2<<10
	for n := 0; err == nil && n < 100; n++ {
		err = c.opts.Spool.note(Entry{Kind: Key, Who: Who{Source: "192.0.2.66:1"}, Fun: "key.connect"})
	}
	if !errors.Is(err, errSpoolShare) {
		t.Fatalf("refusals of the nameless: %v", err)
	}
	tell("m2")
	c.restart()
	c.opts.Spool.limits[shareNotes], c.opts.Spool.ofNote = 4<<10, 2<<10
	for n, full := 0, false; !full && n < 100; n++ {
		full = errors.Is(c.opts.Spool.note(ping(fmt.Sprint("user", n))), errSpoolFull)
	}
	tell("m3")
	store.lost.Store(false)
	c.heal()
	var sources []string
	for _, line := range c.lines(Query{}) {
		var e Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.Fun == "key.reject" {
			sources = append(sources, e.Source)
		}
	}
	if want := []string{"the master m2", "the master m3"}; !slices.Equal(sources, want) {
		t.Errorf("there are entries of %q, want %q", sources, want)
	}
}

// TestADecisionIsKeptUntilTheRepair: while the audit log is damaged, somebody deletes a key. The entry and the event are
// stored after the repair.
func TestADecisionIsKeptUntilTheRepair(t *testing.T) {
	c := startCut(t)
	c.lost.Store(false)
	c.write(1)
	c.l.Close()
	c.world.spoil(c.opts.HeadFile, "x")
	c.opts.Spool = c.spool(t)
	c.open()
	d := NewDecided(c.l, func(string, any) { t.Error("the event comes before its entry") })
	d.Tell(Entry{Kind: Key, Verdict: Allowed, Who: Who{User: "ann"}, Fun: "key.delete"}, "salt/key", map[string]string{"id": "web1"})
	d.Close()
	r, err := c.l.Repair(t.Context(), Who{User: "root"})
	if err != nil || len(r.Files) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	c.heal()
	if got, want := c.users(), []string{"ann"}; !slices.Equal(got, want) {
		t.Errorf("entries of %q, want %q", got, want)
	}
	told := 0
	if err := c.opts.Journal.Read(t.Context(), journal.Query{}, func(e event.Event) error {
		if e.Tag == "salt/key" {
			told++
		}
		return nil
	}); err != nil || told != 1 {
		t.Errorf("%d events, want 1: %v", told, err)
	}
	c.verify()
	if text := strings.Join(c.lines(Query{}), ""); strings.Contains(text, "not written meanwhile") {
		t.Errorf("the repair says that entries are not written: %s", text)
	}
}
