package target

import (
	"slices"
	"strings"
)

// PillarWord is a part of a target that looks at pillar.
type PillarWord struct {
	Word string   // as it stands in a compound: I@role:web
	Keys []string // what stands between its delimiters: role, web
}

// PillarWords returns the parts that look at pillar, with those of nodegroups.
func (t *Target) PillarWords() []PillarWord {
	if !t.NeedsPillar() {
		return nil
	}
	return pillarWords(t.root, nil)
}

func pillarWords(n node, in []PillarWord) []PillarWord {
	switch x := n.(type) {
	case group:
		return pillarWords(x.node, in)
	case noneOf:
		return pillarWords(x.node, in)
	case allOf:
		for _, part := range x {
			in = pillarWords(part, in)
		}
	case anyOf:
		for _, part := range x {
			in = pillarWords(part, in)
		}
	case *leaf:
		if d, ok := x.test.(*data); ok && d.ofPillar() {
			in = append(in, PillarWord{x.word, strings.Split(d.expr, d.delimiter)})
		}
	}
	return in
}

// Below tells whether the word looks at nothing but what is below a key of pillar,
// which is the path to it: keys that are compared as they are.
func (w PillarWord) Below(path []string) bool {
	return len(w.Keys) > len(path) && slices.Equal(w.Keys[:len(path)], path)
}
