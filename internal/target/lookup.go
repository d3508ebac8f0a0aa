package target

import (
	"strconv"
	"strings"
)

// Lookup follows the keys in m, separated by the delimiter, through maps and lists. In a list, a
// number is an index, from the end if negative; any other key is searched for in the maps of the
// list, in order.
//
// An empty delimiter means a colon. The second result is false if a key is missing; it is true if
// the value is nil.
func Lookup(m map[string]any, keys, delimiter string) (any, bool) {
	if delimiter == "" {
		delimiter = defaultDelimiter
	}
	var at any = m
	for key := range strings.SplitSeq(keys, delimiter) {
		var ok bool
		switch x := at.(type) {
		case map[string]any:
			at, ok = x[key]
		case []any:
			at, ok = member(x, key)
		}
		if !ok {
			return nil, false
		}
	}
	return at, true
}

// member looks up key in the maps of the list, and then as an index.
func member(list []any, key string) (any, bool) {
	for _, v := range list {
		if m, ok := v.(map[string]any); ok {
			if found, ok := m[key]; ok {
				return found, true
			}
		}
	}
	i, err := strconv.Atoi(strings.TrimSpace(key))
	if err != nil {
		return nil, false
	}
	if i < 0 {
		i += len(list)
	}
	if i < 0 || i >= len(list) {
		return nil, false
	}
	return list[i], true
}
