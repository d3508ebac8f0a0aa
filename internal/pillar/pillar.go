// Package pillar compiles the private data of one minion from the master's pillar_roots: YAML
// files, selected by a top.sls for each environment and merged.
//
// Options defines how templates are rendered. The package neither caches nor sends anything: the
// master decides who gets the data. Values never appear in errors.
package pillar

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
	"github.com/brinebus/brine/internal/yamlfile"
)

// top is the file that assigns pillar files to minions.
const top = "top"

// Limits of what is read: a pillar is configuration, not a file store.
const (
	maxFile     = 16 << 20
	maxIncludes = 1000 // files of one pillar; this also ends a circle of includes
)

// Options has the input of a pillar besides the minion.
type Options struct {
	Roots      map[string][]string // pillar_roots: environment to directories
	Nodegroups map[string]any
	// Render renders a template for the minion with that id and these grains. If it is nil, a
	// template is an error.
	Render func(text string, id salt.MinionID, grains map[string]any) (string, error)
}

// Liner is an error that knows its line in the rendered text.
type Liner interface {
	error
	AtLine() (line int, text string)
}

// Compile returns the pillar of the minion with these facts; facts.Pillar is ignored. Environments
// are processed in the order of their names, base first, and within one the targets and files in
// the order of its top file. Maps are merged key by key, everything else is replaced by later
// values. A missing top file counts as empty; any other problem is an error that names file and
// line, and then there is no pillar at all rather than an incomplete one.
func Compile(facts target.Facts, o Options) (map[string]any, error) {
	c := compiler{facts: target.Facts{ID: facts.ID, Grains: facts.Grains}, o: o, out: map[string]any{}}
	for _, env := range environments(o.Roots) {
		if err := c.top(env); err != nil {
			return nil, err
		}
	}
	return c.out, nil
}

func environments(roots map[string][]string) []string {
	envs := make([]string, 0, len(roots))
	for env := range roots {
		envs = append(envs, env)
	}
	slices.SortFunc(envs, func(a, b string) int {
		if (a == "base") != (b == "base") {
			if a == "base" {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	return envs
}

type compiler struct {
	facts   target.Facts
	o       Options
	out     map[string]any
	files   int
	written map[string][]string // by the paths of templates, the names in them that they include literally
}

// errUnwritten is for an included file that only a value could have inserted: a minion controls its
// grains, and with a line break in one it could choose another minion's pillar.
var errUnwritten = errors.New("a template can include only files that it names literally, below include: at the beginning of a line")

var (
	includes = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?m)^include:.*(?:\n(?:[ \t#-]|\{[%#]).*|\n[ \t]*$)*`)
	})
	inserted = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?s)\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}`) })
	words    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`#.*|[^ \t\r\n,\[\]'"]+`) })
)

// marks stand before and after each name that a template includes literally, not through a value,
// while it is rendered. A name in a part that the template leaves out loses them: what a value inserts
// elsewhere cannot pass for it. No value can contain them, since they are random.
type marks struct{ before, after string }

// newMarks makes marks of digits, which no filter for upper or lower case changes.
func newMarks() marks {
	number := func() string {
		b := make([]byte, 16)
		rand.Read(b) // never fails
		return fmt.Sprintf("%020d%020d", binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]))
	}
	return marks{number(), number()}
}

// put marks the names in the text of a template.
func (m marks) put(text []byte) []byte {
	plain := inserted().ReplaceAllFunc(text, func(b []byte) []byte { return bytes.Repeat([]byte(" "), len(b)) })
	var out []byte
	done := 0
	for _, block := range includes().FindAllIndex(text, -1) {
		begin := block[0] + len("include:")
		for _, word := range words().FindAllIndex(plain[begin:block[1]], -1) {
			from, to := begin+word[0], begin+word[1]
			if plain[from] == '#' {
				continue
			}
			out = slices.Concat(out, text[done:from], []byte(m.before), text[from:to], []byte(m.after))
			done = to
		}
	}
	return append(out, text[done:]...)
}

// take removes the marks from what was rendered, and returns the names between them.
func (m marks) take(rendered []byte) (text []byte, names []string) {
	rest := string(rendered)
	for {
		_, behind, found := strings.Cut(rest, m.before)
		if !found {
			break
		}
		var name string
		if name, rest, found = strings.Cut(behind, m.after); found {
			names = append(names, name)
		}
	}
	return []byte(strings.NewReplacer(m.before, "", m.after, "").Replace(string(rendered))), names
}

