package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/yamlfile"
)

// maxFiles limits the drop-ins of one configuration, so that an include of the wrong directory
// ends with an error and does not fill the memory.
const maxFiles = 10_000

// loader fills the settings of one daemon from its files. It is used once.
type loader struct {
	opts   Options
	daemon string // master or minion: the name of the main file
	common *Common

	origin  map[*yaml.Node]string
	doc     *document // all settings
	others  []string  // see otherKeys
	notices []Notice
	errs    []error // mistakes; all are reported together
}

// load reads everything and fills the settings; the caller handles paths and relations between
// settings. Settings without a mistake are filled even if others have one, so that later checks
// find further mistakes.
func (l *loader) load() error {
	l.origin = map[*yaml.Node]string{}
	c := l.common
	if err := l.findDir(); err != nil {
		return err
	}
	c.ConfigFile = filepath.Join(c.ConfigDir, l.daemon)
	doc := l.files()
	l.override(doc)
	l.doc = doc
	c.Raw = doc.plain()
	c.places = doc.places()
	l.apply(doc)
	return nil
}

// wrong records a mistake.
func (l *loader) wrong(err error) { l.errs = append(l.errs, err) }

// placed adds its position to a mistake of a setting that was found without it.
func (l *loader) placed(err error) error {
	var e *Error
	if !errors.As(err, &e) || e.Line > 0 {
		return err
	}
	set, ok := l.doc.get(e.Key)
	if !ok {
		return err
	}
	return l.doc.located(set).At(nil, e.Err)
}

// newDocument returns a document that treats rules in two places as a mistake, if a daemon
// reads it. The tools need none of these rules.
func (l *loader) newDocument() *document {
	if l.opts.Strict {
		return newDocument(l.origin, l.wrong)
	}
	return newDocument(l.origin, nil)
}

// findDir finds the configuration directory.
func (l *loader) findDir() error {
	named := l.opts.ConfigDir
	dir, err := filepath.Abs(named)
	if err != nil {
		return fmt.Errorf("find the configuration directory %q: %w", named, err)
	}
	if named == "" {
		dir = DefaultDir
	}
	l.common.ConfigDir = dir
	switch info, err := os.Stat(dir); {
	case err == nil && !info.IsDir():
		return salt.WithHint(&Error{File: dir, Err: fmt.Errorf("it is %s, not a directory", describe(info.Mode()))},
			"name the directory that holds the file "+l.daemon)
	case errors.Is(err, fs.ErrNotExist) && named == "":
		l.notice(dir, nil, "there is no configuration directory: the defaults apply")
	case errors.Is(err, fs.ErrNotExist):
		return salt.WithHint(&Error{File: dir, Err: fmt.Errorf("read configuration: %w", fs.ErrNotExist)},
			"create the directory and the file "+l.daemon+" in it, or correct the name")
	case err != nil:
		return fileError(dir, err)
	case l.opts.CheckOwner:
		return checkDir(dir)
	}
	return nil
}

// files reads the main file and its drop-ins.
func (l *loader) files() *document {
	doc := l.newDocument()
	main, err := l.file(l.common.ConfigFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat(l.common.ConfigDir); err == nil {
			l.notice(l.common.ConfigFile, nil, "there is no such file: the defaults apply")
		}
	case err != nil:
		l.wrong(err)
	}
	doc.replace(main)
	usual := l.common.DefaultInclude
	if e, ok := doc.get("default_include"); ok && !yamlfile.IsNull(e.value) {
		if usual, err = parseText(e.value); err != nil {
			usual = "" // which apply reports
		}
	}
	own, named := l.includes(doc)
	doc.replace(l.include(entry{file: l.common.ConfigFile}, []string{usual}, nil))
	doc.replace(l.include(own, named, nil))
	return doc
}

// file reads and parses one file. Its settings have their present names.
func (l *loader) file(path string) ([]entry, error) {
	text, err := readFile(path, l.opts.CheckOwner)
	if err != nil {
		if l.opts.AllowUnreadable && errors.Is(err, fs.ErrPermission) {
			l.notice(path, nil, "you may not read this file: the defaults apply")
			return nil, nil
		}
		return nil, err
	}
	l.common.Files = append(l.common.Files, path)
	if len(l.common.Files) > maxFiles {
		return nil, &Error{File: path, Err: fmt.Errorf("a configuration may have %d files at most, and this is one more", maxFiles)}
	}
	entries, err := parse(path, text)
	return l.rename(entries), err
}

// includes returns the patterns of the include setting of a file.
func (l *loader) includes(doc *document) (entry, []string) {
	e, ok := doc.get("include")
	if !ok || yamlfile.IsNull(e.value) {
		return e, nil
	}
	patterns, err := parseList(e.value)
	if err != nil {
		l.wrong(doc.located(e).At(nil, err))
	}
	return e, patterns
}

