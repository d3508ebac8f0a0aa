package member

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// Fingerprints is a set of keys, by the text of pki.PublicKey.SHA256.
type Fingerprints map[string]bool

// Has reports whether the key is in the set.
func (f Fingerprints) Has(key pki.PublicKey) bool { return !key.IsZero() && f[key.SHA256()] }

// maxRemoved limits the bytes of a list: some ten thousand keys; maxComment the characters of a
// comment, which may come from another member.
const (
	maxRemoved = 1 << 20
	maxComment = 200
)

var wholeFingerprint = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([0-9a-f]{2}:){31}[0-9a-f]{2}$`) })

// CheckFingerprint checks that a text is the fingerprint of a key, as pki.PublicKey.SHA256 writes
// it.
func CheckFingerprint(finger string) error {
	if !wholeFingerprint().MatchString(finger) {
		return fmt.Errorf("%.100q is not a fingerprint", finger)
	}
	return nil
}

// RemovedFile is the file with the keys of removed members.
func RemovedFile(pkiDir string) string { return filepath.Join(pkiDir, "cluster_removed") }

// ReadRemoved reads a list of removed keys: one fingerprint a line (SHA-256, as 'salt-key -F
// master' shows it); the rest of a line is a comment. Empty lines and lines that begin with #
// are ignored. Without the file nobody was removed. A line with an invalid fingerprint is an
// error, since some key was meant.
func ReadRemoved(path string) (Fingerprints, error) {
	text, err := readRemoved(path)
	if err != nil || text == nil {
		return nil, err
	}
	return parseRemoved(path, text)
}

// AddRemoved adds a key to such a list, with a comment. The list is written whole or not at all: with a
// line that is cut short every key would be refused.
func AddRemoved(path, finger, comment string) error {
	if err := CheckFingerprint(finger); err != nil {
		return err
	}
	text, err := readRemoved(path)
	if err != nil {
		return err
	}
	list, err := parseRemoved(path, text)
	if err != nil || list[finger] {
		return err
	}
	if len(text) > 0 && !bytes.HasSuffix(text, []byte("\n")) {
		text = append(text, '\n')
	}
	words := strings.Join(strings.Fields(comment), " ")
	text = fmt.Appendf(text, "%s %.*s\n", finger, maxComment, words)
	if len(text) > maxRemoved {
		return salt.WithHint(fmt.Errorf("%s: it would have more than %d bytes", path, maxRemoved), "remove lines of keys that no longer exist")
	}
	return atomicfile.Write(path, text, 0o600)
}

// readRemoved returns the text of a list, nil without the file.
func readRemoved(path string) ([]byte, error) {
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
	return text, nil
}

func parseRemoved(path string, text []byte) (Fingerprints, error) {
	found := Fingerprints{}
	for n, line := range bytes.Split(text, []byte("\n")) {
		words := strings.Fields(string(line))
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		finger := strings.ToLower(words[0])
		if !wholeFingerprint().MatchString(finger) {
			return nil, fmt.Errorf("%s:%d: %.100q is not a fingerprint", path, n+1, words[0])
		}
		found[finger] = true
	}
	return found, nil
}
