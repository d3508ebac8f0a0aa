package sink

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/brinebus/brine/internal/salt"
)

// maxSecret bounds what is read of a file that should hold a password.
const maxSecret = 64 << 10

// readSecret reads the one line of a file that only its owner may read, the
// owner being root or the user of this process. It is read anew at each connect,
// so that a password can change.
func readSecret(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe must not make it wait
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
		return errors.New("it is no regular file")
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return salt.WithHint(fmt.Errorf("others may use it: its mode is %04o", mode), "chmod 600 "+f.Name())
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return salt.WithHint(fmt.Errorf("it belongs to the user %d", st.Uid), "give it to root or to the user that the sink runs as")
	}
	return nil
}
