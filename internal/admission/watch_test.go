package admission

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// TestTheSecondLookIsNotPostponed: a connection that was registered just after the first check is
// cut within two seconds, however many other keys begin to wait meanwhile.
func TestTheSecondLookIsNotPostponed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t)
		p := w.peer("web1", bustest.Key(t))
		w.Admit(p)
		if err := w.Keys.Store.Accept(w.entry("web1")); err != nil {
			t.Fatal(err)
		}
		if err := w.Keys.Refresh(); err != nil {
			t.Fatal(err)
		}
		changed := make(chan pki.Seen)
		go w.Watch(changed)
		minion := w.Admit(p)
		time.Sleep(secondLook - time.Millisecond) // of the time in this test: just before a look
		if err := w.Keys.Store.Delete(w.entry("web1")); err != nil {
			t.Fatal(err)
		}
		changed <- ofID("web1")
		synctest.Wait()
		w.mu.Lock()
		w.open = []bus.Identity{minion}
		w.mu.Unlock()
		began := time.Now()
		cuts := func() []string {
			w.mu.Lock()
			defer w.mu.Unlock()
			return slices.Clone(w.cuts)
		}
		for n := 0; len(cuts()) == 0 && n < 20; n++ {
			time.Sleep(secondLook / 4)
			changed <- ofID(salt.MinionID(fmt.Sprint("waiting", n)))
			synctest.Wait()
		}
		if after := time.Since(began); !slices.Equal(cuts(), []string{"web1"}) || after < secondLook || after > 2*secondLook+secondLook/4 {
			t.Errorf("cut after %s: %q", after, cuts())
		}
		close(changed)
		synctest.Wait()
	})
}

// TestSuspectsAreBounded: where too many ids have changed, all minions are checked.
func TestSuspectsAreBounded(t *testing.T) {
	var s suspects
	s.add(map[salt.MinionID]bool{"web1": true})
	for _, c := range []struct {
		role bus.Role
		name string
		want bool
	}{{bus.RoleMinion, "web1", true}, {bus.RoleCaller, "web1", true}, {bus.RoleMinion, "web2", false}, {bus.RoleUser, "web1", false}, {bus.RoleClient, "web1", false}} {
		if got := s.has(bus.Identity{Role: c.role, Name: c.name}); got != c.want {
			t.Errorf("%s %s is checked: %t", c.role, c.name, got)
		}
	}
	for n := range 2*maxSuspects + 1 {
		s.join(suspects{ids: map[salt.MinionID]bool{salt.MinionID(fmt.Sprint(n)): true}})
		if len(s.ids) > maxSuspects {
			t.Fatalf("%d ids are remembered", len(s.ids))
		}
	}
	if !s.has(bus.Identity{Role: bus.RoleMinion, Name: "web1"}) || s.has(bus.Identity{Role: bus.RoleClient, Name: "web1"}) {
		t.Error("not all minions are checked, or also a client")
	}
}

// TestARefusedMinionIsCutFirst: before anything is written about a deleted key, the other members
// are told and its connections are cut.
func TestARefusedMinionIsCutFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t)
		p := w.peer("web1", bustest.Key(t))
		w.Admit(p)
		if err := w.Keys.Store.Accept(w.entry("web1")); err != nil {
			t.Fatal(err)
		}
		if err := w.Keys.Refresh(); err != nil {
			t.Fatal(err)
		}
		w.Keys.Take()
		w.open = []bus.Identity{w.Admit(p)}
		w.Changed = func(list []keyring.Change) { w.order = append(w.order, fmt.Sprint("told of ", len(list))) }
		w.order = nil
		changed := make(chan pki.Seen)
		go w.Watch(changed)
		if err := w.Keys.Store.Delete(w.entry("web1")); err != nil {
			t.Fatal(err)
		}
		changed <- ofID("web1")
		synctest.Wait()
		if want := []string{"told of 1", "cut web1", "event delete"}; !slices.Equal(w.order, want) {
			t.Errorf("in this order: %q, want %q", w.order, want)
		}
		if !slices.Contains(w.gone, "web1") {
			t.Error("it is not forgotten")
		}
		close(changed)
		synctest.Wait()
	})
}

