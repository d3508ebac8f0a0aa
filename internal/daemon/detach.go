package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// Detach starts this program again with args, in a session of its own, and
// returns when it is ready: the same word that systemd would get. What the
// child says until then goes to stderr. A child that ends before it is ready is
// an error.
func Detach(ctx context.Context, args []string, stderr io.Writer) error {
	// The socket has a name and no file: a path below a long TMPDIR would not fit
	// into an address.
	name := "@salt-ready-" + rand.Text()
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer l.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.Command(self, args...)
	c.Env = append(os.Environ(), "NOTIFY_SOCKET="+name)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if f, ok := stderr.(*os.File); ok {
		c.Stderr = f // a copying goroutine would end with this process
	}
	if err := c.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	ready := make(chan error, 1)
	go func() { ready <- awaitReady(l) }()
	select {
	case err := <-ready:
		return err
	case err := <-ended:
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return &ExitError{exit.ExitCode()}
		}
		return errors.New("the daemon ended before it was ready")
	case <-ctx.Done():
		_ = c.Process.Signal(syscall.SIGTERM) // it is being waited for no more
		return context.Cause(ctx)
	}
}

// ExitError is the end of a detached daemon that did not become ready; it has
// told the reason itself.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return fmt.Sprintf("the daemon ended with exit code %d", e.Code) }

func awaitReady(l *net.UnixConn) error {
	buf := make([]byte, 1024)
	for {
		n, err := l.Read(buf)
		if err != nil {
			return err
		}
		if strings.Contains(string(buf[:n]), "READY=1") {
			return nil
		}
	}
}
