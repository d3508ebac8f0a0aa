package watchdog

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/brinebus/brine/test/deadline"
)

// child has a file for the script of a process that TestWatchdog starts.
const child = "BRINE_WATCHDOG"

const script = `echo bitten >"$1"`

func TestWatchdog(t *testing.T) {
	if file := os.Getenv(child); file != "" {
		Start(t, script, file)
		os.Stdout.WriteString("ready\n")
		select {}
	}
	file := filepath.Join(t.TempDir(), "file")
	if !t.Run("the test ends", func(t *testing.T) { Start(t, script, file) }) {
		return
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the script ran after a test that ended")
	}
	c := exec.Command(os.Args[0], "-test.run", "^TestWatchdog$")
	c.Env = append(os.Environ(), child+"="+file)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if said, err := bufio.NewReader(out).ReadString('\n'); said != "ready\n" {
		t.Errorf("the process says %q, %v", said, err)
	}
	if err := syscall.Kill(-c.Process.Pid, syscall.SIGKILL); err != nil { // all of its group
		t.Error(err)
	}
	_ = c.Wait() // it was killed
	deadline.Until(t, func() bool {
		b, _ := os.ReadFile(file)
		return string(b) == "bitten\n"
	}, "the script has run after a test that was killed")
}
