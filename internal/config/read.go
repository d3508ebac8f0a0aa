package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/salt"
)

// maxFile limits the size of one file. A node group list of a hundred thousand minions has
// three megabytes; a log file or disk image named by mistake has more.
const maxFile = 8 << 20

// readFile returns the text of a configuration file. It never blocks: a FIFO or a device in
// place of the file is refused, not read.
func readFile(path string, checkOwner bool) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|posix.NoWaiting, 0) // a FIFO without a writer would block
	if err != nil {
		return nil, fileError(path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fileError(path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fileError(path, fmt.Errorf("it is %s, not a file", describe(info.Mode())))
	}
	if checkOwner {
		if err := checkInfo(path, info); err != nil {
			return nil, fileError(path, err)
		}
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fileError(path, err)
	}
	if len(text) > maxFile {
		return nil, fileError(path, fmt.Errorf("it is larger than %d MiB, the limit for configuration files", maxFile>>20))
	}
	return text, nil
}

// checkDir refuses a directory in which other users could put configuration files.
func checkDir(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fileError(path, err)
	}
	if err := checkInfo(path, info); err != nil {
		return fileError(path, err)
	}
	return nil
}

// checkInfo refuses what belongs to a user other than root and ours, or what others may write.
func checkInfo(path string, info fs.FileInfo) error {
	owner, mode, err := posix.Owner(path, info)
	if err != nil {
		return err
	}
	if euid := os.Geteuid(); owner != 0 && owner != euid {
		err := fmt.Errorf("it belongs to the user with uid %d, who could run anything through it", owner)
		return salt.WithHint(err, fmt.Sprintf("chown %d %s", euid, path))
	}
	if mode = mode.Perm(); mode&0o022 != 0 {
		err := fmt.Errorf("its mode %04o lets others write it, who could run anything through it", mode)
		return salt.WithHint(err, "chmod go-w "+path)
	}
	return nil
}

// fileError names the file that could not be used, if err does not already.
func fileError(path string, err error) error {
	var inner *fs.PathError
	if errors.As(err, &inner) {
		err = inner.Err
	}
	e := &Error{File: path, Err: fmt.Errorf("read configuration: %w", err)}
	if errors.Is(err, fs.ErrPermission) {
		return salt.WithHint(e, posix.DeniedHint(path, "run this as root, or as the user that the daemon runs as"))
	}
	return e
}

// describe names the kind of thing that a mode belongs to.
func describe(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "something else"
}
