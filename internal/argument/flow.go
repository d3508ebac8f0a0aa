package argument

import (
	"errors"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/brinebus/brine/internal/value"
)

// errText means that a word is not a single value, so it stays text.
var errText = errors.New("not a value")

// flow parses one line of YAML's flow style: [a, b], {a: 1}, 'a', "a" or !!str a; only a comment
// may follow.
func flow(text string) (any, error) {
	r := reader{text: text}
	v, err := r.node(0)
	if err != nil {
		return nil, err
	}
	if next := r.next(); next != 0 && next != '#' {
		return nil, errText
	}
	return v, nil
}

// reader is a position in a line of flow style.
type reader struct {
	text string
	at   int
}

// next skips blanks and returns the byte after them, 0 at the end.
func (r *reader) next() byte {
	for r.at < len(r.text) && r.text[r.at] == ' ' {
		r.at++
	}
	return r.peek(0)
}

// peek returns the byte n bytes after the position, 0 after the end. The text contains no NUL.
func (r *reader) peek(n int) byte {
	if r.at+n < len(r.text) {
		return r.text[r.at+n]
	}
	return 0
}

// take skips c if it is next.
func (r *reader) take(c byte) bool {
	if r.next() != c {
		return false
	}
	r.at++
	return true
}

// node parses one value. An untyped scalar is typed by its form.
func (r *reader) node(depth int) (any, error) {
	if depth > value.MaxDepth {
		return nil, value.ErrDepth
	}
	switch r.next() {
	case '[':
		return r.list(depth)
	case '{':
		return r.dict(depth)
	case '!':
		return r.tagged()
	}
	text, quoted, err := r.scalar()
	if err != nil || quoted {
		return text, err
	}
	if v, ok := resolve(text); ok {
		return v, nil
	}
	return text, nil
}

// list parses the inside of brackets. An item may be a pair, a: b, which is a map of one key.
func (r *reader) list(depth int) (any, error) {
	r.at++
	list := []any{}
	for !r.take(']') {
		start := r.at
		v, err := r.node(depth + 1)
		if err != nil {
			return nil, err
		}
		if r.next() == ':' {
			r.at = start
			pair := map[string]any{}
			if err := r.pair(pair, depth+1); err != nil {
				return nil, err
			}
			v = pair
		}
		list = append(list, v)
		if !r.take(',') && r.next() != ']' {
			return nil, errText
		}
	}
	return list, nil
}

func (r *reader) dict(depth int) (any, error) {
	r.at++
	dict := map[string]any{}
	for !r.take('}') {
		if err := r.pair(dict, depth); err != nil {
			return nil, err
		}
		if !r.take(',') && r.next() != '}' {
			return nil, errText
		}
	}
	return dict, nil
}

// pair parses a key and its value into dict; a key without a value has the value nil. A duplicate
// key, a key that is not a scalar, and the merge key << are refused, since a map cannot represent
// them.
func (r *reader) pair(dict map[string]any, depth int) error {
	r.next()
	key, quoted, err := r.scalar()
	if err != nil {
		return err
	}
	if _, twice := dict[key]; twice || key == "<<" && !quoted {
		return errText
	}
	dict[key] = nil
	if !r.take(':') {
		return nil
	}
	if next := r.next(); next == ',' || next == '}' || next == ']' {
		return nil
	}
	dict[key], err = r.node(depth + 1)
	return err
}

// scalar parses text with or without quotes.
func (r *reader) scalar() (text string, quoted bool, err error) {
	switch r.peek(0) {
	case '\'':
		text, err = r.single()
		return text, true, err
	case '"':
		text, err = r.double()
		return text, true, err
	}
	text, err = r.plain()
	return text, false, err
}

