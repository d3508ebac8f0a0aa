package yamlfile

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/salt"
)

const (
	// maxNodes limits the values in one file after its aliases are expanded. Node groups of a
	// hundred thousand minions fit; a few nested aliases that would fill the memory do not.
	maxNodes = 500_000
	// maxDepth limits the levels of nesting; people use at most ten.
	maxDepth = 100
)

// Parse parses one YAML document and returns its root without aliases, merge keys and duplicate
// keys, nil for an empty document. Every error is an *Error with its position; tags that would make
// a value more than data are refused.
func Parse(file string, text []byte) (*yaml.Node, error) { return ParseWithin(file, text, maxNodes) }

// ParseWithin is Parse with a lower limit of values, for untrusted text.
func ParseWithin(file string, text []byte, nodes int) (*yaml.Node, error) {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if err := checkText(file, text); err != nil {
		return nil, err
	}
	root, err := parseYAML(file, shortenComments(text))
	if err != nil || root == nil {
		return nil, err
	}
	r := resolver{file: file, most: nodes, left: nodes}
	n, err := r.resolve(root, "", 0)
	if err != nil || IsNull(root) {
		return nil, err
	}
	return n, nil
}

// checkText refuses what is not text and names the line, which the parser would not do.
func checkText(file string, text []byte) error {
	line, start := 1, 0
	for i := 0; i < len(text); {
		r, n := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRune(text[i:])
		}
		problem := ""
		switch {
		case r == '\n':
			line, start = line+1, i+1
		case r == utf8.RuneError && n == 1:
			problem = fmt.Sprintf("the byte 0x%02x is not UTF-8 text", text[i])
		case r < ' ' && r != '\t' && r != '\r' || r == 0x7f:
			problem = fmt.Sprintf("the control character 0x%02x has no place in YAML", r)
		}
		if problem != "" {
			column := utf8.RuneCount(text[start:i]) + 1
			return &Error{File: file, Line: line, Column: column, Err: salt.WithHint(errors.New(problem), "save the file as UTF-8 text")}
		}
		i += n
	}
	return nil
}

// shortenComments empties comments that begin at the start of their line, which are most of an
// edited example file: the YAML library would spend a millisecond on them. Lines keep their
// numbers. A file with a quote outside of them is not changed, since a quoted text may continue
// over several lines, and one of them may look like a comment.
func shortenComments(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for line := range bytes.Lines(text) {
		switch {
		case line[0] == '#' && !bytes.ContainsAny(bytes.TrimSuffix(line, []byte("\r\n")), otherBreaks):
			line = []byte("#\n")
		case bytes.ContainsAny(line, "'\""+otherBreaks):
			return text
		}
		out = append(out, line...)
	}
	return out
}

// otherBreaks end a line in YAML too.
const otherBreaks = "\r\u0085\u2028\u2029"

// parseYAML returns the root of the single document in text, nil for none.
func parseYAML(file string, text []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var first, second yaml.Node
	switch err := decoder.Decode(&first); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, yamlError(file, text, err)
	}
	switch err := decoder.Decode(&second); {
	case err == nil:
		err = errors.New("a second document begins here")
		return nil, &Error{File: file, Line: second.Line, Column: second.Column, Err: salt.WithHint(err, "keep one document in the file")}
	case !errors.Is(err, io.EOF):
		return nil, yamlError(file, text, err)
	}
	if len(first.Content) == 0 {
		return nil, nil
	}
	return first.Content[0], nil
}

// yamlError adds the position to an error of the YAML library. The library puts the line into the
// text; its parser counts from zero and its scanner from one, and it omits the first line.
func yamlError(file string, text []byte, err error) error {
	message, line := strings.TrimPrefix(err.Error(), "yaml: "), 1
	if rest, ok := strings.CutPrefix(message, "line "); ok {
		if number, after, ok := strings.Cut(rest, ": "); ok {
			if n, err := strconv.Atoi(number); err == nil {
				line, message = n, after
			}
		}
		if strings.HasPrefix(message, "did not find expected") {
			line++
		}
	} else if name, ok := strings.CutPrefix(message, "unknown anchor '"); ok {
		name, _, _ = strings.Cut(name, "'")
		if i := bytes.Index(text, []byte("*"+name)); i >= 0 {
			line += bytes.Count(text[:i], []byte("\n"))
		}
	}
	line = min(line, 1+bytes.Count(text, []byte("\n")))
	err = errors.New("the YAML is broken: " + message)
	return &Error{File: file, Line: line, Column: yamlColumn(text, line), Err: salt.WithHint(err, yamlHint(message))}
}

// maxProbes limits the search for a column: it costs one parse for each position of the line, but
// only after an error.
const maxProbes = 500

// yamlColumn finds the column of an error in a line, which the library does not report: the text
// before it can be parsed, and with the character there it cannot. If the error is after the line,
// it is the first character that is not a blank.
func yamlColumn(text []byte, line int) int {
	start := 0
	for range line - 1 {
		i := bytes.IndexByte(text[start:], '\n')
		if i < 0 {
			return 0
		}
		start += i + 1
	}
	rest, _, _ := bytes.Cut(text[start:], []byte("\n"))
	var any yaml.Node
	for end := min(len(rest), maxProbes); end > 0; end-- {
		if utf8.RuneStart(rest[end-1]) && yaml.Unmarshal(text[:start+end-1], &any) == nil {
			return utf8.RuneCount(rest[:end-1]) + 1
		}
	}
	return len(rest) - len(bytes.TrimLeft(rest, " \t")) + 1
}

