package socket

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/brinebus/brine/internal/posix"
)

// maxPath is the longest path that fits into sockaddr_un.sun_path with its final NUL.
const maxPath = 107

// credentials returns those of root: only users who may do anything here can pass the access list
// of the socket, and nobody else can have created its path.
func credentials(uintptr) (Peer, error) { return Peer{}, nil }

// listen opens the socket in a private directory, whatever mode is requested.
func listen(path string, _ os.FileMode) (*net.UnixListener, error) {
	dir := filepath.Dir(path)
	if err := posix.Protect(dir); err != nil {
		return nil, err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if owner, _, err := posix.Owner(dir, info); err != nil || owner != 0 && owner != os.Geteuid() {
		return nil, errors.Join(err, fmt.Errorf("%s belongs to another user, who could open it again", dir))
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err := posix.Protect(path); err != nil { // it may have been open through the directory
		l.Close()
		return nil, err
	}
	return l, nil
}
