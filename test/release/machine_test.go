package release

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/brinebus/brine/test/capture"
)

// machine is a machine of its own, as testdata/machine makes it, that shares the kernel and the
// programs of /usr with this one.
type machine struct {
	t       *testing.T
	cmd     *exec.Cmd
	init    int             // its first process
	console *capture.Buffer // what that has printed
	ended   chan struct{}
}

// patience is far above what anything here takes on a loaded machine.
const patience = 90 * time.Second

// mayUnshare says why no machine can be made here, or nothing.
func mayUnshare() error {
	if os.Geteuid() != 0 {
		return errors.New("only root makes machines")
	}
	for _, p := range []string{"bash", "unshare", "nsenter", "pivot_root"} {
		if _, err := exec.LookPath(p); err != nil {
			return err
		}
	}
	out, err := exec.Command("unshare", "--mount", "--pid", "--fork", "--net", "--uts", "--ipc", "--cgroup", "sh", "-c",
		"mount --make-rprivate / && mount -t tmpfs try /mnt && mkdir /mnt/u /mnt/w /mnt/m && mount -t overlay -o lowerdir=/usr,upperdir=/mnt/u,workdir=/mnt/w try /mnt/m").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// boot starts a machine with what is below files, and program as its first process. The
// namespaces are its own, or with beside the network is that of another machine.
func boot(t *testing.T, files, volumes string, beside *machine, program ...string) *machine {
	t.Helper()
	script, err := filepath.Abs("testdata/machine")
	if err != nil {
		t.Fatal(err)
	}
	words := []string{"unshare", "--mount", "--pid", "--fork", "--uts", "--ipc", "--cgroup", "--kill-child"}
	if beside == nil {
		words = append(words, "--net")
	} else {
		words = append([]string{"nsenter", "--net", "--target", strconv.Itoa(beside.init)}, words...)
	}
	words = append(append(words, script, t.TempDir(), files, volumes), program...)
	group := ownGroup(t)
	// The group of processes is entered before its namespace is made, which begins with it.
	words = append([]string{"sh", "-c", `[ -z "$0" ] || echo $$ >"$0/cgroup.procs"; exec "$@"`, group}, words...)
	m := &machine{t: t, cmd: exec.Command(words[0], words[1:]...), console: &capture.Buffer{}, ended: make(chan struct{})}
	m.cmd.Stdout, m.cmd.Stderr = m.console, m.console
	m.cmd.WaitDelay = time.Second
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = m.cmd.Wait() // its state says it
		close(m.ended)
	}()
	t.Cleanup(m.kill)
	name := filepath.Base(program[0])
	m.await(name+" to begin", func() bool { m.init = m.first(name); return m.init != 0 })
	return m
}

// ownGroup is a cgroup for a machine, "" where none can be made.
func ownGroup(t *testing.T) string {
	for _, top := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(filepath.Join(top, "cgroup.procs")); err != nil {
			continue
		}
		dir, err := os.MkdirTemp(top, "brine-test-")
		if err != nil {
			continue
		}
		t.Cleanup(func() { removeGroup(t, dir) })
		return dir
	}
	return ""
}

// removeGroup removes a cgroup whose processes have been killed, with all below it.
func removeGroup(t *testing.T, dir string) {
	err := errors.New("never tried")
	for end := time.Now().Add(patience); err != nil && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var list []string
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				list = append([]string{path}, list...)
			}
			return nil
		})
		for _, path := range list { // what is below comes first
			err = syscall.Rmdir(path)
		}
	}
	if err != nil {
		t.Errorf("remove %s: %v", dir, err)
	}
}

// first finds the first process of the machine, once it is the program of that name.
func (m *machine) first(name string) int {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", m.cmd.Process.Pid))
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		for _, word := range strings.Fields(string(b)) {
			if exe, err := os.Readlink("/proc/" + word + "/exe"); err == nil && filepath.Base(exe) == name {
				pid, _ := strconv.Atoi(word) // the kernel wrote it
				return pid
			}
		}
	}
	return 0
}

// await waits until f is true; that the machine ends before is an error.
func (m *machine) await(what string, f func() bool) {
	m.t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(50 * time.Millisecond) {
		select {
		case <-m.ended:
			m.t.Fatalf("the machine ended while the test waited for %s:\n%s", what, m.console)
		default:
		}
		if time.Now().After(end) {
			m.t.Fatalf("waited %s for %s:\n%s", patience, what, m.console)
		}
	}
}

// try runs a shell script within the machine.
func (m *machine) try(script string) (out string, ok bool) {
	c := exec.Command("nsenter", "--target", strconv.Itoa(m.init), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd",
		"timeout", "60", "sh", "-c", script)
	c.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "HOME=/root", "DEBIAN_FRONTEND=noninteractive"}
	b, err := c.CombinedOutput()
	return string(b), err == nil
}

// sh runs a shell script that must do well.
func (m *machine) sh(script string) string {
	m.t.Helper()
	out, ok := m.try(script)
	if !ok {
		m.t.Fatalf("%s: failed:\n%s\n%s", script, out, m.console)
	}
	return out
}

// until runs a shell script again and again until it does well and prints all the words.
func (m *machine) until(script string, words ...string) string {
	m.t.Helper()
	var out string
	m.await(script, func() bool {
		var ok bool
		if out, ok = m.try(script); !ok {
			return false
		}
		for _, w := range words {
			ok = ok && strings.Contains(out, w)
		}
		return ok
	})
	return out
}

// stop asks the first process to end, and returns how it did.
func (m *machine) stop() int {
	m.t.Helper()
	if err := syscall.Kill(m.init, syscall.SIGTERM); err != nil {
		m.t.Fatal(err)
	}
	select {
	case <-m.ended:
	case <-time.After(patience):
		m.t.Fatalf("%s did not end within %s of SIGTERM:\n%s", m.cmd, patience, m.console)
	}
	return m.cmd.ProcessState.ExitCode()
}

// kill ends the machine and all that runs in it.
func (m *machine) kill() {
	_ = m.cmd.Process.Kill() // with which the kernel kills its child, and the namespace ends with that
	<-m.ended
}
