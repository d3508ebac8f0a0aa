package audit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"brine/internal/salt"
)

// head is the file that remembers the end of the chain. It lies elsewhere than
// the chain: who cuts that off does not reach it by the same slip.
//
// It is written, and synced, after the entry is on the disk, so after a crash or the loss
// of power it may be behind the chain, never before it.
type head struct{ file *os.File }

// headForm is the whole of it: always as long, so that it is overwritten at once.
const headForm = "%020d %64s\n"

func openHead(path string) (*head, place, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, place{}, fmt.Errorf("head of the audit trail: %w", err)
	}
	h := &head{f}
	at, err := h.read()
	if err != nil {
		f.Close()
		return nil, place{}, err
	}
	return h, at, nil
}

// read returns origin for an empty file.
func (h *head) read() (place, error) {
	text := make([]byte, 128)
	n, err := h.file.ReadAt(text, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return place{}, fmt.Errorf("head of the audit trail: %w", err)
	}
	if n == 0 {
		return origin, nil
	}
	var at place
	if _, err := fmt.Sscanf(string(text[:n]), "%d %64s\n", &at.n, &at.hash); err != nil || len(at.hash) != len(origin.hash) {
		err := fmt.Errorf("head of the audit trail %s: it is not one number and one hash", h.file.Name())
		return place{}, salt.WithHint(err, "move it away and keep it as evidence; the next start notes in the trail that it was missing, and 'salt-run audit.verify head=NUMBER:HASH' compares the trail with a head that was kept elsewhere")
	}
	return at, nil
}

func (h *head) write(at place) error {
	_, err := h.file.WriteAt(fmt.Appendf(nil, headForm, at.n, at.hash), 0)
	if err == nil {
		err = h.file.Sync()
	}
	return err
}

func (h *head) close() { h.file.Close() }
