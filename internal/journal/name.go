package journal

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/bus"
)

// maxHost is how much of the host's name becomes a part of a journal's name.
const maxHost = 32

// Name returns the name of the journal in dir, and gives it one if it has none: the host's name
// and a random part. The name is stored in the directory: a new directory is a journal with
// another name, for which old positions are not valid.
func Name(dir string) (string, error) {
	text, err := os.ReadFile(nameFile(dir))
	if err == nil {
		name := strings.TrimSpace(string(text))
		return name, bus.CheckJournalName(name)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	host, _ := os.Hostname() // without one the name is the random part only
	name := newName(host)
	return name, atomicfile.Write(nameFile(dir), []byte(name+"\n"), 0o600)
}

// nameFile is the file with the name of the journal in dir.
func nameFile(dir string) string { return filepath.Join(dir, "id") }

func newName(host string) string {
	host, _, _ = strings.Cut(host, ".")
	word := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return -1
	}, host)
	word = strings.Trim(word[:min(len(word), maxHost)], "-")
	if word == "" {
		word = "master"
	}
	var b [4]byte
	_, _ = rand.Read(b[:]) // it never fails
	return word + "-" + hex.EncodeToString(b[:])
}
