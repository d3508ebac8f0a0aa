package pillar

import (
	"fmt"
	"iter"

	"gopkg.in/yaml.v3"
)

// pairs walks the keys and values of a mapping.
func pairs(m *yaml.Node) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(k, v *yaml.Node) bool) {
		for i := 0; i+1 < len(m.Content); i += 2 {
			if !yield(m.Content[i], m.Content[i+1]) {
				return
			}
		}
	}
}

// merge puts from over into: maps key by key, all else as a whole.
func merge(into, from map[string]any) {
	for k, v := range from {
		if a, ok := into[k].(map[string]any); ok {
			if b, ok := v.(map[string]any); ok {
				merge(a, b)
				continue
			}
		}
		into[k] = v
	}
}

// plain translates what the YAML library made to the model of package value.
func plain(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for k := range x {
			x[k] = plain(x[k])
		}
		return x
	case map[any]any:
		m := make(map[string]any, len(x))
		for k, e := range x {
			m[fmt.Sprint(k)] = plain(e)
		}
		return m
	case []any:
		for i := range x {
			x[i] = plain(x[i])
		}
		return x
	case int:
		return int64(x)
	case uint64:
		return fmt.Sprint(x)
	case nil, bool, string, int64, float64:
		return x
	}
	return fmt.Sprint(v) // a time, written as text
}
