package yamlfile

import (
	"encoding/base64"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/yamlfile/scalar"
)

// Quoted are the styles of a scalar that is always text.
const Quoted = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle

// Value converts a node without aliases, as Parse returns it, to data of package value: nil, bool,
// string, int64, *big.Int, float64, []any and map[string]any. A nil node is nil.
func Value(n *yaml.Node) any {
	if n == nil {
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		m := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			m[n.Content[i].Value] = Value(n.Content[i+1])
		}
		return m
	case yaml.SequenceNode:
		s := make([]any, len(n.Content))
		for i, c := range n.Content {
			s[i] = Value(c)
		}
		return s
	default:
		return valueOf(n)
	}
}

// valueOf gives a scalar node the meaning that Salt gives it.
func valueOf(n *yaml.Node) any {
	if n.Style&yaml.TaggedStyle != 0 {
		switch n.ShortTag() {
		case "!!str":
			return n.Value
		case "!!binary":
			return decodeBinary(n.Value)
		}
		return Word(n.Value)
	}
	if n.Style&Quoted != 0 {
		return n.Value
	}
	return Word(n.Value)
}

// IsNull reports whether n is a null scalar.
func IsNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && valueOf(n) == nil
}

// decodeBinary returns the bytes of a !!binary scalar, or its text if it is not base64: the
// resolver has already refused that.
func decodeBinary(s string) string {
	b, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		return s
	}
	return string(b)
}

// Plain is that of package scalar: for words that count units.
func Plain(word string) string { return scalar.Plain(word) }

// Word returns the value of an unquoted word.
func Word(s string) any { return scalar.Value(s) }
