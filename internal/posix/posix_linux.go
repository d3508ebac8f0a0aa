package posix

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// StatOf returns the further metadata from a Stat or Lstat.
func StatOf(info fs.FileInfo) (Stat, error) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Stat{}, Unsupported("the owner of " + info.Name())
	}
	return Stat{
		Device: uint64(s.Dev), Inode: s.Ino, Links: uint64(s.Nlink), UID: s.Uid, GID: s.Gid, Mode: s.Mode, //nolint:unconvert // 32 bits on some machines
		Access: s.Atim.Nano(), Modified: s.Mtim.Nano(), Changed: s.Ctim.Nano(),
	}, nil
}

// StatFS describes the file system at a path.
func StatFS(path string) (FileSystem, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return FileSystem{}, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	return FileSystem{uint64(s.Bsize), s.Blocks, s.Bfree, s.Bavail, s.Files, s.Ffree}, nil
}

// OpenToSync opens a file for SyncData.
func OpenToSync(path string) (*os.File, error) { return os.Open(path) }

// SyncData syncs an open file without its times.
func SyncData(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// AllocateMore reserves this many bytes after the end of a file without changing its size;
// ErrUnsupported means that the file system cannot do that.
func AllocateMore(f *os.File, size int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, info.Size(), size)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return Unsupported("room behind the end of a file")
	}
	return err
}

// Allocate reserves space for the first size bytes of a file; ErrUnsupported means that the file
// system cannot do that.
func Allocate(f *os.File, size int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return Unsupported("room for a file before it is written")
	}
	return err
}
