package backup_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/brinebus/brine/internal/backup"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
)

// unfinishedEnv makes this test binary begin a backup into the directory that it names.
const unfinishedEnv = "BRINE_TEST_UNFINISHED"

// halt is a logger's handler that says that a stream is in the backup, and stops there.
type halt struct{ slog.Handler }

func (halt) Enabled(context.Context, slog.Level) bool { return true }

func (halt) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "a stream is in the backup" {
		fmt.Println("begun")
		select {}
	}
	return nil
}

// TestABackupRemovesWhatAKilledOneHasLeft: the next backup into the same place removes the remains of one
// that was killed, and leaves those alone whose process lives, and what is of others.
func TestABackupRemovesWhatAKilledOneHasLeft(t *testing.T) {
	if dir := os.Getenv(unfinishedEnv); dir != "" {
		b := bustest.StartStore(t)
		fill(t, alone(t, b), b, 10)
		_, err := backup.Write(inTime(t), b.Conn(), backup.Options{Dir: dir, Log: slog.New(halt{b.Log.Handler()})})
		t.Fatal("nobody has killed it:", err)
	}
	t.Parallel()
	place := t.TempDir()
	foreign := filepath.Join(place, ".other.tmp-1")
	if err := os.Mkdir(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	b := bustest.StartStore(t)
	fill(t, alone(t, b), b, 10)
	backUp := func(name string) {
		t.Helper()
		if _, err := backup.Write(inTime(t), b.Conn(), backup.Options{Dir: filepath.Join(place, name), Log: b.Log}); err != nil {
			t.Fatal(err)
		}
	}
	// left returns what is in the place and no backup.
	left := func() (names []string) {
		t.Helper()
		list, err := os.ReadDir(place)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if _, err := os.Lstat(filepath.Join(place, e.Name(), "manifest.json")); err != nil {
				names = append(names, e.Name())
			}
		}
		return names
	}
	tmp, err := os.MkdirTemp("", "killed") // a short path: a socket is in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tmp) })
	c := exec.Command(os.Args[0], "-test.run", "^TestABackupRemovesWhatAKilledOneHasLeft$")
	c.Env = append(os.Environ(), "TMPDIR="+tmp, unfinishedEnv+"="+filepath.Join(place, "killed"))
	c.Stderr = t.Output()
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	deadline.Guard(t, func() { _ = c.Process.Kill() }, "the process that is killed")
	if said, err := bufio.NewReader(out).ReadString('\n'); said != "begun\n" {
		t.Fatal(said, err)
	}
	during := left()
	backUp("first")
	if got := left(); len(got) != 3 || !slices.Equal(got, during) {
		t.Errorf("while it runs, there is %q, and after another backup %q", during, got)
	}
	_ = c.Process.Kill()
	_ = c.Wait() // it was killed
	if got := left(); !slices.Equal(got, during) {
		t.Fatalf("killed, it has left %q, and it had %q", got, during)
	}
	backUp("second")
	if got := left(); !slices.Equal(got, []string{filepath.Base(foreign)}) {
		t.Errorf("after the next backup there is %q", got)
	}
}
