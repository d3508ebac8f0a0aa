package member

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
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

// Removal is a removed key.
type Removal struct {
	Fingerprint string `json:"fingerprint"`
	Name        string `json:"name"` // of the member that had it, "" if it is not known
}

// Removals is a list of removed keys.
type Removals struct {
	List []Removal // in the order of the lines, so that the newest is the last one
	// Back are the keys of lines that are commented out and of no other ones: somebody has
	// accepted these again.
	Back Fingerprints
}

// Fingerprints returns the removed keys.
func (r Removals) Fingerprints() Fingerprints {
	found := Fingerprints{}
	for _, one := range r.List {
		found[one.Fingerprint] = true
	}
	return found
}

// memberMark begins the word of a line that is the name of the member.
const memberMark = "member="

// ReadRemovals reads a list of removed keys: one fingerprint a line (SHA-256, as 'salt-key -F
// master' shows it). A word of the form member=NAME says whose key it was; the rest of a line is a
// comment. Empty lines and lines that begin with # are ignored, but for Back. Without the file nobody
// was removed. A line with an invalid fingerprint is an error, since some key was meant.
func ReadRemovals(path string) (Removals, error) {
	text, err := readRemoved(path)
	if err != nil {
		return Removals{}, err
	}
	return parseRemoved(path, text)
}

// ReadRemoved is ReadRemovals for who needs the keys only.
func ReadRemoved(path string) (Fingerprints, error) {
	list, err := ReadRemovals(path)
	if err != nil || len(list.List) == 0 {
		return nil, err
	}
	return list.Fingerprints(), nil
}

// AddRemoved adds a key to such a list, with a comment. The list is written whole or not at all: with a
// line that is cut short every key would be refused.
func AddRemoved(path string, r Removal, comment string) error {
	if err := CheckFingerprint(r.Fingerprint); err != nil {
		return err
	}
	text, err := readRemoved(path)
	if err != nil {
		return err
	}
	list, err := parseRemoved(path, text)
	if err != nil || list.Fingerprints()[r.Fingerprint] {
		return err
	}
	if len(text) > 0 && !bytes.HasSuffix(text, []byte("\n")) {
		text = append(text, '\n')
	}
	if r.Name != "" {
		comment = memberMark + r.Name + " " + comment
	}
	words := strings.Join(strings.Fields(comment), " ")
	text = fmt.Appendf(text, "%s %.*s\n", r.Fingerprint, maxComment, words)
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

func parseRemoved(path string, text []byte) (Removals, error) {
	var found Removals
	seen, back := Fingerprints{}, Fingerprints{}
	for n, line := range bytes.Split(text, []byte("\n")) {
		line, out := bytes.CutPrefix(bytes.TrimSpace(line), []byte("#"))
		words := strings.Fields(string(line))
		if len(words) == 0 {
			continue
		}
		finger := strings.ToLower(words[0])
		valid := wholeFingerprint().MatchString(finger)
		switch {
		case out && valid:
			back[finger] = true
		case out:
		case !valid:
			return Removals{}, fmt.Errorf("%s:%d: %.100q is not a fingerprint", path, n+1, words[0])
		case !seen[finger]:
			seen[finger] = true
			found.List = append(found.List, Removal{finger, nameIn(words[1:])})
		}
	}
	maps.DeleteFunc(back, func(finger string, _ bool) bool { return seen[finger] })
	found.Back = back
	return found, nil
}

// nameIn returns the name of the member in the words after a fingerprint.
func nameIn(words []string) string {
	for _, word := range words {
		if name, ok := strings.CutPrefix(word, memberMark); ok {
			return name
		}
	}
	return ""
}
