package output

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"unicode/utf8"

	"github.com/brinebus/brine/internal/value"
)

// formatJSON is json: one document, indented by 4 by default.
func formatJSON(o Options, data any) (string, error) {
	return string(o.json().append(nil, data, 0)), nil
}

// formatJSONLine is jsonl: one document on one line.
func formatJSONLine(o Options, data any) (string, error) {
	s := o.json()
	s.indent = -1
	return string(s.append(nil, data, 0)), nil
}

// jsonStyle writes JSON as Python does: letters of all alphabets unescaped, floats with a dot or an
// exponent. Values that JSON cannot hold become text, so that every program can read each document:
// "NaN", "Infinity", "-Infinity", and b'\xff' for what is not UTF-8.
type jsonStyle struct {
	indent   int // below zero: everything on one line
	terminal bool
	Options
}

func (o Options) json() jsonStyle { return jsonStyle{o.indentOr(4), o.Terminal, o} }

func (s jsonStyle) append(b []byte, v any, depth int) []byte {
	switch x := v.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return strconv.AppendBool(b, x)
	case int64:
		return strconv.AppendInt(b, x, 10)
	case *big.Int:
		return x.Append(b, 10)
	case float64:
		return appendJSONFloat(b, x)
	case string:
		return s.appendString(b, x)
	case value.Set, value.Bytes:
		return s.appendString(b, value.Repr(v))
	}
	if list, ok := value.List(v); ok {
		return s.appendList(b, list, depth)
	}
	m, _ := s.entries(v)
	return s.appendDict(b, m, depth)
}

func (s jsonStyle) appendList(b []byte, list []any, depth int) []byte {
	if len(list) == 0 {
		return append(b, "[]"...)
	}
	for i, v := range list {
		b = s.appendSeparator(b, '[', i, depth+1)
		b = s.append(b, v, depth+1)
	}
	return append(s.appendBreak(b, depth), ']')
}

func (s jsonStyle) appendDict(b []byte, m value.Map, depth int) []byte {
	if len(m) == 0 {
		return append(b, "{}"...)
	}
	for i, e := range m {
		b = s.appendMember(b, i, value.KeyText(e.Key), e.V, depth)
	}
	return append(s.appendBreak(b, depth), '}')
}

// appendMember appends member number i of an object, and the separator before it.
func (s jsonStyle) appendMember(b []byte, i int, key string, v any, depth int) []byte {
	b = s.appendSeparator(b, '{', i, depth+1)
	b = append(s.appendString(b, key), ": "...)
	return s.append(b, v, depth+1)
}

// appendSeparator appends what precedes item number i: the opening bracket, or a comma.
func (s jsonStyle) appendSeparator(b []byte, open byte, i, depth int) []byte {
	switch {
	case i == 0:
		b = append(b, open)
	case s.indent < 0:
		return append(b, ", "...)
	default:
		b = append(b, ',')
	}
	return s.appendBreak(b, depth)
}

func (s jsonStyle) appendBreak(b []byte, depth int) []byte {
	if s.indent < 0 {
		return b
	}
	b = append(b, '\n')
	return append(b, bytes.Repeat([]byte{' '}, s.indent*depth)...)
}

func appendJSONFloat(b []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(b, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(b, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(b, `"-Infinity"`...)
	}
	return append(b, value.ReprFloat(f)...)
}

func (s jsonStyle) appendString(b []byte, text string) []byte {
	if !utf8.ValidString(text) {
		text = value.Repr(text)
	}
	b = append(b, '"')
	done := 0
	for i, r := range text {
		if escape := s.escape(r); escape != "" {
			b = append(append(b, text[done:i]...), escape...)
			done = i + utf8.RuneLen(r)
		}
	}
	return append(append(b, text[done:]...), '"')
}

// escape returns the text to write instead of r, "" for r itself.
func (s jsonStyle) escape(r rune) string {
	switch r {
	case '"':
		return `\"`
	case '\\':
		return `\\`
	case '\n':
		return `\n`
	case '\r':
		return `\r`
	case '\t':
		return `\t`
	case '\b':
		return `\b`
	case '\f':
		return `\f`
	case utf8.RuneError:
		return ""
	}
	if r < ' ' || s.terminal && isUnsafe(r) {
		return fmt.Sprintf(`\u%04x`, r)
	}
	return ""
}
