package daemon

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain lets the test binary be the daemon that TestDetach starts.
func TestMain(m *testing.M) {
	if os.Getenv("NOTIFY_SOCKET") == "" {
		os.Exit(m.Run())
	}
	switch path := os.Args[1]; path {
	case "-broken":
		fmt.Fprintln(os.Stderr, "no good")
		os.Exit(77)
	case "-deaf", "-failed":
		hang(path)
	default:
		serve(path)
	}
}

// serve writes its process number and session to path, is ready, and serves
// until it is killed, at most a minute.
func serve(path string) {
	if err := os.WriteFile(path, fmt.Appendf(nil, "%d %d", os.Getpid(), sid()), 0o600); err != nil {
		os.Exit(1)
	}
	if err := Notify("STATUS=opening"); err != nil {
		os.Exit(1)
	}
	if err := Notify("READY=1"); err != nil {
		os.Exit(1)
	}
	time.AfterFunc(time.Minute, func() { os.Exit(1) })
	select {}
}

func TestSupervised(t *testing.T) {
	self := fmt.Sprint(os.Getpid())
	for _, c := range []struct {
		socket, unit, main string
		want               bool
	}{
		{"", "", "", false},
		{"/run/x", "", "", true},   // systemd, or -d
		{"", "af01", self, true},   // of Type=simple
		{"", "af01", "", true},     // likewise, of an old systemd
		{"", "af01", "999", false}, // a shell in a terminal that is a unit
		{"", "", self, false},
	} {
		t.Setenv("NOTIFY_SOCKET", c.socket)
		t.Setenv("INVOCATION_ID", c.unit)
		t.Setenv("SYSTEMD_EXEC_PID", c.main)
		if got := Supervised(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func sid() int {
	n, _, _ := syscall.Syscall(syscall.SYS_GETSID, 0, 0, 0)
	return int(n)
}

func TestDetachReturnsWhenTheDaemonIsReady(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("deep/", 40))
	if err := os.MkdirAll(long, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", long)
	path := filepath.Join(t.TempDir(), "pid")
	if err := Detach(t.Context(), []string{path}, os.Stderr); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var pid, session int
	if _, err := fmt.Sscan(string(text), &pid, &session); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("end the daemon: %v", err)
	}
	if session != pid {
		t.Errorf("session of process %d is %d, want one of its own", pid, session)
	}
	if left, err := os.ReadDir(long); err != nil || len(left) > 0 {
		t.Errorf("left in TMPDIR: %v, %v", left, err)
	}
}

func TestDetachTellsOfADaemonThatDoesNotStart(t *testing.T) {
	err := Detach(t.Context(), []string{"-broken"}, io.Discard)
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Code != 77 {
		t.Errorf("Detach = %v, want exit code 77", err)
	}
}
