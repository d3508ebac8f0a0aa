package audit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/posix"
)

// head is the file that stores the end of the chain. It is in a different place than the chain, so
// that one mistake does not remove both.
//
// It is written and synced after the entry is on disk. So after a crash or a power failure it may
// be behind the chain, but never ahead of it.
type head struct{ file *os.File }

// headForm is the format of the file: always the same length, so that one write overwrites it.
const headForm = "%020d %64s\n"

// openHead opens the file. It creates a missing one at the origin and reports that in created; so
// an empty file was truncated by someone.
func openHead(path string) (h *head, created bool, err error) {
	if _, err = os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		created = true
		err = atomicfile.Write(path, origin.text(), 0o600)
	}
	if err != nil {
		return nil, false, fmt.Errorf("head of the audit log: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|posix.NoFollow, 0)
	if err != nil {
		return nil, false, fmt.Errorf("head of the audit log: %w", err)
	}
	return &head{f}, created, nil
}

func (p position) text() []byte { return fmt.Appendf(nil, headForm, p.n, p.hash) }

// read returns the position; for invalid content the error is a *damaged.
func (h *head) read() (position, error) {
	text := make([]byte, 128)
	n, err := h.file.ReadAt(text, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return position{}, fmt.Errorf("head of the audit log: %w", err)
	}
	if n == 0 {
		return position{}, &damaged{h.file.Name(), "it is empty"}
	}
	var at position
	if _, err := fmt.Sscanf(string(text[:n]), "%d %64s\n", &at.n, &at.hash); err != nil || string(at.text()) != string(text[:n]) || strings.Trim(at.hash, "0123456789abcdef") != "" {
		return position{}, &damaged{h.file.Name(), fmt.Sprintf("%.40q is not one number and one hash", text[:n])}
	}
	return at, nil
}

func (h *head) write(at position) error {
	_, err := h.file.WriteAt(at.text(), 0)
	if err == nil {
		err = h.file.Sync()
	}
	return err
}

func (h *head) close() { h.file.Close() }
