package admission

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/test/bustest"
)

// TestAnUnreadKeyCutsNobody: a minion stays connected while the system cannot read the file of its key. What has become
// of the key meanwhile has its effects as soon as the file can be read, without another change.
func TestAnUnreadKeyCutsNobody(t *testing.T) {
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
		w.open = []bus.Identity{w.Admit(p)}
		w.Keys.Take()
		changed := make(chan pki.Seen)
		go w.Watch(changed)
		path := w.entry("web1").Path
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/proc/self/mem", path); err != nil { // opened well, but to read it is EIO
			t.Fatal(err)
		}
		cuts := func() []string {
			w.mu.Lock()
			defer w.mu.Unlock()
			return slices.Clone(w.cuts)
		}
		for _, seen := range []pki.Seen{ofID("web1"), {All: true}} {
			changed <- seen
			time.Sleep(3 * secondLook)
			synctest.Wait()
			if list := cuts(); len(list) > 0 {
				t.Errorf("after a look at %+v: cut %q", seen, list)
			}
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, bustest.Key(t).Public().PEM(), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * secondLook)
		synctest.Wait()
		if list := cuts(); !slices.Contains(list, "web1") {
			t.Error("another key is accepted, and the connection stays")
		}
		close(changed)
		synctest.Wait()
	})
}

// TestARefusedKeyThatCannotBeReadIsCut: a minion is cut whose key was refused while the file of the key could not be
// read, and not admitted when it can be.
func TestARefusedKeyThatCannotBeReadIsCut(t *testing.T) {
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
		w.open = []bus.Identity{w.Admit(p)}
		w.Keys.Take()
		changed := make(chan pki.Seen)
		go w.Watch(changed)
		e := w.entry("web1")
		away := filepath.Join(t.TempDir(), "away")
		if err := os.Rename(e.Path, away); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/proc/self/mem", e.Path); err != nil { // opened well, but to read it is EIO
			t.Fatal(err)
		}
		changed <- ofID("web1")
		synctest.Wait()
		if err := w.Keys.Refuse(e.Name(), pki.Rejected, audit.Who{Source: "the master b"}); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(away, e.Path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * secondLook)
		synctest.Wait()
		w.mu.Lock()
		cuts := slices.Clone(w.cuts)
		w.mu.Unlock()
		if !slices.Contains(cuts, "web1") {
			t.Error("it is refused, and the connection stays")
		}
		if i := w.Admit(p); i.Role != bus.RoleUnaccepted {
			t.Errorf("it is refused, and admitted as %v", i.Role)
		}
		close(changed)
		synctest.Wait()
	})
}
