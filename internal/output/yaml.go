package output

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"

	"github.com/brinebus/brine/internal/value"
)

// yamlWidth is the column after which the next blank in a scalar may become a line break.
const yamlWidth = 80

// maxSimpleKey is the longest key, in bytes, that is written without a question mark before it.
const maxSimpleKey = 128

// formatYAML is yaml: block style, or flow style if Indent is below zero. The text is that of
// PyYAML over libyaml, which decides on quotes and line breaks.
func formatYAML(o Options, data any) (string, error) {
	e := emitter{indent: -1, step: 2, whitespace: true, indention: true}
	if n := o.indentOr(2); n >= 2 && n <= 9 {
		e.step = n
	}
	if o.indentOr(2) < 0 {
		e.allFlow = true
	}
	e.node(data, place{})
	return e.String(), nil
}

// place is the context of a node, as far as its form depends on it.
type place struct {
	inMap bool // it is a key or the value of one
	key   bool // it is a key that must stay on its line
}

// emitter writes YAML and tracks the position on the line.
type emitter struct {
	strings.Builder
	column     int
	indent     int  // of the collection being written, -1 outside
	step       int  // blanks for each level
	flow       int  // depth of brackets
	allFlow    bool // use brackets for all collections
	whitespace bool // the last character was a blank
	indention  bool // the line has only blanks and indicators so far
}

func (e *emitter) put(r rune) {
	e.WriteRune(r)
	e.column++
}

// breakLine writes a line-end character.
func (e *emitter) breakLine(r rune) {
	e.WriteRune(r)
	e.column = 0
}

// writeIndent moves to the column of the collection, on a new line unless the current line is blank
// up to there.
func (e *emitter) writeIndent() {
	indent := max(e.indent, 0)
	if !e.indention || e.column > indent || e.column == indent && !e.whitespace {
		e.breakLine('\n')
	}
	for e.column < indent {
		e.put(' ')
	}
	e.whitespace, e.indention = true, true
}

// indicator writes punctuation, with a blank before it if needed. leavesFree is for punctuation of
// block collections, after which the line still counts as indented only.
func (e *emitter) indicator(s string, needsBlank, leavesFree bool) {
	if needsBlank && !e.whitespace {
		e.put(' ')
	}
	for _, r := range s {
		e.put(r)
	}
	e.whitespace = s == "[" || s == "{"
	e.indention = e.indention && leavesFree
}

// deeper sets the indentation for the inside of a node and returns a function that restores it.
func (e *emitter) deeper(flow, indentless bool) func() {
	old := e.indent
	switch {
	case old < 0 && flow:
		e.indent = e.step
	case old < 0:
		e.indent = 0
	case !indentless:
		e.indent += e.step
	}
	return func() { e.indent = old }
}

func (e *emitter) node(v any, at place) {
	inFlow := e.flow > 0 || e.allFlow
	switch x := v.(type) {
	case []any, value.Tuple:
		list, _ := value.List(v)
		if inFlow || len(list) == 0 {
			e.flowList(list)
		} else {
			e.blockList(list, at)
		}
	case map[string]any, value.Map:
		m, _ := value.Sorted(v)
		if inFlow || len(m) == 0 {
			e.flowMap(m)
		} else {
			e.blockMap(m)
		}
	case value.Set:
		e.set(x, inFlow)
	case value.Bytes:
		defer e.deeper(true, false)()
		e.binary(string(x), at)
	case string:
		defer e.deeper(true, false)()
		e.text(x, at)
	default:
		e.plain(yamlScalar(v), false)
	}
}

func (e *emitter) blockList(list []any, at place) {
	defer e.deeper(false, at.inMap && !e.indention)()
	for _, v := range list {
		e.writeIndent()
		e.indicator("-", true, true)
		e.node(v, place{})
	}
}

// set writes a set as YAML does: as a map without values.
func (e *emitter) set(items value.Set, inFlow bool) {
	m := make(value.Map, len(items))
	for i, item := range items {
		m[i].Key = item
	}
	e.indicator("!!set", true, false)
	if inFlow || len(m) == 0 {
		e.flowMap(m)
	} else {
		e.blockMap(m)
	}
}

