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
