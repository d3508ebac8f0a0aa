package module

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/yamlfile"
)

// updateGrainsFile sets top-level values in a YAML file and keeps its comments and order. With
// remove, nil values are removed. The file is replaced atomically; a lock on its directory prevents
// lost updates by concurrent jobs.
func updateGrainsFile(path string, values map[string]any, remove bool) error {
	unlock, err := lockDir(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("lock grains file: %w", err)
	}
	defer unlock()
	doc, mode, err := readGrainsFile(path)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if values[key] == nil && remove {
			deleteKey(doc.Content[0], key)
		} else if err := setKey(doc.Content[0], key, values[key]); err != nil {
			return fmt.Errorf("set grain %q: %w", key, err)
		}
	}
	text, err := yaml.Marshal(doc)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, text, mode)
}

// lockDir takes an exclusive lock on a directory, which needs no lock file.
func lockDir(dir string) (unlock func(), err error) {
	f, err := posix.OpenLock(dir)
	if err != nil {
		return nil, err
	}
	if err := posix.Lock(f, posix.Exclusive); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil // closing unlocks
}

// readGrainsFile returns the document, whose content is one mapping, and the mode of the file. A
// missing file gives an empty document with a mode that only the minion's user can read: grains can
// contain generated passwords.
func readGrainsFile(path string) (*yaml.Node, fs.FileMode, error) {
	empty := &yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{{Kind: yaml.MappingNode}}}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return empty, 0o600, nil
	}
	if err != nil {
		return nil, 0, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, 0, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, 0, fmt.Errorf("grains file %s: %w", path, err)
	}
	if doc.Kind == 0 {
		return empty, info.Mode().Perm(), nil
	}
	if doc.Content[0].Kind != yaml.MappingNode {
		return nil, 0, fmt.Errorf("grains file %s is not a dictionary", path)
	}
	return &doc, info.Mode().Perm(), nil
}

func indexOfKey(mapping *yaml.Node, key string) int {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return i
		}
	}
	return -1
}

func deleteKey(mapping *yaml.Node, key string) {
	if i := indexOfKey(mapping, key); i >= 0 {
		mapping.Content = slices.Delete(mapping.Content, i, i+2)
	}
}

func setKey(mapping *yaml.Node, key string, v any) error {
	added, err := yamlfile.Node(map[string]any{key: v})
	if err != nil {
		return err
	}
	if i := indexOfKey(mapping, key); i >= 0 {
		mapping.Content[i+1] = added.Content[1]
		return nil
	}
	mapping.Content = append(mapping.Content, added.Content...)
	return nil
}
