// Package socket is the local socket of a daemon: a Unix socket that everybody may connect to,
// since the kernel identifies the peer. It knows addresses and peers, but not the protocol on the
// socket.
package socket

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/salt"
)

// ErrNobody is returned by Dial if no daemon listens at the path.
var ErrNobody = errors.New("no daemon is listening")

// Peer is the process at the other end, as known by the kernel.
type Peer struct {
	PID int32
	UID uint32
	GID uint32
}

// Unnamed reports whether the kernel has no number here for the user of the peer except that of
// nobody: this process is in a user namespace, and the peer is not.
func (p Peer) Unnamed() bool { return p.UID == overflowUID && Namespaced() }

// overflowUID is the kernel's number for users that do not exist in a namespace.
const overflowUID = 65534

// Namespaced reports whether this process is in a user namespace in which not all users of the
// machine have their own numbers.
var Namespaced = sync.OnceValue(func() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && !slices.Equal(strings.Fields(string(b)), []string{"0", "0", "4294967295"})
})

// PeerOf returns the process that connected c, from the kernel. It fails for anything but a Unix
// socket. Windows does not identify the peer: there, only the system, its administrators and the
// daemon's own user can open the file of the socket, and every peer has the rights of root.
func PeerOf(c net.Conn) (Peer, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return Peer{}, fmt.Errorf("peer of a %T: only Unix sockets name their peer", c)
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var peer Peer
	var peerErr error
	if err := raw.Control(func(fd uintptr) { peer, peerErr = credentials(fd) }); err != nil {
		return Peer{}, err
	}
	if peerErr != nil {
		return Peer{}, fmt.Errorf("read peer credentials: %w", peerErr)
	}
	return peer, nil
}

// Listen opens the socket at path with the given mode, under any umask. Missing directories are
// created with mode 0755. A socket file that a dead daemon left is replaced. If another process
// listens on it, or if it is not a socket, the error wraps syscall.EADDRINUSE.
func Listen(path string, mode os.FileMode) (net.Listener, error) {
	dir := filepath.Dir(path)
	if err := atomicfile.MakeDir(dir, 0o755); err != nil {
		return nil, err
	}
	if err := clear(path); err != nil {
		return nil, err
	}
	l, err := listen(path, mode)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return &listener{UnixListener: l, path: path}, nil
}

type listener struct {
	*net.UnixListener
	path string
}

// Close stops listening and removes the file.
func (l *listener) Close() error {
	err := l.UnixListener.Close()
	if rm := os.Remove(l.path); err == nil && !errors.Is(rm, os.ErrNotExist) {
		err = rm
	}
	return err
}

// clear removes a socket without a listener.
func clear(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSocket == 0 {
		return salt.WithHint(fmt.Errorf("%s is in the way: it is not a socket", path), "move the file away, or set sock_dir to another directory")
	}
	c, err := Dial(path)
	if err == nil {
		c.Close()
		return fmt.Errorf("listen on %s: %w", path, syscall.EADDRINUSE)
	}
	if !errors.Is(err, ErrNobody) {
		return err
	}
	return os.Remove(path)
}

// Dial connects to the daemon at path. If no daemon listens, the error wraps ErrNobody; if the user
// has no permission for the path, fs.ErrPermission.
func Dial(path string) (net.Conn, error) {
	address, done, err := reach(path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("connect to %s: %w", path, ErrNobody)
		}
		return nil, err
	}
	defer done()
	c, err := net.DialTimeout("unix", address, 5*time.Second)
	switch {
	case err == nil:
		return c, nil
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("connect to %s: %w", path, ErrNobody)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("connect to %s: %w", path, os.ErrPermission)
	}
	return nil, fmt.Errorf("connect to %s: %w", path, err)
}
