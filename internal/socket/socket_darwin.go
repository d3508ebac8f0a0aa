package socket

import (
	"errors"

	"golang.org/x/sys/unix"
)

// maxPath is the longest path that fits into sockaddr_un.sun_path with its final NUL.
const maxPath = 103

func credentials(fd uintptr) (Peer, error) {
	cred, err := unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return Peer{}, err
	}
	if cred.Ngroups < 1 {
		return Peer{}, errors.New("the peer has no group")
	}
	pid, err := unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	if err != nil {
		return Peer{}, err
	}
	return Peer{PID: int32(pid), UID: cred.Uid, GID: cred.Groups[0]}, nil
}
