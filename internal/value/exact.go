package value

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strings"
	"unicode/utf8"
)

// The exact types contain more than the plain ones: the order of a map, keys that are not text, and
// which of Python's sequences a list was. They are for printing. Code that computes with values
// uses the plain types: Decode returns only those, and Plain converts to them.
type (
	// Map is a map in the order in which it was built. A key is a scalar of the plain types, or
	// Bytes; keys are unique.
	Map []Entry
	// Tuple is an immutable list.
	Tuple []any
	// Set is a list of distinct items, in no meaningful order.
	Set []any
	// Bytes are bytes that are not text although they are valid UTF-8. Invalid UTF-8 can be a
	// string as well.
	Bytes string
)

// Entry is a key of a Map and its value.
type Entry struct{ Key, V any }

// The objects with one key that a program may write for values without a JSON form, in addition to
// those of Decode. They do not occur on the wire: as in Salt, a tuple arrives as a list.
const (
	tupleKey = "$tuple" // a list
	setKey   = "$set"   // a list
	mapKey   = "$map"   // a list of pairs
)

// DecodeExact is Decode with exact types: each object becomes a Map.
func DecodeExact(b []byte) (any, error) {
	if v, rest, ok := reader(true).read(skipBlanks(b), 0); ok && len(skipBlanks(rest)) == 0 {
		return v, nil
	}
	return decodeSlowly(b)
}

// Exactly converts v to plain and exact types. A value that has only these is returned unchanged.
func Exactly(v any) (any, error) {
	if isMade(v, 0, true) {
		return v, nil
	}
	b, err := Encode(v)
	if err != nil {
		return nil, err
	}
	return DecodeExact(b)
}

// ofMap returns the value of a map that was decoded exactly.
func ofMap(m Map) any {
	if len(m) != 1 {
		return m
	}
	key, _ := m[0].Key.(string)
	switch x := m[0].V.(type) {
	case string:
		if b, err := base64.StdEncoding.DecodeString(x); key == bytesKey && err == nil {
			if utf8.Valid(b) {
				return Bytes(b)
			}
			return string(b)
		}
		if f, ok := special(map[string]any{key: x}); ok {
			return f
		}
	case []any:
		switch key {
		case tupleKey:
			return Tuple(x)
		case setKey:
			return Set(x)
		case mapKey:
			if pairs, ok := ofPairs(x); ok {
				return pairs
			}
		}
	}
	return m
}

func ofPairs(list []any) (m Map, ok bool) {
	for _, item := range list {
		pair, ok := item.([]any)
		if !ok || len(pair) != 2 || !isKey(pair[0]) {
			return nil, false
		}
		m = append(m, Entry{pair[0], pair[1]})
	}
	return m, true
}

func isKey(v any) bool {
	switch v.(type) {
	case []any, Map, Set, map[string]any:
		return false
	}
	return true
}

// KeyText returns a key as text, as Python's JSON writes it.
func KeyText(key any) string {
	switch x := key.(type) {
	case nil:
		return "null"
	case bool:
		if x {
			return "true"
		}
		return "false"
	}
	return Str(key)
}

// texts returns the keys of m as text, in order, and their values. If keys are the same as text,
// the last one counts.
func (m Map) texts() (keys []string, members map[string]any) {
	members = make(map[string]any, len(m))
	for _, e := range m {
		k := KeyText(e.Key)
		if _, twice := members[k]; !twice {
			keys = append(keys, k)
		}
		members[k] = e.V
	}
	return keys, members
}

// add appends an entry to m, or replaces the entry with an equal key. The index is for maps in
// which a search would take long.
func (m Map) add(index map[string]int, key string, v any) Map {
	if i, twice := index[key]; twice {
		m[i].V = v
		return m
	}
	index[key] = len(m)
	return append(m, Entry{key, v})
}

// Sorted returns the entries of a map of either kind, sorted by key: by number if all keys are
// numbers, otherwise by text. ok reports whether v is a map.
func Sorted(v any) (m Map, ok bool) {
	switch x := v.(type) {
	case Map:
		m = slices.Clone(x)
	case map[string]any:
		m = make(Map, 0, len(x))
		for k, v := range x {
			m = append(m, Entry{k, v})
		}
	default:
		return nil, false
	}
	by := func(a, b Entry) int { return strings.Compare(Str(a.Key), Str(b.Key)) }
	if !slices.ContainsFunc(m, func(e Entry) bool { _, number := e.Key.(int64); return !number }) {
		by = func(a, b Entry) int { return cmp.Compare(a.Key.(int64), b.Key.(int64)) }
	}
	slices.SortStableFunc(m, by)
	return m, true
}

// Ordered returns the entries of a map of either kind in the order in which it was built, as far as
// that is known.
func Ordered(v any) (m Map, ok bool) {
	if m, ok := v.(Map); ok {
		return m, true
	}
	return Sorted(v)
}

// List returns the items of a list or a tuple.
func List(v any) (items []any, ok bool) {
	switch x := v.(type) {
	case []any:
		return x, true
	case Tuple:
		return x, true
	}
	return nil, false
}
