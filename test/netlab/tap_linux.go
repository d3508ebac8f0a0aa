package netlab

import (
	"io"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// tap adds a network device to the host whose frames this process reads and writes; see tun in the documents of
// the kernel. It is gone when it is closed, and when this process ends in whatever way. Without vnet_hdr the kernel
// hands out no frame that is still to be split or to get its checksum.
func (h *Host) tap(name string) (io.ReadWriteCloser, error) {
	var f *os.File
	err := h.inside(func() error {
		const device = "/dev/net/tun"
		fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: device, Err: err}
		}
		request, err := unix.NewIfreq(name)
		if err == nil {
			request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
			err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
		}
		if err != nil {
			_ = unix.Close(fd) // nothing was made
			return &os.PathError{Op: "make " + name + " by", Path: device, Err: err}
		}
		f = os.NewFile(uintptr(fd), name) // only now: the poller does not take it before it is a device
		return nil
	})
	return f, err
}

// inside runs f on a thread in the network of the host.
func (h *Host) inside(f func() error) error {
	done := make(chan error)
	go func() { done <- h.enter(f) }()
	return <-done
}

// enter needs a goroutine of its own: where its thread cannot return, it ends with it.
func (h *Host) enter(f func() error) error {
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer own.Close()
	there, err := os.Open(filepath.Join(namespaces, h.name))
	if err != nil {
		return err
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return os.NewSyscallError("setns", err)
	}
	err = f()
	if unix.Setns(int(own.Fd()), unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread()
	}
	return err
}
