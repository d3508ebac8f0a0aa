package member

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"github.com/brinebus/brine/internal/pki"
)

// Fingerprints are keys, each by the text of pki.PublicKey.SHA256.
type Fingerprints map[string]bool

// Has says whether the key is among them.
func (f Fingerprints) Has(key pki.PublicKey) bool { return !key.IsZero() && f[key.SHA256()] }

// maxRemoved bounds what is read of a list: some ten thousand keys.
const maxRemoved = 1 << 20

var wholeFingerprint = regexp.MustCompile(`^([0-9a-f]{2}:){31}[0-9a-f]{2}$`)

// ReadRemoved reads a list of keys that are members no more: a fingerprint (SHA-256, as
// 'salt-key -F master' shows it) in a line, and what follows it there is for people. Empty
// lines and those that begin with # are left out. Without the file nobody was removed; with
// a line that is no fingerprint the list is an error, since somebody was meant by it.
func ReadRemoved(path string) (Fingerprints, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxRemoved+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(text) > maxRemoved {
		return nil, fmt.Errorf("%s: it has more than %d bytes", path, maxRemoved)
	}
	found := Fingerprints{}
	for n, line := range bytes.Split(text, []byte("\n")) {
		words := strings.Fields(string(line))
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		finger := strings.ToLower(words[0])
		if !wholeFingerprint.MatchString(finger) {
			return nil, fmt.Errorf("%s:%d: %.100q is no fingerprint", path, n+1, words[0])
		}
		found[finger] = true
	}
	return found, nil
}
