// Package watchdog cleans up after a test whose process was killed, or ran out of its time: then no Cleanup is
// called, and what is not of the process itself, such as mounts and daemons, stays.
//
// It does nothing for a test that ends: that cleans up itself.
package watchdog

import (
	"io"
	"os/exec"
	"syscall"
	"testing"
)

// Start has a shell run the script, with these arguments, if this process ends before the test has.
func Start(tb testing.TB, script string, args ...string) {
	tb.Helper()
	c := exec.Command("sh", append([]string{"-c", "read -r _ && exit\n" + script, "watchdog"}, args...)...)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // what is sent to the group of this process does not end it
	in, err := c.StdinPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_, _ = io.WriteString(in, "\n") // it waits for this, or for the end of the pipe
		if err := c.Wait(); err != nil {
			tb.Errorf("the watchdog: %v", err)
		}
	})
}
