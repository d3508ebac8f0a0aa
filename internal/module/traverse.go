package module

import (
	"strconv"
	"strings"
)

// traverse follows key, names joined by delimiter, into nested dictionaries and
// lists as Salt does: a number selects from a list; another name is looked for
// in the dictionaries of a list.
func traverse(data any, key, delimiter string) (value any, ok bool) {
	if delimiter == "" {
		delimiter = ":"
	}
	for name := range strings.SplitSeq(key, delimiter) {
		if data, ok = step(data, name); !ok {
			return nil, false
		}
	}
	return data, true
}

func step(data any, name string) (any, bool) {
	switch x := data.(type) {
	case map[string]any:
		v, ok := x[name]
		return v, ok
	case []any:
		if i, err := strconv.Atoi(name); err == nil {
			if i < 0 || i >= len(x) {
				return nil, false
			}
			return x[i], true
		}
		for _, item := range x {
			if m, isMap := item.(map[string]any); isMap {
				if v, ok := m[name]; ok {
					return v, true
				}
			}
		}
	}
	return nil, false
}

// truthy is Python's idea of a value that counts as true.
func truthy(v any) bool {
	switch x := v.(type) {
	case nil:
		return false
	case bool:
		return x
	case string:
		return x != ""
	case int64:
		return x != 0
	case float64:
		return x != 0
	case []any:
		return len(x) > 0
	case map[string]any:
		return len(x) > 0
	}
	return true
}
