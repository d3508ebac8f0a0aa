package value

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Repr returns v as Python's repr writes it: True, None, 'text', [1, 2.0], {'a': 1}; maps sorted by
// key, a Map in its own order. Text that is not UTF-8 is written as bytes, b'\xff', and so are
// Bytes. Other Go types are converted as in Encode; what Encode refuses is written as fmt does.
func Repr(v any) string { return string(appendRepr(nil, v, 0)) }

// Str returns v as Python's str writes it: text unchanged, everything else as Repr.
func Str(v any) string {
	if s, ok := v.(string); ok && utf8.ValidString(s) {
		return s
	}
	return Repr(v)
}

func appendRepr(b []byte, v any, depth int) []byte {
	if depth > MaxDepth {
		return append(b, "..."...)
	}
	switch x := v.(type) {
	case nil:
		return append(b, "None"...)
	case bool:
		if x {
			return append(b, "True"...)
		}
		return append(b, "False"...)
	case string:
		return appendReprString(b, x)
	case int64:
		return strconv.AppendInt(b, x, 10)
	case *big.Int:
		return x.Append(b, 10)
	case float64:
		return append(b, ReprFloat(x)...)
	case []any:
		return append(appendReprItems(append(b, '['), x, depth), ']')
	case map[string]any:
		m, _ := Sorted(x)
		return appendReprMap(b, m, depth)
	case Map:
		return appendReprMap(b, x, depth)
	case Tuple:
		b = appendReprItems(append(b, '('), x, depth)
		if len(x) == 1 {
			b = append(b, ',')
		}
		return append(b, ')')
	case Set:
		if len(x) == 0 {
			return append(b, "set()"...)
		}
		return append(appendReprItems(append(b, '{'), x, depth), '}')
	case Bytes:
		return appendReprBytes(b, string(x))
	}
	plain, err := Plain(v)
	if err != nil {
		return fmt.Append(b, v)
	}
	return appendRepr(b, plain, depth)
}

// Plain converts v to the package's own types, as it would arrive on the other side. A value that
// has only these is returned unchanged.
func Plain(v any) (any, error) {
	if isMade(v, 0, false) {
		return v, nil
	}
	b, err := Encode(v)
	if err != nil {
		return nil, err
	}
	return Decode(b)
}

// isMade reports whether v has only the package's own types: the plain ones, and the exact ones if
// exact is set.
func isMade(v any, depth int, exact bool) bool {
	if depth > MaxDepth {
		return false
	}
	made := func(item any) bool { return isMade(item, depth+1, exact) }
	switch x := v.(type) {
	case nil, bool, string, int64, *big.Int, float64:
		return true
	case []any:
		return all(x, made)
	case map[string]any:
		for _, item := range x {
			if !made(item) {
				return false
			}
		}
		return true
	case Map:
		return exact && !slices.ContainsFunc(x, func(e Entry) bool { return !made(e.Key) || !made(e.V) })
	case Tuple:
		return exact && all(x, made)
	case Set:
		return exact && all(x, made)
	case Bytes:
		return exact
	}
	return false
}

func all(list []any, is func(any) bool) bool {
	return !slices.ContainsFunc(list, func(item any) bool { return !is(item) })
}

// appendReprItems writes the items of a list without the brackets.
func appendReprItems(b []byte, list []any, depth int) []byte {
	for i, v := range list {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = appendRepr(b, v, depth+1)
	}
	return b
}

func appendReprMap(b []byte, m Map, depth int) []byte {
	b = append(b, '{')
	for i, e := range m {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(appendRepr(b, e.Key, depth+1), ": "...)
		b = appendRepr(b, e.V, depth+1)
	}
	return append(b, '}')
}

// ReprFloat returns f as Python writes it: the shortest digits that give f back, with an exponent
// from 1e+16 up and below 1e-04, otherwise with a dot; inf, -inf, nan.
func ReprFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	scientific := strconv.FormatFloat(f, 'e', -1, 64)
	exponent, err := strconv.Atoi(scientific[strings.IndexByte(scientific, 'e')+1:])
	if err == nil && (exponent < -4 || exponent >= 16) {
		return scientific
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// appendReprString quotes s with single quotes, or with double quotes if it contains only single
// ones. Unprintable characters are escaped.
func appendReprString(b []byte, s string) []byte {
	if !utf8.ValidString(s) {
		return appendReprBytes(b, s)
	}
	return appendQuoted(b, s, false)
}

func appendReprBytes(b []byte, s string) []byte { return appendQuoted(append(b, 'b'), s, true) }

func appendQuoted(b []byte, s string, binary bool) []byte {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b = append(b, quote)
	for i := 0; i < len(s); {
		r, size := rune(s[i]), 1
		if !binary {
			r, size = utf8.DecodeRuneInString(s[i:])
		}
		b = appendReprRune(b, r, quote, binary)
		i += size
	}
	return append(b, quote)
}

func appendReprRune(b []byte, r rune, quote byte, binary bool) []byte {
	switch {
	case r == rune(quote), r == '\\':
		return append(b, '\\', byte(r))
	case r == '\n':
		return append(b, `\n`...)
	case r == '\r':
		return append(b, `\r`...)
	case r == '\t':
		return append(b, `\t`...)
	case r < ' ', binary && r >= 0x7f, r <= 0xff && !unicode.IsPrint(r):
		return fmt.Appendf(b, `\x%02x`, r)
	case unicode.IsPrint(r):
		return utf8.AppendRune(b, r)
	case r <= 0xffff:
		return fmt.Appendf(b, `\u%04x`, r)
	}
	return fmt.Appendf(b, `\U%08x`, r)
}
