package sink

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/yamlfile"
)

// reader reads one configuration file and keeps its first error.
type reader struct {
	file string
	err  error
}

// fail records an error at n, unless there was an earlier one.
func (r *reader) fail(n *yaml.Node, path string, err error) {
	if r.err != nil {
		return
	}
	where := r.file
	if n != nil && n.Line > 0 {
		where += ":" + strconv.Itoa(n.Line)
	}
	if path != "" {
		where += ": " + path
	}
	r.err = salt.WithHint(fmt.Errorf("%s: %w", where, err), salt.Hint(err))
}

// section is one mapping of the file. Its methods read settings; a missing or invalid setting gives
// the default. done reports settings that were never read.
type section struct {
	r      *reader
	path   string // of the section in the file, "" for the root
	node   *yaml.Node
	keys   []string // in file order
	names  map[string]*yaml.Node
	values map[string]*yaml.Node
	taken  []string
}

func (r *reader) section(n *yaml.Node, path string) *section {
	s := &section{r: r, path: path, node: n, names: map[string]*yaml.Node{}, values: map[string]*yaml.Node{}}
	if n.Kind != yaml.MappingNode {
		r.fail(n, path, errors.New("a map of settings is wanted here"))
		return s
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		s.keys = append(s.keys, key.Value)
		s.names[key.Value], s.values[key.Value] = key, n.Content[i+1]
	}
	return s
}

func (s *section) at(key string) string {
	if s.path == "" {
		return key
	}
	return s.path + "." + key
}

// wrong records an error in the setting key, or in the section if key is "".
func (s *section) wrong(key string, format string, args ...any) {
	n, path := s.node, s.path
	if key != "" {
		path = s.at(key)
	}
	if v := s.values[key]; v != nil {
		n = v
	}
	s.r.fail(n, path, fmt.Errorf(format, args...))
}

// take returns the value of a setting, nil if it is missing or empty.
func (s *section) take(key string) *yaml.Node {
	s.taken = append(s.taken, key)
	n := s.values[key]
	if n == nil || yamlfile.IsNull(n) {
		return nil
	}
	return n
}

// scalar returns the text of a setting that is a single word or number.
func (s *section) scalar(key string) (string, bool) {
	n := s.take(key)
	if n == nil {
		return "", false
	}
	if n.Kind != yaml.ScalarNode {
		s.wrong(key, "one value is wanted here")
		return "", false
	}
	return n.Value, true
}

func (s *section) text(key, otherwise string) string {
	if text, ok := s.scalar(key); ok {
		return text
	}
	return otherwise
}

// need returns a text that must be set.
func (s *section) need(key string) string {
	text := s.text(key, "")
	if text == "" {
		s.wrong("", "%q is needed", key)
	}
	return text
}

// file returns a path; a relative path starts at the directory of the configuration.
func (s *section) file(key string) string {
	return s.r.beside(s.text(key, ""))
}

// beside makes a path absolute.
func (r *reader) beside(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(r.file), path)
}

func (s *section) needFile(key string) string {
	path := s.file(key)
	if path == "" {
		s.wrong("", "%q is needed", key)
	}
	return path
}

// list returns a list of words; a single word is a list of one.
func (s *section) list(key string) []string {
	n := s.take(key)
	if n == nil {
		return nil
	}
	if n.Kind == yaml.ScalarNode {
		return []string{n.Value}
	}
	var words []string
	for _, one := range n.Content {
		if n.Kind != yaml.SequenceNode || one.Kind != yaml.ScalarNode {
			s.wrong(key, "a word or a list of words is wanted here")
			return nil
		}
		words = append(words, one.Value)
	}
	return words
}

// table returns a map of strings.
func (s *section) table(key string) map[string]string {
	sub := s.sub(key)
	if sub == nil {
		return nil
	}
	m := map[string]string{}
	for _, k := range sub.keys {
		m[k] = sub.need(k)
	}
	return m
}

// sub returns a nested section, nil if it is missing.
func (s *section) sub(key string) *section {
	n := s.take(key)
	if n == nil {
		return nil
	}
	return s.r.section(n, s.at(key))
}

func (s *section) flag(key string, otherwise bool) bool {
	n := s.take(key)
	if n == nil {
		return otherwise
	}
	b, ok := yamlfile.Value(n).(bool)
	if !ok {
		s.wrong(key, "%q stands where true or false is wanted", n.Value)
		return otherwise
	}
	return b
}

func (s *section) word(key, otherwise string, words ...string) string {
	text := s.text(key, otherwise)
	if !slices.Contains(words, text) {
		s.wrong(key, "%q is not one of %s", text, strings.Join(words, ", "))
		return otherwise
	}
	return text
}

func (s *section) number(key string, otherwise, low, high int) int {
	text, ok := s.scalar(key)
	if !ok {
		return otherwise
	}
	n, ok := yamlfile.Word(text).(int64)
	if !ok || n < int64(low) || n > int64(high) {
		s.wrong(key, "%q is not a number from %d to %d", text, low, high)
		return otherwise
	}
	return int(n)
}

// duration reads a number with a unit: ms, s, m, h, d, w.
func (s *section) duration(key string, otherwise, low, high time.Duration) time.Duration {
	text, ok := s.scalar(key)
	if !ok {
		return otherwise
	}
	d, err := salt.ParseDuration(yamlfile.Plain(text), time.Second)
	if err != nil {
		s.wrong(key, "%v: %s", err, salt.Hint(err))
		return otherwise
	}
	if d < low || d > high {
		s.wrong(key, "%s is not within %s and %s", text, low, high)
		return otherwise
	}
	return d
}

const day = 24 * time.Hour

// size reads a number of bytes, see salt.ParseSize.
func (s *section) size(key string, low int64) int64 {
	text, ok := s.scalar(key)
	if !ok {
		return 0
	}
	n, err := salt.ParseSize(yamlfile.Plain(text))
	if err != nil {
		s.wrong(key, "%q is not a size: %s", text, salt.Hint(err))
		return 0
	}
	if n < low {
		s.wrong(key, "%s is less than %d bytes", text, low)
	}
	return n
}

// done records an error for a setting that was never read.
func (s *section) done() {
	for _, key := range s.keys {
		if slices.Contains(s.taken, key) {
			continue
		}
		if slices.Contains(s.taken, key+"_file") {
			s.r.fail(s.names[key], s.at(key), salt.WithHint(errors.New("a secret must not be in the configuration"),
				"write it to a file that only its owner may read, and name that with "+key+"_file"))
			return
		}
		known := slices.Compact(slices.Sorted(slices.Values(s.taken)))
		s.r.fail(s.names[key], s.at(key), salt.WithHint(errors.New("there is no such setting"), "there are: "+strings.Join(known, ", ")))
		return
	}
}

// readNode reads the YAML document of the file.
func (r *reader) readNode() *yaml.Node {
	text, err := os.ReadFile(r.file)
	if err != nil {
		r.err = fmt.Errorf("read the configuration: %w", err)
		return nil
	}
	n, err := yamlfile.Parse(r.file, text)
	if n == nil && err == nil {
		err = fmt.Errorf("%s: it is empty", r.file)
	}
	r.err = err
	return n
}