// include reads the files that patterns name and merges them. by is the setting with the
// patterns, without a key for the default. above are the files being read, to detect a cycle.
func (l *loader) include(by entry, patterns, above []string) []entry {
	merged := l.newDocument()
	for _, pattern := range patterns {
		paths, err := l.glob(by, pattern)
		if err != nil {
			l.wrong(err)
		}
		for _, path := range paths {
			entries, err := l.dropIn(by, path, above)
			if err != nil {
				l.wrong(err)
			}
			merged.merge(entries)
		}
	}
	return merged.entries
}

// dropIn reads one file of an include, and its own includes.
func (l *loader) dropIn(by entry, path string, above []string) ([]entry, error) {
	if slices.Contains(above, path) || path == l.common.ConfigFile {
		return nil, &Error{File: by.file, Line: line(by.value), Key: "include", Err: fmt.Errorf("%s includes itself", path)}
	}
	if l.opts.CheckOwner {
		if err := checkDir(filepath.Dir(path)); err != nil {
			return nil, err
		}
	}
	entries, err := l.file(path)
	if err != nil {
		return nil, err
	}
	doc := l.newDocument()
	doc.replace(entries)
	own, patterns := l.includes(doc)
	if patterns != nil {
		doc.replace(l.include(own, patterns, append(slices.Clone(above), path)))
	}
	return doc.entries, nil
}

// ScheduleChanges is the file, in the drop-in directory, that keeps what functions have changed
// in a minion's schedule. It is not a drop-in, which would silently replace the schedule of the
// other files: the scheduler reads it and reports what it changes. The name is Salt's.
const ScheduleChanges = "_schedule.conf"

// BeaconChanges is the same for a minion's beacons.
const BeaconChanges = "_beacons.conf"

// DropIn writes the value of a setting as a file of the configuration.
func DropIn(key string, v any) (string, error) {
	return yamlfile.Format(map[string]any{key: v})
}

