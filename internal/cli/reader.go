package cli

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// errClosedOutput is what a write to a standard output that the caller has closed gives.
var errClosedOutput = errors.New("standard output is closed")

// WhileRead returns a context that ends, with ErrBrokenPipe as its cause, as soon as
// nobody reads Stdout any more, not only when something is written: for commands that
// may be silent for long. A closed standard output is an error. stop must be called.
func (e *Env) WhileRead(ctx context.Context) (while context.Context, stop func(), err error) {
	out, ok := e.Stdout.(pipeWriter)
	if !ok { // a test's
		return ctx, func() {}, nil
	}
	if out.closed {
		return nil, nil, Fail(Failed, errClosedOutput)
	}
	return whileRead(ctx, int(out.w.Fd()))
}

func whileRead(ctx context.Context, fd int) (while context.Context, stop func(), err error) {
	wake, done, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	while, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if readerGone(fd, int(wake.Fd())) {
			cancel(ErrBrokenPipe)
		}
	}()
	return while, func() {
		done.Close()
		<-ended
		wake.Close()
		cancel(nil)
	}, nil
}

// readerGone waits until nobody reads what is written to fd, or until wake is at its
// end. A file and a terminal always have a reader.
func readerGone(fd, wake int) bool {
	polled := []unix.PollFd{{Fd: int32(fd)}, {Fd: int32(wake)}} // errors and ends are always told
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

// isClosed says whether the process was started with f closed, as by ">&-". The Go
// runtime has put /dev/null there, opened for reading and writing; whoever wants that
// opens it for writing, or once for several streams, as daemons do.
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

// sameDescription says whether two descriptors came from one open(2), and so where that
// cannot be known.
func sameDescription(a, b int) bool {
	const kcmpFile = 0
	pid := uintptr(os.Getpid())
	order, _, err := unix.Syscall6(unix.SYS_KCMP, pid, pid, kcmpFile, uintptr(a), uintptr(b), 0)
	return err != 0 || order == 0
}
