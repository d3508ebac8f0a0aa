package module

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

// repr writes a value as Python does, which is how Salt's users know defaults
// in signatures and the answers of test.arg_repr.
func repr(v any) string {
	switch x := v.(type) {
	case nil:
		return "None"
	case bool:
		if x {
			return "True"
		}
		return "False"
	case string:
		return quote(x)
	case float64:
		return reprFloat(x)
	case *big.Int:
		return x.String()
	case []any:
		return "[" + reprItems(x) + "]"
	case []string:
		items := make([]string, len(x))
		for i := range x {
			items[i] = quote(x[i])
		}
		return "[" + strings.Join(items, ", ") + "]"
	case map[string]any:
		return reprMap(x)
	}
	return fmt.Sprint(v)
}

// reprTuple writes a list as a Python tuple.
func reprTuple(list []any) string {
	if len(list) == 1 {
		return "(" + repr(list[0]) + ",)"
	}
	return "(" + reprItems(list) + ")"
}

func reprItems(list []any) string {
	items := make([]string, len(list))
	for i, v := range list {
		items[i] = repr(v)
	}
	return strings.Join(items, ", ")
}

func reprMap(m map[string]any) string {
	items := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		items = append(items, quote(k)+": "+repr(m[k]))
	}
	return "{" + strings.Join(items, ", ") + "}"
}

func reprFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	format := byte('f')
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		format = 'e'
	}
	s := strconv.FormatFloat(f, format, -1, 64)
	if format == 'f' && !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// quote writes a string in single quotes, in double ones if it holds single
// ones only.
func quote(s string) string {
	mark := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		mark = '"'
	}
	var b strings.Builder
	b.WriteRune(mark)
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			fmt.Fprintf(&b, `\x%02x`, s[i])
		} else {
			b.WriteString(escape(r, mark))
		}
		i += size
	}
	b.WriteRune(mark)
	return b.String()
}

func escape(r, mark rune) string {
	switch {
	case r == mark || r == '\\':
		return `\` + string(r)
	case r == '\n':
		return `\n`
	case r == '\r':
		return `\r`
	case r == '\t':
		return `\t`
	case r < 0x100 && !unicode.IsPrint(r):
		return fmt.Sprintf(`\x%02x`, r)
	case r < 0x10000 && !unicode.IsPrint(r):
		return fmt.Sprintf(`\u%04x`, r)
	case !unicode.IsPrint(r):
		return fmt.Sprintf(`\U%08x`, r)
	}
	return string(r)
}

// typeName names the Python type of a value.
func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case string:
		return "str"
	case float64:
		return "float"
	case []any:
		return "list"
	case map[string]any:
		return "dict"
	}
	return "int"
}