// glob returns the files that a pattern names, sorted by name. Hidden files count only if the
// pattern itself begins with a dot: editors leave hidden files behind. An empty pattern names
// nothing.
func (l *loader) glob(by entry, pattern string) ([]string, error) {
	if pattern == "" {
		return nil, nil
	}
	if home, ok := strings.CutPrefix(pattern, "~/"); ok {
		pattern = filepath.Join(os.Getenv("HOME"), home)
	}
	if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(filepath.Dir(by.file), pattern)
	}
	dirs, base := []string{filepath.Dir(pattern)}, filepath.Base(pattern)
	_, err := filepath.Match(base, "")
	if err == nil && strings.ContainsAny(dirs[0], `*?[\`) {
		dirs, err = filepath.Glob(dirs[0])
	}
	if err != nil {
		return nil, &Error{File: by.file, Line: line(by.value), Key: "include", Err: fmt.Errorf("%q: %w", pattern, err)}
	}
	var paths []string
	for _, dir := range dirs {
		found, err := l.matches(dir, base)
		if err != nil {
			return nil, err
		}
		paths = append(paths, found...)
	}
	switch {
	case len(paths) > 0 || by.key == nil:
	case l.opts.Strict && !strings.ContainsAny(pattern, `*?[\`):
		err := fmt.Errorf("%s is not there, and what it refuses would be allowed", pattern)
		return nil, &Error{File: by.file, Line: by.key.Line, Column: by.key.Column, Key: by.key.Value, Err: salt.WithHint(err, "a pattern, as *.conf, may match no file")}
	default:
		l.notice(by.file, by.key, fmt.Sprintf("no file matches %q", pattern))
	}
	return paths, nil
}

// matches returns the files of one directory that match base. A missing directory has none. A
// directory that cannot be read, or a dangling link, is an error, since leaving out its files
// would silently change what is allowed.
func (l *loader) matches(dir, base string) ([]string, error) {
	names, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !isLink(dir):
		return nil, nil
	case l.opts.AllowUnreadable && errors.Is(err, fs.ErrPermission):
		l.notice(dir, nil, "you may not read this directory: the defaults apply")
		return nil, nil
	case err != nil:
		return nil, fileError(dir, err)
	}
	var paths []string
	for _, entry := range names {
		name := entry.Name()
		if ok, _ := filepath.Match(base, name); ok && (name[0] != '.' || base[0] == '.') && name != ScheduleChanges && name != BeaconChanges {
			paths = append(paths, filepath.Join(dir, name))
		}
	}
	return paths, nil
}

// isLink reports whether path is a symbolic link, even a dangling one.
func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// rename gives settings of older Salt versions their present names. If a file has both, the
// present name wins, except for security settings.
func (l *loader) rename(entries []entry) []entry {
	var out []entry
	for _, e := range entries {
		now, ok := renamed(e.key.Value)
		if !ok {
			out = append(out, e)
			continue
		}
		both := slices.ContainsFunc(entries, func(o entry) bool { return o.key.Value == now })
		if both && !(isGuard(now) && l.opts.Strict) {
			l.notice(e.file, e.key, fmt.Sprintf("this is the old name of %s, which is set too: this one is ignored", now))
			continue
		}
		l.notice(e.file, e.key, fmt.Sprintf("this is now called %s", now))
		key := *e.key
		key.Value, e.written = now, e.key.Value
		e.key = &key
		out = append(out, e)
	}
	return out
}

// override puts the options of the command line above the files.
func (l *loader) override(doc *document) {
	entries := make([]entry, 0, len(l.opts.Overrides))
	for key, value := range l.opts.Overrides {
		if !slices.Contains(l.common.Keys(), key) {
			l.wrong(&Error{File: commandLine, Key: key, Err: fmt.Errorf("there is no such setting")})
			continue
		}
		node, err := nodeOf(value)
		if err != nil {
			l.wrong(&Error{File: commandLine, Key: key, Err: err})
			continue
		}
		entries = append(entries, entry{key: &yaml.Node{Kind: yaml.ScalarNode, Value: key}, value: node, file: commandLine})
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.key.Value, b.key.Value) })
	doc.replace(entries)
}

// commandLine takes the place of a file name in the position of a setting.
const commandLine = "command line"

// apply fills the settings that a document has and reports the others.
func (l *loader) apply(doc *document) {
	for _, e := range doc.entries {
		i := slices.IndexFunc(l.common.settings, func(s setting) bool { return s.key == e.key.Value })
		if i < 0 {
			l.unknown(doc, e)
			continue
		}
		kind := l.common.settings[i].kind()
		if yamlfile.IsNull(e.value) {
			if v := kind.get(); v != nil && v != "" {
				l.notice(e.file, e.key, "it has no value: the default applies")
			}
			continue
		}
		if err := kind.set(doc.located(e)); err != nil {
			l.wrong(doc.located(e).At(nil, err))
		}
	}
}

// unknown reports a key that is not a setting. A key with a dot belongs to a returner or
// another backend, which reads it itself.
func (l *loader) unknown(doc *document, e entry) {
	key := e.key.Value
	near := nearGuard(key, l.common.Keys())
	switch why, ok := ignored(key); {
	case key == "include":
	case slices.Contains(l.otherKeys(), key):
		l.notice(e.file, e.key, "this is a setting of the other daemon: it has no effect on the "+l.daemon)
	case ok:
		l.notice(e.file, e.key, "Salt has this setting, Brine does not: it is ignored"+why)
	case near != "" && l.opts.Strict:
		l.wrong(doc.located(e).At(e.key, errNear(near)))
	case strings.Contains(key, "."):
	default:
		text := "unknown setting: it is kept for config.get"
		if near := suggest(key, l.names()); near != "" {
			text = fmt.Sprintf("unknown setting: did you mean %s?", near)
		}
		l.notice(e.file, e.key, text)
	}
}

// names returns all keys that may have been meant, ours first.
func (l *loader) names() []string {
	return slices.Concat(l.common.Keys(), []string{"include"}, saltKeys)
}

// otherKeys returns the settings of the other daemon.
func (l *loader) otherKeys() []string {
	if l.others == nil {
		other := &NewMaster().Common
		if l.daemon == "master" {
			other = &NewMinion().Common
		}
		l.others = other.Keys()
	}
	return l.others
}

// notice records a notice about a file, or about a key of it.
func (l *loader) notice(file string, key *yaml.Node, text string) {
	n := Notice{File: file, Text: text}
	if key != nil {
		n.Line, n.Column, n.Key = key.Line, key.Column, key.Value
	}
	l.notices = append(l.notices, n)
}

// nodeOf returns a value of the command line as a YAML node.
func nodeOf(value any) (*yaml.Node, error) {
	switch v := value.(type) {
	case string:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: v}, nil
	case []string:
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for _, s := range v {
			list.Content = append(list.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: s, Style: yaml.DoubleQuotedStyle})
		}
		return list, nil
	}
	node := new(yaml.Node)
	if err := node.Encode(value); err != nil {
		return nil, fmt.Errorf("read %v: %w", value, err)
	}
	return node, nil
}

// line returns the line of a node, 0 for none.
func line(n *yaml.Node) int {
	if n == nil {
		return 0
	}
	return n.Line
}