// top applies the sections of env in its own top file.
func (c *compiler) top(env string) error {
	path, doc, err := c.find(env, top)
	if doc == nil || err != nil {
		return err
	}
	if doc.Kind != yaml.MappingNode {
		return at(path, doc, errors.New("a top file is a map of environments"))
	}
	for section, targets := range pairs(doc) {
		if section.Value != env {
			continue // an environment is selected only by its own top file
		}
		if targets.Kind != yaml.MappingNode {
			return at(path, targets, errors.New("an environment is a map of targets"))
		}
		for expr, list := range pairs(targets) {
			if err := c.section(env, path, expr, list); err != nil {
				return err
			}
		}
	}
	return nil
}

// section merges the files of one target, if it matches the minion.
func (c *compiler) section(env, path string, expr, list *yaml.Node) error {
	kind, names, err := entries(list)
	if err != nil {
		return shared(path, list, err)
	}
	t, err := target.Parse(expr.Value, kind, target.Options{Nodegroups: c.o.Nodegroups})
	if err != nil {
		return shared(path, expr, err)
	}
	if t.NeedsPillar() {
		return at(path, expr, errors.New("a pillar cannot be chosen by pillar"))
	}
	meant, err := t.Match(c.facts)
	if err != nil {
		return shared(path, expr, err)
	}
	for _, name := range names {
		if !meant {
			break
		}
		if err := c.include(env, name.Value, at(path, name, nil)); err != nil {
			return err
		}
	}
	return nil
}

// entries reads the list below a target: names of files, and "match: KIND" for the target's type;
// the default is a compound expression, which includes globs.
func entries(list *yaml.Node) (target.Kind, []*yaml.Node, error) {
	if list.Kind != yaml.SequenceNode {
		return "", nil, errors.New("a target has a list of files")
	}
	kind := target.Compound
	var names []*yaml.Node
	for _, n := range list.Content {
		switch {
		case n.Kind == yaml.ScalarNode:
			names = append(names, n)
		case n.Kind == yaml.MappingNode && len(n.Content) == 2 && n.Content[0].Value == "match":
			k, err := target.ParseKind(n.Content[1].Value)
			if err != nil {
				return "", nil, err
			}
			kind = k
		default:
			return "", nil, errors.New("an entry of the list is the name of a file, or match: and a kind of target")
		}
	}
	return kind, names, nil
}

// include merges one file by its dotted name, after the files that it includes.
func (c *compiler) include(env, name string, from *Error) error {
	if c.files++; c.files > maxIncludes {
		return from.with(fmt.Errorf("more than %d files in one pillar: do they include each other in a circle?", maxIncludes))
	}
	path, doc, err := c.find(env, name)
	if err != nil {
		return err
	}
	if path == "" {
		return from.with(fmt.Errorf("there is no file for %q in the pillar_roots of %s", name, env))
	}
	if doc == nil {
		return nil
	}
	if doc.Kind != yaml.MappingNode {
		return at(path, doc, errors.New("a pillar file is a map"))
	}
	for key, v := range pairs(doc) {
		if key.Value != "include" {
			continue
		}
		if v.Kind != yaml.SequenceNode {
			return at(path, v, errors.New("include is a list of names"))
		}
		for _, n := range v.Content {
			if written, templated := c.written[path]; templated && !slices.Contains(written, n.Value) {
				return at(path, n, errUnwritten)
			}
			if err := c.include(env, n.Value, at(path, n, nil)); err != nil {
				return err
			}
		}
	}
	data := yamlfile.Value(doc).(map[string]any)
	delete(data, "include")
	merge(c.out, data)
	return nil
}

// find reads a file by its dotted name: a.b is a/b.sls or a/b/init.sls in the first directory that
// has it. If there is none, the path is "".
func (c *compiler) find(env, name string) (path string, doc *yaml.Node, err error) {
	parts := strings.Split(name, ".")
	for _, p := range parts {
		if p == "" || strings.ContainsAny(p, "/\\\x00") {
			return "", nil, fmt.Errorf("%q is not the name of a pillar file", name)
		}
	}
	rel := filepath.Join(parts...)
	for _, dir := range c.o.Roots[env] {
		for _, file := range []string{rel + ".sls", filepath.Join(rel, "init.sls")} {
			text, err := read(dir, file)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return "", nil, fmt.Errorf("read pillar file: %w", err)
			}
			path := filepath.Join(dir, file)
			doc, err := c.parse(name, path, text)
			return path, doc, err
		}
	}
	return "", nil, nil
}

