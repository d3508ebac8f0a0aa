package audit

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
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
