package socket

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxPath is the longest path that fits into sockaddr_un.sun_path with its final NUL.
const maxPath = 107

func credentials(fd uintptr) (Peer, error) {
	cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return Peer{}, err
	}
	return Peer{PID: cred.Pid, UID: cred.Uid, GID: cred.Gid}, nil
}

// reach returns an address for path that fits into a socket address: the path itself, or for a long
// one an alias through its open directory, so that a deep root_dir works. done releases the alias.
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
