package saltevent

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs testdata/script: each with a master of its own, whose
// configuration directory is $SALT_CONFIG_DIR. Beside the commands of testscript
// there is "exit CODE PROGRAM ARGUMENT...", which wants that exit code.
func TestScripts(t *testing.T) {
	needBinaries(t)
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(env *testscript.Env) error {
			s := newSystem(env.T().(testing.TB), "event_acl:\n  nobody:\n    fire: mine/*\n    listen: [mine/*, note]\nmax_event_size: 4096\n")
			env.Setenv("SALT_CONFIG_DIR", s.dir)
			env.Setenv("PATH", bin+string(os.PathListSeparator)+env.Getenv("PATH"))
			return nil
		},
		Condition: func(name string) (bool, error) {
			if name != "root" {
				return false, fmt.Errorf("unknown condition %q", name)
			}
			return os.Geteuid() == 0, nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exit": wantExit},
	})
}

// wantExit runs a program and checks its exit code.
func wantExit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exit CODE PROGRAM ARGUMENT...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		got = failed.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}