// TestAKeyStoreThatWasNotReadIsReadAgain: a key is deleted while the key directory cannot be read. When it
// can again, the deletion has all its effects without another change, and nobody else is cut.
func TestAKeyStoreThatWasNotReadIsReadAgain(t *testing.T) {
	for _, seen := range []pki.Seen{{All: true}, ofID("web1")} {
		synctest.Test(t, func(t *testing.T) {
			w := begin(t)
			for _, id := range []salt.MinionID{"web1", "web2"} {
				p := w.peer(string(id), bustest.Key(t))
				w.Admit(p)
				if err := w.Keys.Store.Accept(w.entry(id)); err != nil {
					t.Fatal(err)
				}
				if err := w.Keys.Refresh(); err != nil {
					t.Fatal(err)
				}
				w.open = append(w.open, w.Admit(p))
			}
			w.Keys.Take()
			w.acts = nil
			var told []keyring.Change
			w.Changed = func(list []keyring.Change) { told = append(told, list...) }
			changed := make(chan pki.Seen)
			go w.Watch(changed)
			entry := w.entry("web1")
			if err := os.Remove(entry.Path); err != nil {
				t.Fatal(err)
			}
			dir := filepath.Dir(filepath.Dir(entry.Path))
			if err := os.Rename(dir, dir+".away"); err != nil {
				t.Fatal(err)
			}
			changed <- seen
			synctest.Wait()
			if len(told) > 0 || len(w.Keys.IDs()) != 2 {
				t.Errorf("the directory is not there, and the changes are %v", told)
			}
			time.Sleep(5 * secondLook)
			if err := os.Rename(dir+".away", dir); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * secondLook)
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			if !slices.Contains(w.cuts, "web1") || slices.Contains(w.cuts, "web2") {
				t.Errorf("after %+v was not read: cut %q", seen, w.cuts)
			}
			if len(told) != 1 || told[0].ID != "web1" || told[0].After != pki.Unknown || !slices.Equal(w.acts, []any{"delete"}) {
				t.Errorf("after %+v was not read: others hear of %v, events %v", seen, told, w.acts)
			}
			if ids := w.Keys.IDs(); !slices.Equal(ids, []salt.MinionID{"web2"}) {
				t.Errorf("after %+v was not read: accepted are %q", seen, ids)
			}
			close(changed)
			synctest.Wait()
		})
	}
}

// TestAnOverflowHidesNoDeletion: a key was accepted, used and deleted between two looks at the whole key
// directory, which shows nothing of it.
func TestAnOverflowHidesNoDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t)
		p := w.peer("web1", bustest.Key(t))
		w.Admit(p)
		if err := w.Keys.Store.Accept(w.entry("web1")); err != nil {
			t.Fatal(err)
		}
		w.open = []bus.Identity{w.Admit(p)}
		if err := os.Remove(w.entry("web1").Path); err != nil {
			t.Fatal(err)
		}
		w.Keys.Take()
		changed := make(chan pki.Seen)
		go w.Watch(changed)
		changed <- pki.Seen{All: true}
		synctest.Wait()
		if !slices.Equal(w.cuts, []string{"web1"}) {
			t.Errorf("cut: %q", w.cuts)
		}
		close(changed)
		synctest.Wait()
	})
}

// TestAKeyThatWaitedIsNotForgotten: nothing is stored about a minion whose key has only waited, so the end of that causes no
// work. Anybody can make a key wait.
func TestAKeyThatWaitedIsNotForgotten(t *testing.T) {
	for name, c := range map[string]struct {
		before, after pki.State
		want          bool
	}{
		"it waited":              {pki.Pending, pki.Unknown, false},
		"it was denied":          {pki.Denied, pki.Unknown, false},
		"it was accepted":        {pki.Accepted, pki.Unknown, true},
		"it was rejected":        {pki.Rejected, pki.Unknown, true},
		"it waits again":         {pki.Accepted, pki.Pending, true},
		"it was rejected before": {pki.Rejected, pki.Pending, true},
		"it is rejected":         {pki.Accepted, pki.Rejected, false},
	} {
		w := begin(t)
		w.announceKeys([]keyring.Change{{Name: pki.Name{ID: "web1"}, Before: c.before, After: c.after}})
		if got := slices.Contains(w.gone, "web1"); got != c.want {
			t.Errorf("%s: it is forgotten: %t", name, got)
		}
	}
}
