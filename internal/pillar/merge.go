package pillar

import (
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
