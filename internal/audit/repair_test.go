package audit

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/salt"
)

// spoil replaces a file of the audit log, which nobody has open.
func (w *world) spoil(path, text string) {
	w.Helper()
	if err := errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		w.Fatal(err)
	}
}

func (w *world) content(path string) string {
	w.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		w.Fatal(err)
	}
	return string(text)
}

// With a damaged file nothing is written, and what is damaged stays as it is, until
// somebody repairs it: then it is kept, and the chain says who did that.
func TestRepair(t *testing.T) {
	head := func(o *Options) string { return o.HeadFile }
	key := func(o *Options) string { return o.KeyFile }
	for name, c := range map[string]struct {
		file  func(*Options) string
		spoil func(text string) string
		want  string
	}{
		"torn head":        {head, func(text string) string { return text[:50] }, "not one number and one hash"},
		"head of zeros":    {head, func(text string) string { return strings.Repeat("\x00", len(text)) }, "not one number and one hash"},
		"longer head":      {head, func(text string) string { return text + "x" }, "not one number and one hash"},
		"hash of letters":  {head, func(text string) string { return text[:21] + strings.Repeat("x", 64) + "\n" }, "not one number and one hash"},
		"emptied head":     {head, func(string) string { return "" }, "it is empty"},
		"torn key":         {key, func(text string) string { return text[:20] }, "not 32 bytes"},
		"key of something": {key, func(string) string { return "something" }, "not 32 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, nil)
			w.write(3)
			w.l.Close()
			file := c.file(&w.opts)
			bad := c.spoil(w.content(file))
			w.spoil(file, bad)
			w.open()
			for range 2 {
				err := w.l.Record(t.Context(), ping("fred"))
				if !errors.Is(err, ErrUnwritten) || !strings.Contains(salt.Hint(err), "audit.repair") {
					t.Errorf("%v: hint %q, want a word on the repair", err, salt.Hint(err))
				}
				w.reopen() // which changes nothing
			}
			if now := w.content(file); now != bad {
				t.Errorf("before the repair: %q became %q", bad, now)
			}
			w.repaired(file, bad, c.want)
			w.write(1)
			w.reopen()
			if r := w.verify(); r.Last != 5 {
				t.Errorf("%+v, want 5 entries", r)
			}
		})
	}
}

// repaired repairs the file and looks at what is kept of it and told.
func (w *world) repaired(file, bad, want string) {
	w.Helper()
	r, err := w.l.Repair(w.Context(), Who{User: "root"})
	if err != nil || len(r.Files) != 1 || r.Files[0].File != file || !strings.Contains(r.Files[0].Reason, want) || r.Good != 3 || r.Entry != 4 || len(r.Problems) > 0 {
		w.Fatalf("%+v, %v", r, err)
	}
	if kept := w.content(r.Files[0].Aside); kept != bad {
		w.Errorf("kept is %q, want %q", kept, bad)
	}
	w.verify()
	lines := w.lines(Query{})
	e, err := parse([]byte(lines[len(lines)-1]))
	if err != nil || len(lines) != 4 || e.Fun != "audit.repair" || e.User != "root" || !strings.Contains(e.Reason, want) || !strings.Contains(e.Reason, "up to 3 ") {
		w.Errorf("%d entries, the last is %+v, %v", len(lines), e, err)
	}
	if again, err := w.l.Repair(w.Context(), Who{User: "root"}); err != nil || len(again.Files) > 0 {
		w.Errorf("a second repair: %+v, %v", again, err)
	}
}

// What is missing is told by the repair, and goes on to be.
func TestRepairOverAHole(t *testing.T) {
	w := start(t, nil)
	w.write(5)
	w.remove(3)
	w.l.Close()
	w.spoil(w.opts.HeadFile, "")
	w.open()
	r, err := w.l.Repair(t.Context(), Who{User: "root"})
	if err != nil || r.Good != 2 || len(r.Problems) != 1 {
		t.Errorf("%+v, %v, want entry 2 to be the last good one", r, err)
	}
	w.verify("entry 3 is missing")
}

// A head that is torn while the audit log is in use is told by Verify, and repaired.
func TestRepairOfAnOpenLog(t *testing.T) {
	w := start(t, nil)
	w.write(3)
	w.verify() // waits for the head
	w.spoil(w.opts.HeadFile, "torn")
	w.verify("is damaged")
	w.repaired(w.opts.HeadFile, "torn", "not one number and one hash")
}
