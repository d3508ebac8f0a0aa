package backup_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/backup"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

func inTime(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(journal.Starting(t.Context()), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// alone opens the journal of a single master.
func alone(t testing.TB, b *bustest.Bus) *journal.Journal {
	t.Helper()
	j, err := journal.Open(inTime(t), b.Conn(), journal.Options{Store: b.Store(), MaxAge: time.Hour, Reserve: b.Reserve})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	return j
}

func newEvent(t testing.TB, tag string, n int) event.Event {
	t.Helper()
	e, err := event.New(tag, fmt.Appendf(nil, `{"n":%d}`, n), "", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// fill stores events, entries in own and shared tables, and a queue.
func fill(t testing.TB, j *journal.Journal, b *bustest.Bus, events int) {
	t.Helper()
	ctx := inTime(t)
	drafts := func(yield func(journal.Draft) bool) {
		for n := range events {
			e := newEvent(t, fmt.Sprintf("app/%d", n%7), n)
			if !yield(journal.Draft{Tag: e.Tag, Text: e.Text()}) {
				return
			}
		}
	}
	p, err := j.BeginAll(journal.Batch{Name: "app/fill", Count: events, Drafts: drafts})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	own, err := j.OwnTable(ctx, "plans")
	if err != nil {
		t.Fatal(err)
	}
	shared, err := j.Table(ctx, "grains")
	if err != nil {
		t.Fatal(err)
	}
	for n := range 50 {
		key := fmt.Sprintf("web %d", n)
		if err := own.Put(ctx, key, []byte("plan of "+key)); err != nil {
			t.Fatal(err)
		}
		if err := shared.Put(ctx, key, []byte("grains of "+key)); err != nil {
			t.Fatal(err)
		}
	}
	if err := shared.Delete(ctx, "web 7"); err != nil {
		t.Fatal(err)
	}
	q, err := j.Queue(ctx, "AUDIT", b.Store())
	if err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		p, err := q.BeginAfter(fmt.Appendf(nil, "entry %d", n), uint64(n))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBackupWhileTheMasterServes: events go on while they are backed up; the backup is readable
// for its owner alone, holds a beginning of the events without a gap, and is only there whole.
func TestBackupWhileTheMasterServes(t *testing.T) {
	t.Parallel()
	b := bustest.StartStore(t)
	j := alone(t, b)
	fill(t, j, b, 20000)
	ctx, stop := context.WithCancel(inTime(t))
	var writer sync.WaitGroup
	writer.Go(func() {
		for n := 20000; ctx.Err() == nil; n++ {
			if _, err := j.Append(ctx, newEvent(t, "app/more", n), ""); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	dir, m := write(t, b.Conn(), "")
	stop()
	writer.Wait()
	if left, _ := os.ReadDir(filepath.Dir(dir)); len(left) != 1 {
		t.Errorf("beside the backup: %v", left)
	}
	last := m.Streams[len(m.Streams)-1]
	if last.Name != "EVENTS" || last.Last < 20000 || last.Messages != last.Last || m.Mode != backup.ModeAlone || m.Bytes() == 0 {
		t.Errorf("the last stream is %s, %d messages up to %d; mode %s, %d bytes", last.Name, last.Messages, last.Last, m.Mode, m.Bytes())
	}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if info, errInfo := e.Info(); err != nil || errInfo != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: others may read it (%v)", path, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, "relative", "/", filepath.Join(t.TempDir(), "missing", "x")} {
		if _, err := backup.Write(inTime(t), b.Conn(), backup.Options{Dir: path, Log: b.Log}); err == nil || salt.Hint(err) == "" {
			t.Errorf("into %q: %v, hint %q", path, err, salt.Hint(err))
		}
	}
}

// TestNoDirectory: whoever mistypes the directory of a backup is told that it is not there, and not how a backup is made.
func TestNoDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, want := range map[string]string{dir: "is not a backup: it has no manifest.json", filepath.Join(dir, "none"): "there is no directory " + filepath.Join(dir, "none")} {
		if _, err := backup.Open(name); err == nil || !strings.Contains(err.Error(), want) || salt.Hint(err) == "" {
			t.Errorf("%s: %v (%s), want %q", name, err, salt.Hint(err), want)
		}
	}
}

// TestNotABackup: what no backup says is refused.
func TestNotABackup(t *testing.T) {
	t.Parallel()
	const stream = `{"name": "EVENTS", "file": "EVENTS.snapshot", "settings": {}}`
	for name, text := range map[string]string{
		"a newer format":       `{"format": 2, "mode": "alone", "version": "9.9"}`,
		"no format":            `{"mode": "alone"}`,
		"an unknown mode":      `{"format": 1, "mode": "x"}`,
		"a member alone":       `{"format": 1, "mode": "alone", "member": "m1"}`,
		"no JSON":              `{"format": 1`,
		"a stream twice":       `{"format": 1, "mode": "alone", "streams": [` + stream + `, ` + stream + `]}`,
		"a file elsewhere":     `{"format": 1, "mode": "alone", "streams": [{"name": "EVENTS", "file": "../x.snapshot", "settings": {}}]}`,
		"a stream that is not": `{"format": 1, "mode": "alone", "streams": [{"name": "KV_../x", "file": "x.snapshot", "settings": {}}]}`,
		"a subject for a name": `{"format": 1, "mode": "alone", "streams": [{"name": "A.>", "file": "x.snapshot", "settings": {}}]}`,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "manifest.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if m, err := backup.Open(dir); err == nil || m != nil {
			t.Errorf("%s: it is taken for a backup", name)
		}
	}
	if _, err := backup.Open(t.TempDir()); salt.Hint(err) == "" {
		t.Errorf("an empty directory: %v, without a hint", err)
	}
}
