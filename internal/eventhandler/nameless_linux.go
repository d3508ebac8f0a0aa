package eventhandler

import (
	"os"

	"golang.org/x/sys/unix"
)

// nameless makes a file in memory.
func nameless() (*os.File, error) {
	fd, err := unix.MemfdCreate("event", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), "event"), nil
}
