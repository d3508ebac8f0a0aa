package netlab

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/brinebus/brine/test/deadline"
)

// child says that this process is the one that TestAKilledLabLeavesNothing kills.
const child = "BRINE_NETLAB_KILLED"

func TestAKilledLabLeavesNothing(t *testing.T) {
	if os.Getenv(child) != "" {
		waitInLab(t)
	}
	t.Parallel()
	New(t) // or there is nothing to kill
	c := exec.Command(os.Args[0], "-test.run", "^TestAKilledLabLeavesNothing$")
	c.Env = append(os.Environ(), child+"=1")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	said, err := bufio.NewReader(out).ReadString('\n')
	_ = c.Process.Kill()
	_ = c.Wait() // it was killed
	var prefix string
	var pid int
	if _, scanned := fmt.Sscan(said, &prefix, &pid); scanned != nil || !strings.HasPrefix(prefix, "brine") {
		t.Fatalf("the process says %q, %v", said, err)
	}
	for _, dir := range []string{namespaces, "/etc/netns"} {
		deadline.Until(t, func() bool {
			left, _ := filepath.Glob(filepath.Join(dir, prefix+"*"))
			return len(left) == 0
		}, "nothing is left in "+dir)
	}
	deadline.Until(t, func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH }, "nothing runs on its hosts")
}

// waitInLab makes a lab in which something runs, and says so.
func waitInLab(t *testing.T) {
	l := New(t)
	h, middle := l.Host("a"), l.Switch("s")
	l.Plug(h, middle, "10.77.4.1/24")
	_ = h.Slow(Delay{}, Incoming) // where there is such a link
	c := h.Command("sleep", "1000")
	l.must(c.Start())
	fmt.Println(l.prefix, c.Process.Pid)
	select {}
}
