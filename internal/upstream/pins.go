package upstream

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/pki"
)

// pins are the keys of masters that this minion trusts, by the files that contain them. They
// belong to the minion, not to its configuration: whichever masters are configured, and in
// whatever order, no pinned key is forgotten.
type pins struct {
	own     string                   // the file for the master at this address
	keys    map[string]pki.PublicKey // pinned keys, by file
	damaged []string                 // unreadable other files
}

// The file for the key of the only master, and those for masters of a list.
const (
	plainPin   = "minion_master.pub"
	pinPattern = "minion_master.*.pub"
)

// loadPins reads the pinned keys in the directory of own. It is an error if own exists and
// cannot be used.
func loadPins(own string) (pins, error) {
	dir := filepath.Dir(own)
	files, err := pinFiles(dir)
	if err != nil {
		return pins{}, err
	}
	p := pins{own: own, keys: map[string]pki.PublicKey{}}
	for _, file := range slices.Concat(files, []string{filepath.Join(dir, plainPin), own}) {
		key, err := pki.LoadPublic(file)
		switch {
		case err == nil:
			p.keys[file] = key
		case errors.Is(err, fs.ErrNotExist):
		case file == own:
			return pins{}, err
		default:
			p.damaged = append(p.damaged, file)
		}
	}
	return p, nil
}

// isPlain reports whether a file is the one without an address in its name.
func isPlain(file string) bool { return filepath.Base(file) == plainPin }

// pinFiles returns the files of the masters of a list. A directory that cannot be read, or with
// a bracket in its name, does not count as one without pins.
func pinFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if ok, _ := filepath.Match(pinPattern, e.Name()); ok {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files, nil
}

// here returns the key pinned for exactly this address, zero for none.
func (p pins) here() pki.PublicKey {
	if isPlain(p.own) {
		return pki.PublicKey{}
	}
	return p.keys[p.own]
}

// isNew reports whether the address belongs to a master of a list and has no pinned key.
func (p pins) isNew() bool { return !isPlain(p.own) && p.here().IsZero() }

// empty reports whether nothing was ever pinned: then the next contact is the first.
func (p pins) empty() bool { return len(p.keys) == 0 && len(p.damaged) == 0 }

// has reports whether key is pinned for any master of this minion.
func (p pins) has(key pki.PublicKey) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(p.keys)), key.Equal)
}

// homeless reports whether a pinned key has no known address among several, since there was
// only one master when it was pinned. Until that master was met again, another key may have
// been put in its place.
func (p pins) homeless() bool {
	if len(p.damaged) > 0 {
		return true
	}
	plain := p.keys[filepath.Join(filepath.Dir(p.own), plainPin)]
	for file, key := range p.keys {
		if !isPlain(file) && key.Equal(plain) {
			return false
		}
	}
	return !plain.IsZero()
}

// files returns the files of the keys, sorted.
func (p pins) files() []string { return slices.Sorted(maps.Keys(p.keys)) }

// String names the pinned keys for people.
func (p pins) String() string {
	var words []string
	for _, file := range p.files() {
		words = append(words, fmt.Sprintf("%s has %s", file, p.keys[file].SHA256()))
	}
	for _, file := range p.damaged {
		words = append(words, file+" cannot be read")
	}
	return strings.Join(words, ", ")
}
