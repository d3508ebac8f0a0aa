package grain

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/internal/yamlfile"
)

// maxFile limits the grains file: it is written by hand, and every byte of it goes to the master
// with each report of the grains.
const maxFile = 1 << 20

// file reads the static grains. An error names the file and the line; then there are no grains from
// the file.
func (m *machine) file() (map[string]any, error) {
	if m.GrainsFile == "" {
		return nil, nil
	}
	info, err := os.Stat(m.GrainsFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: it is not a regular file", m.GrainsFile)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s: it has %d bytes, the limit is %d", m.GrainsFile, info.Size(), maxFile)
	}
	b, err := os.ReadFile(m.GrainsFile)
	if err != nil {
		return nil, err
	}
	return parseFile(m.GrainsFile, b)
}

// parseFile parses a YAML mapping into the types of package value.
func parseFile(name string, text []byte) (map[string]any, error) {
	root, err := yamlfile.Parse(name, text)
	if err != nil || root == nil {
		return nil, err // empty, or only comments
	}
	if root.Kind != yaml.MappingNode {
		return nil, &yamlfile.Error{File: name, Line: root.Line, Column: root.Column, Err: errors.New("grains are a mapping of names to values")}
	}
	grains := yamlfile.Value(root).(map[string]any)
	if _, err := value.Encode(grains); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return grains, nil
}
