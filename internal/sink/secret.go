package sink

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/salt"
)

// maxSecret limits how many bytes are read from a password file.
const maxSecret = 64 << 10

// readSecret reads the single line of a file. The file must be readable only by its owner, and the
// owner must be root or the user of this process. It is read at each connect, so that a password
// can change.
func readSecret(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	f, err := os.OpenFile(path, os.O_RDONLY|posix.NoWaiting, 0) // do not wait if it is a pipe
	if err != nil {
		return "", fmt.Errorf("read a secret: %w", err)
	}
	defer f.Close()
	if err := checkSecret(f); err != nil {
		return "", fmt.Errorf("read a secret: %s: %w", path, err)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSecret))
	if err != nil {
		return "", fmt.Errorf("read a secret: %w", err)
	}
	text := strings.TrimRight(string(b), "\r\n")
	if text == "" || strings.ContainsAny(text, "\r\n\x00") {
		return "", fmt.Errorf("read a secret: %s: one line is wanted in it", path)
	}
	return text, nil
}

func checkSecret(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("it is not a regular file")
	}
	owner, mode, err := posix.Owner(f.Name(), info)
	if err != nil {
		return err
	}
	if mode = mode.Perm(); mode&0o077 != 0 {
		return salt.WithHint(fmt.Errorf("others may use it: its mode is %04o", mode), "chmod 600 "+f.Name())
	}
	if owner != 0 && owner != os.Geteuid() {
		return salt.WithHint(fmt.Errorf("it belongs to the user %d", owner), "give it to root or to the user that the sink runs as")
	}
	return nil
}
