package posix

import (
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
		Device: uint64(s.Dev), Inode: s.Ino, Links: uint64(s.Nlink), UID: s.Uid, GID: s.Gid, Mode: uint32(s.Mode),
		Access: s.Atimespec.Nano(), Modified: s.Mtimespec.Nano(), Changed: s.Ctimespec.Nano(),
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

// SyncData syncs an open file: macOS has no cheaper call.
func SyncData(f *os.File) error { return f.Sync() }

// AllocateMore fails, as Allocate does.
func AllocateMore(*os.File, int64) error { return Unsupported("room behind the end of a file") }

// Allocate fails: space for a file is allocated by writing it.
func Allocate(*os.File, int64) error { return Unsupported("room for a file before it is written") }
