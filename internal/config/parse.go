package config

import (
	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/yamlfile"
)

// parse reads one configuration file from its text. The settings come in the order of the file,
// without aliases, merge keys and duplicates. An empty text has no settings.
func parse(file string, text []byte) ([]entry, error) {
	root, err := yamlfile.Parse(file, text)
	if err != nil || root == nil {
		return nil, err
	}
	if root.Kind != yaml.MappingNode {
		err := yamlfile.WrongKind(root, "a map of settings")
		return nil, &Error{File: file, Line: root.Line, Column: root.Column, Err: salt.WithHint(err, "a configuration is lines of the form key: value, with a blank after the colon")}
	}
	entries := make([]entry, 0, len(root.Content)/2)
	for i := 0; i+1 < len(root.Content); i += 2 {
		entries = append(entries, entry{key: root.Content[i], value: root.Content[i+1], file: file})
	}
	return entries, nil
}