// read reads a file in dir: no name and no link can lead out of it.
func read(dir, file string) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, fmt.Errorf("%s is not a regular file", filepath.Join(dir, file)))
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", filepath.Join(dir, file), maxFile)
	}
	return text, err
}

// renderers are the first lines that files may have: those of Salt for the default rendering.
var renderers = []string{"#!yaml", "#!jinja|yaml", "#!jinja | yaml"}

func (c *compiler) parse(name, path string, text []byte) (*yaml.Node, error) {
	first, _, _ := bytes.Cut(text, []byte("\n"))
	if bytes.HasPrefix(first, []byte("#!")) && !slices.Contains(renderers, strings.TrimSpace(string(first))) {
		return nil, &Error{File: path, Line: 1, Err: errors.New("only templates and YAML are read here, no other renderer")}
	}
	templated := braces().Match(text) && !bytes.Equal(bytes.TrimSpace(first), []byte("#!yaml"))
	if templated {
		m := newMarks()
		rendered, err := c.render(name, path, m.put(text))
		if err != nil {
			return nil, err
		}
		if c.written == nil {
			c.written = map[string][]string{}
		}
		text, c.written[path] = m.take(rendered)
	}
	root, err := yamlfile.Parse(path, text)
	var mistake *yamlfile.Error
	if !errors.As(err, &mistake) {
		return root, err
	}
	if templated {
		return nil, &Error{File: path, Line: mistake.Line, Err: fmt.Errorf("rendered, as which it has that line: %w", mistake.Err)}
	}
	return nil, &Error{File: path, Line: mistake.Line, Err: mistake.Err}
}

// braces match those of a template in a file. A brace that begins a map is not one.
var braces = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\{[{%#]`) })

// render renders a template to YAML.
func (c *compiler) render(name, path string, text []byte) ([]byte, error) {
	if c.o.Render == nil {
		return nil, &Error{File: path, Err: errors.New("it is a template, and only plain YAML is read here")}
	}
	grains := c.facts.Grains
	if name == top {
		grains = nil // targets decide who gets what, and no value may influence them
	}
	out, err := c.o.Render(string(text), c.facts.ID, grains)
	var known Liner
	if errors.As(err, &known) {
		line, said := known.AtLine()
		return nil, &Error{File: path, Line: line, Err: errors.New(said)}
	}
	if err != nil {
		return nil, &Error{File: path, Err: err}
	}
	if len(out) > maxFile {
		return nil, &Error{File: path, Err: fmt.Errorf("rendered it is larger than %d bytes", maxFile)}
	}
	return []byte(out), nil
}

// Error is an error in a pillar file.
type Error struct {
	File string
	Line int // 0 if unknown
	Err  error

	// shared means that the text may contain data about other minions.
	shared bool
}

func at(path string, n *yaml.Node, err error) *Error {
	return &Error{File: path, Line: n.Line, Err: err}
}

// shared is at for an error in data about minions.
func shared(path string, n *yaml.Node, err error) *Error {
	return &Error{File: path, Line: n.Line, Err: err, shared: true}
}

func (e *Error) with(err error) *Error { return &Error{File: e.File, Line: e.Line, Err: err} }

// Shown returns the part of an error of Compile that the minion may see: its position, and the
// error itself unless it is about the targets of others.
func Shown(err error) string {
	var e *Error
	if errors.As(err, &e) && !e.shared {
		return e.Error()
	}
	hidden := errors.New("the log of the master says what is wrong")
	if e == nil {
		return fmt.Sprintf("pillar: %v", hidden)
	}
	return e.with(hidden).Error()
}

// Error implements error.
func (e *Error) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("pillar: %s:%d: %v", e.File, e.Line, e.Err)
	}
	return fmt.Sprintf("pillar: %s: %v", e.File, e.Err)
}

// Unwrap returns the error without its position.
func (e *Error) Unwrap() error { return e.Err }
