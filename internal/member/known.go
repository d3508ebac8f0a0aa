package member

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/brinebus/brine/internal/atomicfile"
)

// KnownFile is the file with the keys of the members that were linked. It is beside the store: a member
// whose store is lost meets them anew.
func KnownFile(cacheDir string) string { return filepath.Join(cacheDir, "cluster_members") }

// maxKnown limits the bytes of such a file, which has some hundred for each member.
const maxKnown = 1 << 16

// ReadKnown reads the fingerprints of members by their names. Without the file there are none.
func ReadKnown(path string) (map[string]string, error) {
	list, err := readList[string](path)
	if err != nil {
		return nil, err
	}
	for name, finger := range list {
		if err := CheckFingerprint(finger); err != nil {
			return nil, fmt.Errorf("%s: member %.80q: %w", path, name, err)
		}
	}
	return list, nil
}

// WriteKnown writes what ReadKnown reads.
func WriteKnown(path string, list map[string]string) error { return writeList(path, list) }

// LeftFile is the file with the members that have left the cluster in good order. It is beside KnownFile.
func LeftFile(cacheDir string) string { return filepath.Join(cacheDir, "cluster_left") }

// ReadLeft reads when members have left, by their names. Without the file none has.
func ReadLeft(path string) (map[string]time.Time, error) { return readList[time.Time](path) }

// WriteLeft writes what ReadLeft reads.
func WriteLeft(path string, list map[string]time.Time) error { return writeList(path, list) }

// readList reads a file with something of each member, by its name. Without the file the list is empty.
func readList[T any](path string) (map[string]T, error) {
	list := map[string]T{}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := json.NewDecoder(io.LimitReader(file, maxKnown)).Decode(&list); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return list, nil
}

func writeList[T any](path string, list map[string]T) error {
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(text, '\n'), 0o600)
}