func (e *emitter) blockMap(m value.Map) {
	defer e.deeper(false, false)()
	for _, entry := range m {
		k := entry.Key
		e.writeIndent()
		if isSimpleKey(k) {
			e.node(k, place{inMap: true, key: true})
			e.indicator(":", false, false)
		} else {
			e.indicator("?", true, true)
			e.node(k, place{inMap: true})
			e.writeIndent()
			e.indicator(":", true, true)
		}
		e.node(entry.V, place{inMap: true})
	}
}

func (e *emitter) flowList(list []any) {
	e.indicator("[", true, false)
	back := e.deeper(true, false)
	e.flow++
	for i, v := range list {
		e.flowComma(i)
		e.node(v, place{})
	}
	e.flow--
	back()
	e.indicator("]", false, false)
}

func (e *emitter) flowMap(m value.Map) {
	e.indicator("{", true, false)
	back := e.deeper(true, false)
	e.flow++
	for i, entry := range m {
		k := entry.Key
		e.flowComma(i)
		simple := isSimpleKey(k)
		if !simple {
			e.indicator("?", true, false)
		}
		e.node(k, place{inMap: true, key: simple})
		if !simple && e.column > yamlWidth {
			e.writeIndent()
		}
		e.indicator(":", !simple, false)
		e.node(entry.V, place{inMap: true})
	}
	e.flow--
	back()
	e.indicator("}", false, false)
}

// flowComma separates item number i from the previous one.
func (e *emitter) flowComma(i int) {
	if i > 0 {
		e.indicator(",", false, false)
	}
	if e.column > yamlWidth {
		e.writeIndent()
	}
}

func isSimpleKey(key any) bool {
	k, text := key.(string)
	return !text || len(k) <= maxSimpleKey && !strings.ContainsFunc(k, isYAMLBreak)
}

// yamlScalar returns the text of a scalar that is not a string.
func yamlScalar(v any) string {
	switch x := v.(type) {
	case nil:
		return "null"
	case bool:
		if x {
			return "true"
		}
		return "false"
	case float64:
		return yamlFloat(value.ReprFloat(x))
	}
	return value.Repr(v)
}

// yamlFloat converts Python's text of a float to YAML's, where a float has a dot.
func yamlFloat(s string) string {
	switch {
	case s == "nan" || s == "inf":
		return "." + s
	case s == "-inf":
		return "-.inf"
	case !strings.Contains(s, "."):
		return strings.Replace(s, "e", ".0e", 1)
	}
	return s
}

// text writes a string in the first form that can hold it: plain, in single quotes, in double
// quotes; base64 if it is not UTF-8.
func (e *emitter) text(s string, at place) {
	if !utf8.ValidString(s) {
		e.binary(s, at)
		return
	}
	switch f := formsOf(s); {
	case f.plain && (e.flow == 0 || f.flowPlain) && !looksTyped(s):
		e.plain(s, !at.key)
	case f.single:
		e.single(s, !at.key)
	default:
		e.double(s, !at.key)
	}
}

// binary writes bytes with the tag !!binary.
func (e *emitter) binary(s string, at place) {
	code := base64.StdEncoding.EncodeToString([]byte(s))
	e.indicator("!!binary", true, false)
	if e.flow > 0 || at.key {
		e.double(foldBase64(code), !at.key)
		return
	}
	e.indicator("|", true, false)
	for line := range strings.Lines(foldBase64(code)) {
		e.indention = false
		e.writeIndent()
		for _, r := range strings.TrimSuffix(line, "\n") {
			e.put(r)
		}
	}
	e.whitespace, e.indention = false, false
}

// foldBase64 splits the code into lines as MIME does, each with a line end.
func foldBase64(code string) string {
	var b strings.Builder
	for len(code) > 76 {
		b.WriteString(code[:76] + "\n")
		code = code[76:]
	}
	return b.String() + code + "\n"
}