// yamlHint returns the usual solution for an error of the YAML library.
func yamlHint(message string) string {
	switch {
	case strings.Contains(message, "tab character"), strings.Contains(message, "cannot start any token"):
		return "indent with blanks, not with tabs, and quote values that begin with a special character"
	case strings.Contains(message, "mapping values are not allowed"):
		return "quote values that contain a colon, and look at the indentation of this line"
	case strings.Contains(message, "unknown anchor"):
		return "quote values that begin with an asterisk, such as '*'"
	}
	return "look at this line and the one before it: indentation, quotes, brackets, and a blank after each colon"
}

// resolver expands the aliases and merge keys of one file and checks the rest. It copies only what
// it must change.
type resolver struct {
	file string
	most int // maximum number of nodes
	left int // nodes left of it
}

// resolve returns n without aliases below it; path names it in errors.
func (r *resolver) resolve(n *yaml.Node, path string, depth int) (*yaml.Node, error) {
	if r.left--; r.left < 0 {
		return nil, r.errorf(n, path, "the file holds more than %d values once its aliases are written out", r.most)
	}
	if depth > maxDepth {
		return nil, r.errorf(n, path, "the values are nested more than %d levels deep", maxDepth)
	}
	switch n.Kind {
	case yaml.AliasNode:
		return r.resolve(n.Alias, path, depth+1)
	case yaml.MappingNode:
		return r.mapping(n, path, depth)
	case yaml.SequenceNode:
		return r.sequence(n, path, depth)
	default:
		return n, r.checkTag(n, path)
	}
}

func (r *resolver) sequence(n *yaml.Node, path string, depth int) (*yaml.Node, error) {
	if err := r.checkTag(n, path); err != nil {
		return nil, err
	}
	out := *n
	out.Content = make([]*yaml.Node, len(n.Content))
	for i, c := range n.Content {
		child, err := r.resolve(c, path, depth+1)
		if err != nil {
			return nil, err
		}
		out.Content[i] = child
	}
	return &out, nil
}

func (r *resolver) mapping(n *yaml.Node, path string, depth int) (*yaml.Node, error) {
	if err := r.checkTag(n, path); err != nil {
		return nil, err
	}
	out := *n
	out.Content = make([]*yaml.Node, 0, len(n.Content))
	lines := make(map[string]int, len(n.Content)/2)
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, err := r.key(n.Content[i], path)
		if err != nil {
			return nil, err
		}
		value, err := r.resolve(n.Content[i+1], join(path, key.Value), depth+1)
		if err != nil {
			return nil, err
		}
		if key.Value == "<<" && key.Style&Quoted == 0 {
			merged = append(merged, value)
			continue
		}
		if line := lines[key.Value]; line > 0 {
			return nil, r.errorf(key, join(path, key.Value), "the key is there already, in line %d", line)
		}
		lines[key.Value] = key.Line
		out.Content = append(out.Content, key, value)
	}
	return &out, r.merge(&out, lines, merged, path)
}

// merge adds the values of the << keys of a mapping; its own keys take precedence, then the first
// of the merged ones.
func (r *resolver) merge(out *yaml.Node, lines map[string]int, merged []*yaml.Node, path string) error {
	for len(merged) > 0 {
		from := merged[0]
		merged = merged[1:]
		switch from.Kind {
		case yaml.SequenceNode:
			merged = append(from.Content[:len(from.Content):len(from.Content)], merged...)
			continue
		case yaml.MappingNode:
		default:
			return r.errorf(from, join(path, "<<"), "%w", WrongKind(from, "a map to merge"))
		}
		for i := 0; i+1 < len(from.Content); i += 2 {
			if key := from.Content[i]; lines[key.Value] == 0 {
				lines[key.Value] = key.Line
				out.Content = append(out.Content, key, from.Content[i+1])
			}
		}
	}
	return nil
}

// key returns the scalar of a key.
func (r *resolver) key(n *yaml.Node, path string) (*yaml.Node, error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.ScalarNode {
		return nil, r.errorf(n, path, "%w", WrongKind(n, "a key"))
	}
	return n, r.checkTag(n, path)
}

// checkTag refuses tags that would make a value more than data.
func (r *resolver) checkTag(n *yaml.Node, path string) error {
	if n.Style&yaml.TaggedStyle == 0 {
		return nil
	}
	switch tag := n.ShortTag(); {
	case n.Kind == yaml.MappingNode && tag == "!!map", n.Kind == yaml.SequenceNode && tag == "!!seq":
		return nil
	case n.Kind == yaml.ScalarNode && tag == "!!str":
		return nil
	case n.Kind == yaml.ScalarNode && (tag == "!!int" || tag == "!!float" || tag == "!!bool" || tag == "!!null"):
		if !isOf(tag, Word(n.Value)) {
			return r.errorf(n, path, "%q is no %s", Shorten(n.Value), strings.TrimPrefix(tag, "!!"))
		}
		return nil
	case n.Kind == yaml.ScalarNode && tag == "!!binary":
		if _, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(n.Value), "")); err != nil {
			return r.errorf(n, path, "the !!binary value is not base64")
		}
		return nil
	default:
		return r.errorf(n, path, "the tag %s is not allowed", Shorten(n.Tag))
	}
}

// isOf reports whether a value has the type of a tag.
func isOf(tag string, v any) bool {
	switch v.(type) {
	case nil:
		return tag == "!!null"
	case bool:
		return tag == "!!bool"
	case int64, *big.Int:
		return tag == "!!int" || tag == "!!float"
	case float64:
		return tag == "!!float"
	}
	return false
}

func (r *resolver) errorf(n *yaml.Node, path, format string, args ...any) error {
	return &Error{File: r.file, Line: n.Line, Column: n.Column, Key: path, Err: fmt.Errorf(format, args...)}
}

// join returns the path of a key below another.
func join(path, key string) string {
	if path == "" {
		return Shorten(key)
	}
	return path + "." + Shorten(key)
}
