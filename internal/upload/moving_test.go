package upload_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/backup"
	"github.com/brinebus/brine/internal/fileserver"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/upload"
	"github.com/brinebus/brine/test/bustest"
)

// put puts a file into a directory, as a master that takes files alone does.
func (m *master) put(name, text string, when time.Time) {
	m.t.Helper()
	u := fileserver.NewUploads(m.dir, limit)
	p := fileserver.Piece{Path: name, Upload: "u", Data: []byte(text), SHA256: sum([]byte(text))}
	if err := errors.Join(u.Put(m.t.Context(), "web1", p), os.Chtimes(m.path("web1", name), when, when)); err != nil {
		m.t.Fatal(err)
	}
}

// Masters that become members bring the files that they have taken alone. Of two the newer one counts.
func TestMembersBringTheirFiles(t *testing.T) {
	_, list := members(t)
	now := time.Now()
	list[0].put("dir/first", "1", now)
	list[1].put("second", "2", now)
	list[0].put("both", "newer", now)
	list[1].put("both", "older", now.Add(-time.Hour))
	list[2].put("both", "oldest", now.Add(-2*time.Hour))
	for _, m := range list {
		m.run()
	}
	for name, want := range map[string]string{"dir/first": "1", "second": "2", "both": "newer"} {
		allHave(list, "web1", name, []byte(want))
	}
	if info, err := os.Stat(list[2].path("web1", "both")); err != nil || info.ModTime().Sub(now).Abs() > time.Second {
		t.Errorf("at another member: %v, %v; want the time of the first", info, err)
	}
	list[2].pushed("web1", "both", []byte("newest"))
	allHave(list, "web1", "both", []byte("newest"))
}

// A single master whose store comes from a cluster puts into its directory what that lacks, and keeps
// the files there that are newer. The tables end with that, and with them how far the directory follows.
func TestASingleMasterKeepsTheFilesOfTheCluster(t *testing.T) {
	b := bustest.StartStore(t)
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	m := &master{Member: &bustest.Member{Bus: b, Name: "alone"}, t: t, dir: t.TempDir(), journal: j}
	now := time.Now()
	m.put("newer", "here", now)
	m.put("older", "here", now.Add(-time.Hour))
	m.put("removed", "here", now.Add(-time.Hour))
	if err := os.WriteFile(filepath.Join(m.dir, ".follows"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	gone := stored{Minion: "web1", Path: "removed", Time: now.Add(-time.Minute)}
	stored := func(path, text string) {
		m.write("", stored{Minion: "web1", Path: path, Object: path, Pieces: 1, Size: int64(len(text)), SHA256: sum([]byte(text)), Time: now.Add(-time.Minute)}, text)
	}
	stored("newer", "there")
	stored("older", "there")
	stored("lacking", "there")
	m.write("", gone)
	stored("broken", "there")
	if err := m.table("pusheddata").Remove(t.Context(), "broken/0"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second start finds nothing to do
		m.uploads = fileserver.NewUploads(m.dir, limit)
		files, err := upload.Open(t.Context(), upload.Options{Journal: j, Dir: m.dir, Uploads: m.uploads, Log: b.Log})
		if err != nil || files != nil {
			t.Fatal(files, err)
		}
		files.Run(t.Context()) // returns at once
		for name, want := range map[string][]byte{"newer": []byte("here"), "older": []byte("there"), "lacking": []byte("there"), "removed": nil, "broken": nil} {
			m.has("web1", name, want)
		}
		for _, table := range []string{"pushed", "pusheddata"} {
			if left, err := journal.FindTable(context.Background(), j, table); err != nil || left != nil {
				t.Errorf("the table %s is there, %v", table, err)
			}
		}
		if _, err := os.Stat(filepath.Join(m.dir, ".follows")); err == nil {
			t.Error("the directory still follows")
		}
	}
	m.pushed("web1", "newer", []byte("and taken alone"))
}

// restore restores a backup into the store of a bus.
func restore(t *testing.T, b *bustest.Bus, dir string, to backup.Target) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	m, err := backup.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	to.Log = b.Log
	if _, err := backup.Restore(ctx, b.Conn(), m, dir, to, &backup.Progress{}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
}

// A backup of a cluster has the files: a single master and another cluster get them from it, with empty
// directories.
func TestABackupHasTheFiles(t *testing.T) {
	s, list := start(t)
	want := map[string][]byte{"small": []byte("x"), "dir/none": {}}
	for n := range 8 {
		want[fmt.Sprint("large", n)] = filled(limit)
	}
	for name, content := range want {
		list[0].pushed("web1", name, content)
	}
	dir := filepath.Join(t.TempDir(), "backup")
	if _, err := backup.Write(t.Context(), list[1].Conn(), backup.Options{Dir: dir, Member: "m2", Version: "1", Log: list[1].Log}); err != nil {
		t.Fatal(err)
	}
	for _, m := range list {
		m.end()
	}

	b := bustest.StartStore(t)
	restore(t, b, dir, backup.Target{})
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	alone := &master{Member: &bustest.Member{Bus: b, Name: "alone"}, t: t, dir: t.TempDir(), journal: j}
	alone.open()
	for name, content := range want {
		alone.has("web1", name, content)
	}

	var names []string
	for _, m := range s.Members {
		names = append(names, m.Name)
	}
	_, list = members(t)
	for _, m := range list { // the second finds what the first has restored
		restore(t, m.Bus, dir, backup.Target{Member: m.Name, Members: names, Copies: 3})
	}
	for _, m := range list {
		m.run()
	}
	for name, content := range want {
		allHave(list, "web1", name, content)
	}
	if n := list[0].pieces(); n != 1+8*limit/(256<<10) {
		t.Errorf("there are %d pieces", n)
	}
}
