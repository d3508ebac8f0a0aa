package settings

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/config"
)

// world is a master's configuration, and what is told of it.
type world struct {
	*Settings
	t       *testing.T
	dir     string
	applied []Compiled
	refuse  error // of what is to be applied next
	status  string
	notes   []audit.Entry
}

// Note implements Audit.
func (w *world) Note(e audit.Entry) bool {
	w.notes = append(w.notes, e)
	return true
}

func (w *world) write(text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, "master"), []byte("root_dir: "+w.dir+"\n"+text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) read() (*config.Master, error) {
	cfg, _, err := config.LoadMaster(w.dir)
	return cfg, err
}

func begin(t *testing.T, text string) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	w.write(text)
	cfg, err := w.read()
	if err != nil {
		t.Fatal(err)
	}
	w.Settings = New(Options{
		Start: cfg, Read: w.read, Status: func(line string) { w.status = line }, Audit: w, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Apply: func(_ *config.Master, c Compiled) error {
			if w.refuse == nil {
				w.applied = append(w.applied, c)
			}
			return w.refuse
		},
	})
	return w
}

// Several mistakes, of several packages, each with its place.
const broken = "publisher_acl:\n  fred: test.ping\nreactor:\n  - 'my/tag': [/nosuch/secret-program]\n"

func TestAllMistakesAreReported(t *testing.T) {
	w := begin(t, broken)
	err := Check(w.Start)
	if err == nil || !errors.Is(err, config.ErrMistake) {
		t.Fatalf("Check = %v, want mistakes", err)
	}
	for _, part := range []string{"master:3:", "publisher_acl: fred", "master:5:", "/nosuch/secret-program"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %v", part, err)
		}
	}
	if got := Lint(t.Context(), w.Start); got != nil {
		t.Errorf("Lint of a configuration with mistakes: %v", got)
	}
}

func TestReload(t *testing.T) {
	w := begin(t, "timeout: 5\nret_port: 4506\n")
	w.write("timeout: 6\nret_port: 4507\nreactor: []\n")
	r, err := w.Reload()
	if err != nil || !slices.Contains(r.Restart, "ret_port") || len(w.applied) != 1 || w.applied[0].Rules == nil {
		t.Errorf("Reload = %+v, %v; applied %d", r, err, len(w.applied))
	}
	if port := fmt.Sprint(w.InForce()["ret_port"]); port != "4506" {
		t.Errorf("ret_port in force: %v, which needs a restart", port)
	}
	if w.status != "serving" || w.Unreloaded() != "" || w.mistakes() != nil {
		t.Errorf("told: %q, %q, %v", w.status, w.Unreloaded(), w.mistakes())
	}
	if len(w.notes) != 1 || w.notes[0].Fun != "config.reload" || w.notes[0].Reason != "" {
		t.Errorf("the audit log has %+v", w.notes)
	}
}

// TestMistakesLeaveTheOldInForce: until they are mended, and what they are is not for
// everybody.
func TestMistakesLeaveTheOldInForce(t *testing.T) {
	w := begin(t, "")
	w.write(broken)
	if _, err := w.Reload(); err == nil || len(w.applied) != 0 {
		t.Fatalf("Reload: %v, applied %d", err, len(w.applied))
	}
	why := w.Unreloaded()
	if !strings.Contains(why, "master:3 publisher_acl") || !strings.Contains(why, "not in force") || strings.Contains(why, "secret-program") || w.status != why {
		t.Errorf("told: %q, %q", why, w.status)
	}
	list := w.mistakes()
	if len(list) != 2 || !list[0].Dead || !strings.Contains(list[1].Text, "secret-program") {
		t.Errorf("findings: %+v", list)
	}
	if n := w.notes[0]; n.Verdict != audit.Noted || !strings.Contains(n.Reason, "the old ones stay in force") {
		t.Errorf("the audit log has %+v", n)
	}
	w.write("")
	if _, err := w.Reload(); err != nil || w.Unreloaded() != "" || w.mistakes() != nil || w.status != "serving" {
		t.Errorf("mended: %v, %q, %v, %q", err, w.Unreloaded(), w.mistakes(), w.status)
	}
}

// A setting that a part of the daemon has refused does not take effect.
func TestASettingThatIsRefusedIsNotInForce(t *testing.T) {
	w := begin(t, "timeout: 5\n")
	before := w.InForce()["timeout"]
	w.write("timeout: 6\n")
	w.refuse = errors.New("autosign_file: permission denied")
	if _, err := w.Reload(); !errors.Is(err, w.refuse) || w.Unreloaded() == "" || w.InForce()["timeout"] != before {
		t.Errorf("Reload = %v; %q, timeout %v", err, w.Unreloaded(), w.InForce()["timeout"])
	}
}

func TestNothingToReload(t *testing.T) {
	w := begin(t, "")
	w.Read = nil
	if _, err := w.Reload(); err == nil || len(w.notes) != 0 {
		t.Errorf("Reload = %v, noted %v", err, w.notes)
	}
}
