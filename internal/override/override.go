// Package override stores the changes that functions have made to a setting, over restarts: the
// jobs of a minion's schedule, its beacons. They are in a file beside the drop-ins of the
// configuration with only the differences, so that an edit of the configuration applies except
// for the entries that functions have changed.
//
// The caller knows what an entry means.
package override

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/schedule"
	"github.com/brinebus/brine/internal/value"
)

// File is the file with the changes of one setting.
type File struct {
	Key  string // of the setting
	Path string // "" if the configuration has no directory of drop-ins
	Head string // the comment at the start of the file: lines with "# "
}

// New is the file of that name in the drop-in directory of a minion's configuration.
func New(cfg *config.Minion, key, name, head string) File {
	f := File{Key: key, Head: head}
	if in := cfg.DefaultInclude; in != "" {
		f.Path = filepath.Join(cfg.ConfigDir, filepath.Dir(in), name)
	}
	return f
}

// Setting is a setting that is a dictionary: as configured, and with the changes made by
// functions. It is not safe for concurrent use.
type Setting struct {
	file       File
	configured map[string]any
	at         map[string]string // file:line of each configured entry
	kept       map[string]any    // content of the file: nil for deleted entries
}

// Read reads the file, which need not exist, and the configured setting.
func (f File) Read(l config.Located) (*Setting, error) {
	configured, err := dictionary(l, l.Value(), f.Key)
	if err != nil {
		return nil, err
	}
	kept, err := f.changes()
	if err != nil {
		return nil, err
	}
	return &Setting{file: f, configured: configured, at: places(l), kept: kept}, nil
}

// changes reads the file; a missing one has no changes.
func (f File) changes() (map[string]any, error) {
	if f.Path == "" {
		return nil, nil
	}
	rules, err := config.ReadRules(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	file, _ := rules.Value().(map[string]any)
	return dictionary(rules, file[f.Key], f.Key)
}

func dictionary(l config.Located, v any, key string) (map[string]any, error) {
	d, ok := v.(map[string]any)
	if v != nil && !ok {
		return nil, l.At(nil, fmt.Errorf("%s is not a dictionary", key))
	}
	return d, nil
}

// places returns the position of each entry in the configuration.
func places(l config.Located) map[string]string {
	at := map[string]string{}
	if !l.Present() {
		return at
	}
	for i := 0; i+1 < len(l.Node.Content); i += 2 {
		at[l.Node.Content[i].Value] = l.Where(l.Node.Content[i])
	}
	return at
}

// Entries returns those in force after a start: the configured ones with the changes.
func (s *Setting) Entries() map[string]any { return schedule.Changed(s.configured, s.kept) }

// After returns the entries in force once a setting was read again: they are those of s, with the changes of
// now, the entries in force before, that were not stored. An entry that was edited since is in force as it was
// edited. was is the setting as it was read before; nil for none.
func (s *Setting) After(was *Setting, now map[string]any) map[string]any {
	entries := s.Entries()
	if was == nil {
		return entries
	}
	stored := was.Entries()
	same := func(name string) bool {
		then, had := stored[name]
		read, has := entries[name]
		return had == has && reflect.DeepEqual(then, read)
	}
	for name, v := range now {
		if same(name) {
			entries[name] = v
		}
	}
	for name := range stored {
		if _, ok := now[name]; !ok && same(name) {
			delete(entries, name)
		}
	}
	return entries
}

// Origins returns where each entry of now, those in force, comes from, and which configured
// ones are not in force.
func (s *Setting) Origins(now map[string]any) map[string]schedule.Origin {
	origins := map[string]schedule.Origin{}
	for name, v := range now {
		o := schedule.Origin{Place: s.file.Path}
		switch then, configured := s.configured[name]; {
		case configured && reflect.DeepEqual(v, then):
			o.Place = s.at[name]
		case configured:
			o.Configured.V, o.ConfiguredAt = then, s.at[name]
		}
		if k, ok := s.kept[name]; o.Place == s.file.Path && (!ok || !reflect.DeepEqual(k, v)) {
			o.Place = "" // until the next start
		}
		origins[name] = o
	}
	for name, then := range s.configured {
		if _, ok := now[name]; !ok {
			origins[name] = schedule.Origin{Deleted: true, Place: s.file.Path, Configured: value.Value{V: then}, ConfiguredAt: s.at[name]}
		}
	}
	return origins
}

// TellShadowed calls tell for each configured entry that is not in force as configured, so that
// nobody edits it without effect.
func (s *Setting) TellShadowed(tell func(name, configuredAt, changes string)) {
	for name, o := range s.Origins(s.Entries()) {
		if o.Configured.V != nil {
			tell(name, o.ConfiguredAt, s.file.Path)
		}
	}
}

// Keep stores the differences between now, the entries in force, and the configuration.
func (s *Setting) Keep(now map[string]any) error {
	if s.file.Path == "" {
		return errors.New("default_include is empty: there is no folder for what functions change")
	}
	changes := schedule.Changes(s.configured, now)
	text, err := config.DropIn(s.file.Key, changes)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(s.file.Path), 0o755); err != nil {
		return err
	}
	if err := atomicfile.Write(s.file.Path, []byte(s.file.Head+text), 0o600); err != nil {
		return err
	}
	s.kept = changes
	return nil
}

// Forget removes the file: after that Entries are those of the configuration.
func (s *Setting) Forget() error {
	if s.file.Path != "" {
		if err := os.Remove(s.file.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	s.kept = nil
	return nil
}