// plain parses text without quotes: up to a comma, a bracket, a colon followed by a blank, or a
// comment, without blanks at its end.
func (r *reader) plain() (string, error) {
	first := r.peek(0)
	if first == 0 || strings.IndexByte("?:,[]{}#&*!|>%@`", first) >= 0 || first == '-' && isBlankOrEnd(r.peek(1)) {
		return "", errText
	}
	start := r.at
	for ; r.at < len(r.text); r.at++ {
		switch r.peek(0) {
		case ',', '[', ']', '{', '}':
			return strings.TrimRight(r.text[start:r.at], " "), nil
		case '#':
			if r.text[r.at-1] == ' ' {
				return "", errText // the rest is a comment: the collection is never closed
			}
		case ':':
			if isBlankOrEnd(r.peek(1)) {
				return strings.TrimRight(r.text[start:r.at], " "), nil
			}
			if strings.IndexByte(",?[]{}", r.peek(1)) >= 0 {
				return "", errText
			}
		}
	}
	return "", errText
}

func isBlankOrEnd(c byte) bool { return c == ' ' || c == 0 }

// single parses text in single quotes, where two of them stand for one.
func (r *reader) single() (string, error) {
	var b strings.Builder
	for r.at++; r.at < len(r.text); r.at++ {
		if c := r.peek(0); c != '\'' {
			b.WriteByte(c)
			continue
		}
		if r.at++; r.peek(0) != '\'' {
			return b.String(), nil
		}
		b.WriteByte('\'')
	}
	return "", errText
}

// double parses text in double quotes, where a backslash escapes.
func (r *reader) double() (string, error) {
	var b strings.Builder
	for r.at++; r.at < len(r.text); r.at++ {
		switch c := r.peek(0); c {
		case '"':
			r.at++
			return b.String(), nil
		case '\\':
			r.at++
			if err := r.escape(&b); err != nil {
				return "", err
			}
		default:
			b.WriteByte(c)
		}
	}
	return "", errText
}

// escapes are the escapes with one letter.
var escapes = map[byte]string{
	'0': "\x00", 'a': "\a", 'b': "\b", 't': "\t", 'n': "\n", 'v': "\v", 'f': "\f", 'r': "\r", 'e': "\x1b",
	' ': " ", '"': `"`, '\'': "'", '/': "/", '\\': `\`, 'N': "\u0085", '_': "\u00a0", 'L': "\u2028", 'P': "\u2029",
}

// escape writes the character for the escape after a backslash, and ends at the last byte of the
// escape.
func (r *reader) escape(b *strings.Builder) error {
	c := r.peek(0)
	if s, ok := escapes[c]; ok {
		b.WriteString(s)
		return nil
	}
	width := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
	if width == 0 || r.at+width >= len(r.text) {
		return errText
	}
	code, err := strconv.ParseUint(r.text[r.at+1:r.at+1+width], 16, 32)
	if err != nil || code > utf8.MaxRune || !utf8.ValidRune(rune(code)) {
		return errText
	}
	b.WriteRune(rune(code))
	r.at += width
	return nil
}

// tagged parses a scalar with one of YAML's own tags before it.
func (r *reader) tagged() (any, error) {
	start := r.at
	for r.at < len(r.text) && strings.IndexByte(" ,[]{}", r.text[r.at]) < 0 {
		r.at++
	}
	tag, text := r.text[start:r.at], ""
	if next := r.next(); next != 0 && strings.IndexByte(",]}", next) < 0 {
		var err error
		if text, _, err = r.taggedText(); err != nil {
			return nil, err
		}
	}
	return convert(tag, text)
}

// taggedText parses the text of a tagged scalar, which continues to the end of the line if it has
// no quotes and is not in brackets.
func (r *reader) taggedText() (string, bool, error) {
	if start := r.at; r.text[0] == '!' && r.peek(0) != '\'' && r.peek(0) != '"' {
		r.at = len(r.text)
		if !isPlain(r.text[start:]) {
			return "", false, errText
		}
		return r.text[start:], false, nil
	}
	return r.scalar()
}

// convert converts text to the type of the tag.
func convert(tag, text string) (any, error) {
	v, typed := resolve(text)
	ok := false
	switch tag {
	case "!!str", "!!timestamp":
		return text, nil
	case "!!null":
		return nil, nil
	case "!!bool":
		_, ok = v.(bool)
	case "!!int":
		_, ok = v.(int64)
		if _, huge := v.(*big.Int); huge {
			ok = true
		}
	case "!!float":
		if i, whole := v.(int64); whole {
			v = float64(i)
		}
		_, ok = v.(float64)
	}
	if !ok || !typed {
		return nil, errText
	}
	return v, nil
}
