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
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/salt"
)

// ErrNobody is returned by Dial when no daemon listens behind the path.
var ErrNobody = errors.New("no daemon is listening")

// maxPath is what fits into sockaddr_un.sun_path with its final NUL.
const maxPath = 107

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
// socket.
func PeerOf(c net.Conn) (Peer, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return Peer{}, fmt.Errorf("peer of a %T: only Unix sockets name their peer", c)
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return Peer{}, err
	}
	if credErr != nil {
		return Peer{}, fmt.Errorf("read peer credentials: %w", credErr)
	}
	return Peer{PID: cred.Pid, UID: cred.Uid, GID: cred.Gid}, nil
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
	l, err := listenAside(path, mode)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return &listener{UnixListener: l, path: path}, nil
}

// listenAside opens the socket in a folder that is closed to others and moves it
// to its place when it has its mode: at no moment does the umask decide who may
// connect.
func listenAside(path string, mode os.FileMode) (*net.UnixListener, error) {
	aside, err := os.MkdirTemp(filepath.Dir(path), ".")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(aside)
	temp := filepath.Join(aside, "s")
	address, done, err := reach(temp)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
	if err != nil {
		return nil, err
	}
	// The address is not the one where the file will be, so it is removed by its
	// own name and not by the listener.
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(temp, mode); err != nil {
		l.Close()
		return nil, err
	}
	if err := os.Rename(temp, path); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
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

// reach returns an address for path that fits into a socket address: the path
// itself, or for a long one an alias through its open directory, so that a deep
// root_dir is no obstacle. done releases the alias.
func reach(path string) (address string, done func(), err error) {
	if len(path) <= maxPath {
		return path, func() {}, nil
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	alias := "/proc/self/fd/" + strconv.Itoa(int(d.Fd())) + "/" + filepath.Base(path)
	if len(alias) > maxPath {
		d.Close()
		return "", nil, fmt.Errorf("socket name %q is too long", filepath.Base(path))
	}
	return alias, func() { d.Close() }, nil
}
