package module

import (
	"strings"

	"github.com/brinebus/brine/internal/value"
)

// repr returns a value as Python writes it: Salt's users know this format from defaults in
// signatures and from test.arg_repr.
func repr(v any) string { return value.Repr(v) }

// reprTuple returns a list as a Python tuple.
func reprTuple(list []any) string {
	items := make([]string, len(list))
	for i, v := range list {
		items[i] = repr(v)
	}
	if len(items) == 1 {
		items[0] += ","
	}
	return "(" + strings.Join(items, ", ") + ")"
}

// typeName returns the name of a value's Python type.
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
