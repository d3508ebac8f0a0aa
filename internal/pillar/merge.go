package pillar

import (
	"iter"

	"gopkg.in/yaml.v3"
)

// pairs iterates over the keys and values of a mapping.
func pairs(m *yaml.Node) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(k, v *yaml.Node) bool) {
		for i := 0; i+1 < len(m.Content); i += 2 {
			if !yield(m.Content[i], m.Content[i+1]) {
				return
			}
		}
	}
}

// merge adds the values of from to into: maps key by key; everything else is replaced.
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
