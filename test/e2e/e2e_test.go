package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/brinebus/brine/test/natslab"
	"github.com/brinebus/brine/test/programs"
)

var update = flag.Bool("update", false, "write what cmp finds other than expected into the scripts")

// bin is the directory of the binaries.
var bin string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	flag.Parse()
	if testing.Short() {
		fmt.Println("e2e: skipped with -short: it builds and runs the binaries")
		return 0
	}
	syscall.Umask(0o022) // what the scripts see must not depend on who runs them
	var err error
	if bin, err = os.MkdirTemp("", "brine-bin"); err == nil {
		defer os.RemoveAll(bin)
		err = build(bin)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// build makes the binaries, with the race detector when this test has it.
func build(dir string) error {
	if raced {
		return programs.PutRaced(dir)
	}
	return programs.Put(dir)
}

// inParallel is how many scripts run at a time. They wait more than they work.
const inParallel = "4"

func TestScripts(t *testing.T) {
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := f.Value.Set(inParallel); err != nil {
			t.Fatal(err)
		}
	}
	testscript.Run(t, testscript.Params{
		Dir:                "testdata",
		Setup:              setUp,
		Condition:          condition,
		Cmds:               commands(),
		RequireUniqueNames: true,
		UpdateScripts:      *update,
	})
}

// setUp prepares a script's folder and sees to it that nothing outlives it.
func setUp(env *testscript.Env) error {
	for _, dir := range []string{filepath.Dir(env.WorkDir), env.WorkDir} {
		if err := os.Chmod(dir, 0o755); err != nil { // for scripts that act as another user
			return err
		}
	}
	env.Setenv("PATH", bin+string(filepath.ListSeparator)+env.Getenv("PATH"))
	scripts, err := filepath.Abs("../../scripts/events")
	if err != nil {
		return err
	}
	env.Setenv("SCRIPTS", scripts)
	completions, err := filepath.Abs("../../packaging/completions")
	if err != nil {
		return err
	}
	env.Setenv("COMPLETIONS", completions)
	released, err := filepath.Abs("testdata/released")
	if err != nil {
		return err
	}
	env.Setenv("RELEASED", released)
	env.Setenv("HOME", env.WorkDir)
	env.Setenv("NODE_PATH", os.Getenv("NODE_PATH"))
	env.Setenv("GORACE", "halt_on_error=1 atexit_sleep_ms=0")
	env.Setenv("SALT_CONFIG_DIR", filepath.Join(env.WorkDir, "master"))
	s := newSystem(env)
	env.Values[systemKey{}] = s
	env.Values[labKey{}] = new(*natslab.Cluster)
	env.Defer(s.close)
	return nil
}

// condition answers what a script asks of the machine: [raced] for binaries with
// the race detector, [root] for the right to
// act as other users, [users] for that to make some, [userns] where ordinary users can make user namespaces, [tmpfs] for that to mount a
// small disk, [node] for Node with a client of NATS, [older] for programs of an older version.
func condition(name string) (bool, error) {
	switch name {
	case "raced":
		return raced, nil
	case "root":
		return os.Geteuid() == 0, nil
	case "node":
		return hasNode(), nil
	case "long":
		return os.Getenv("BRINE_LONG") != "", nil
	case "older":
		return os.Getenv(olderVariable) != "", nil
	case "users":
		return mayMakeUsers(), nil
	case "userns":
		return mayUnshare(), nil
	case "tmpfs":
		return mayMount(), nil
	}
	return false, fmt.Errorf("unknown condition %q", name)
}

// hasNode tries it out, once. NODE_PATH says where the package is.
var hasNode = sync.OnceValue(func() bool {
	return exec.Command("node", "-e", "require('@nats-io/transport-node')").Run() == nil
})

// mayMount tries it out, once.
var mayMount = sync.OnceValue(func() bool {
	if os.Geteuid() != 0 {
		return false
	}
	dir, err := os.MkdirTemp("", "brine-mount")
	if err != nil {
		return false
	}
	defer os.Remove(dir)
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		return false
	}
	return syscall.Unmount(dir, 0) == nil
})
