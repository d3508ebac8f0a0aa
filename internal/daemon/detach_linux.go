package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Detach starts this program again with args, in its own session, and returns when it sends the
// notification that systemd would get. Until then, the output of the child goes to stderr; after
// that it holds no descriptor of its caller, see Ready. If the child ends before it is ready, that
// is an error.
func Detach(ctx context.Context, args []string, stderr io.Writer) error {
	// The socket is abstract, without a file: a path in a long TMPDIR may not fit into an address.
	name := readyPrefix + rand.Text()
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer l.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := closeOnExec(); err != nil {
		return err
	}
	c := exec.Command(self, args...)
	c.Env = append(os.Environ(), "NOTIFY_SOCKET="+name)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if f, ok := stderr.(*os.File); ok {
		c.Stderr = f // a goroutine that copies would end with this process
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
		_ = c.Process.Signal(syscall.SIGTERM) // nobody waits for it any more
		return context.Cause(ctx)
	}
}

// closeOnExec closes inherited descriptors, except the three standard streams, in the child: for
// example the pipe of a script.
func closeOnExec() error {
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil && !errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("close inherited descriptors: %w", err)
	}
	return nil // kernels before 5.11 do not have this call
}

func dropStderr() error {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	if err := unix.Dup3(int(null.Fd()), int(os.Stderr.Fd()), 0); err != nil {
		return fmt.Errorf("release standard error: %w", err)
	}
	return nil
}

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
