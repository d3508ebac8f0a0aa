package value

import (
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Repr writes v as Python's repr does: True, None, 'text', [1, 2.0], {'a': 1},
// maps in the order of their keys. Text that is not UTF-8 is written as bytes,
// b'\xff'. A Go type of another kind than the package's own is taken as Encode
// takes it; what Encode refuses is written as fmt does.
func Repr(v any) string { return string(appendRepr(nil, v, 0)) }

// Str writes v as Python's str does: text as it is, all else as Repr.
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
		return appendReprList(b, x, depth)
	case map[string]any:
		return appendReprMap(b, x, depth)
	}
	plain, err := Plain(v)
	if err != nil {
		return fmt.Append(b, v)
	}
	return appendRepr(b, plain, depth)
}

// Plain returns v made of the package's own types only, as it would arrive on
// the other side. A value that is so already comes back as it is.
func Plain(v any) (any, error) {
	if isOwn(v, 0) {
		return v, nil
	}
	b, err := Encode(v)
	if err != nil {
		return nil, err
	}
	return Decode(b)
}

func isOwn(v any, depth int) bool {
	if depth > MaxDepth {
		return false
	}
	switch x := v.(type) {
	case nil, bool, string, int64, *big.Int, float64:
		return true
	case []any:
		return !slices.ContainsFunc(x, func(item any) bool { return !isOwn(item, depth+1) })
	case map[string]any:
		for _, item := range x {
			if !isOwn(item, depth+1) {
				return false
			}
		}
		return true
	}
	return false
}

func appendReprList(b []byte, list []any, depth int) []byte {
	b = append(b, '[')
	for i, v := range list {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = appendRepr(b, v, depth+1)
	}
	return append(b, ']')
}

func appendReprMap(b []byte, m map[string]any, depth int) []byte {
	b = append(b, '{')
	for i, k := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(appendReprString(b, k), ": "...)
		b = appendRepr(b, m[k], depth+1)
	}
	return append(b, '}')
}

// ReprFloat writes f as Python does: the shortest digits that give f back, with
// an exponent from 1e+16 up and below 1e-04, a dot in all else; inf, -inf, nan.
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

// appendReprString quotes s with single quotes, unless it has some and no double
// ones. What cannot be printed is escaped.
func appendReprString(b []byte, s string) []byte {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	binary := !utf8.ValidString(s)
	if binary {
		b = append(b, 'b')
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
