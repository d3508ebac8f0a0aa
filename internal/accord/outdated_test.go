package accord

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// TestOutdated: what a backup accepts and the key directory does not is not accepted again, whether
// the key was deleted, rejected or replaced since.
func TestOutdated(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, err := pki.OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]pki.PublicKey{}
	for _, id := range []string{"here", "deleted", "rejected", "replaced", "now"} {
		private, err := pki.Generate(pki.Ed25519, 0)
		if err != nil {
			t.Fatal(err)
		}
		keys[id] = private.Public()
	}
	submit := func(id, key string, then func(pki.Entry) error) {
		t.Helper()
		if _, err := store.Submit(salt.MinionID(id), keys[key]); err != nil {
			t.Fatal(err)
		}
		entries, err := store.Of(salt.MinionID(id))
		if err != nil || len(entries) != 1 {
			t.Fatal(entries, err)
		}
		if err := then(entries[0]); err != nil {
			t.Fatal(err)
		}
	}
	submit("here", "here", store.Accept)
	submit("rejected", "rejected", store.Reject)
	submit("replaced", "now", store.Accept)
	check := func(when string, want map[string]bool) {
		t.Helper()
		outdated, err := Outdated(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"here", "deleted", "rejected", "replaced"} {
			for _, act := range []Act{Accept, Reject, Delete} {
				value, err := json.Marshal(entry{Decision: Decision{Act: act}})
				if err != nil {
					t.Fatal(err)
				}
				name := pki.Name{ID: salt.MinionID(id), Finger: keys[id].SHA256()}
				got, is := outdated(keyOf(name), value)
				if is != (act == Accept && want[id]) || is && got != name.ID {
					t.Errorf("%s: %s, %s: %q, %t", when, id, act, got, is)
				}
			}
		}
		if id, is := outdated("other", []byte("{}")); is {
			t.Errorf("%s: what is no key is of %q", when, id)
		}
	}
	check("a directory that no member has used", nil)
	if err := os.WriteFile(filepath.Join(dir, directoryFile), []byte("mark\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	check("that of a member", map[string]bool{"deleted": true, "rejected": true, "replaced": true})
}
