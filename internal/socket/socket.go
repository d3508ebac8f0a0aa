// Package socket is the local door of a daemon: a Unix socket that everybody
// may knock at, since the kernel says who it is. It knows addresses and peers,
// not what is spoken over the socket.
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

// ErrNobody is returned by Dial when no daemon listens behind the path.
var ErrNobody = errors.New("no daemon is listening")

// Peer is the process at the other end, as the kernel knows it.
type Peer struct {
	PID int32
	UID uint32
	GID uint32
}

// Unnamed says that the kernel has no number for the user of the peer here, but that of
// nobody: this process is in a user namespace, and the peer is not.
func (p Peer) Unnamed() bool { return p.UID == overflowUID && Namespaced() }

// overflowUID is what the kernel says of users that a namespace does not have.
const overflowUID = 65534

// Namespaced says whether this process is in a user namespace that has not all users of
// the machine under their own numbers.
var Namespaced = sync.OnceValue(func() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && !slices.Equal(strings.Fields(string(b)), []string{"0", "0", "4294967295"})
})

// PeerOf asks the kernel who connected c. It fails for anything but a Unix
// socket. Windows does not say who it is: there the file of the socket lets in nobody but
// the system, its administrators and the daemon's own user, and whoever comes counts as
// root does elsewhere.
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

// Listen opens the socket at path with the given mode, also under any umask.
// Directories that are missing are made, 0755. A socket file that a dead daemon
// left behind is replaced; a living listener is an error that wraps
// syscall.EADDRINUSE, as is anything else than a socket in that place.
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

// clear removes a socket that nobody listens on any more.
func clear(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSocket == 0 {
		return salt.WithHint(fmt.Errorf("%s is in the way: it is no socket", path), "move the file away, or set sock_dir to another directory")
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

// Dial connects to the daemon behind path. Where nobody listens the error wraps
// ErrNobody; where the path may not be reached, fs.ErrPermission.
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
