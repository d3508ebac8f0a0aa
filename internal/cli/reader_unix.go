//go:build unix

package cli

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// readerGone waits until the reader of fd is gone (true), or until wake is closed. A file and a
// terminal always have a reader.
func readerGone(fd int, wake *os.File) bool {
	polled := []unix.PollFd{{Fd: int32(fd)}, {Fd: int32(wake.Fd())}} // errors and hang-ups are always reported
	for {
		_, err := unix.Poll(polled, -1)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return false
		default:
			return polled[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
		}
	}
}

// isClosed reports whether the process was started with f closed, as by ">&-". The Go runtime
// has then opened /dev/null for it, for reading and writing. A user who wants /dev/null opens
// it for writing only, or once for several streams, as daemons do.
func isClosed(f, other *os.File) bool {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_ACCMODE != unix.O_RDWR {
		return false
	}
	var here, null unix.Stat_t
	if unix.Fstat(int(f.Fd()), &here) != nil || unix.Stat(os.DevNull, &null) != nil || here.Rdev != null.Rdev || here.Mode&unix.S_IFMT != unix.S_IFCHR {
		return false
	}
	return !sameDescription(int(f.Fd()), int(other.Fd()))
}
