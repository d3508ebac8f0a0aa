package target

import (
	"slices"
	"strings"
)

// PillarWord is a part of a target that uses pillar.
type PillarWord struct {
	Word string   // as in a compound: I@role:web
	Keys []string // the texts between its delimiters: role, web
}

// PillarWords returns the parts that use pillar, including those of nodegroups.
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

// Below reports whether the word uses only data below a key of pillar. path leads to that key; its
// keys are compared exactly.
func (w PillarWord) Below(path []string) bool {
	return len(w.Keys) > len(path) && slices.Equal(w.Keys[:len(path)], path)
}
