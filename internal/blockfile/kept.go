package blockfile

import (
	"errors"
	"os"

	"github.com/brinebus/brine/internal/posix"
)

// kept is a block that was synced and stays open for the next sync, where the system allows to remove and to rename what
// is open.
type kept struct{ file *os.File }

func (k *kept) sync(path string, data syncFile) error {
	if k.has(path) {
		return data(k.file)
	}
	f, err := posix.OpenToSync(path)
	if err != nil {
		return err
	}
	if err := data(f); err != nil || !posix.OpenFilesMove {
		return errors.Join(err, f.Close())
	}
	k.close()
	k.file = f
	return nil
}

// has reports whether the open file is the one at path: it may have been replaced.
func (k *kept) has(path string) bool {
	if k.file == nil || k.file.Name() != path {
		return false
	}
	then, err := k.file.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(path)
	return err == nil && os.SameFile(then, now)
}

func (k *kept) close() {
	if k.file != nil {
		k.file.Close() // nothing was written to it
		k.file = nil
	}
}
