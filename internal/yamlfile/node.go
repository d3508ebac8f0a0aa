package yamlfile

import (
	"bytes"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/yamlfile/scalar"
)

// Node is the opposite of Value: it returns data of package value as a node whose text Value, and
// Salt, read as the same data. The YAML library alone writes for its own rules: 1e+06, which is
// text here, and large numbers as text.
func Node(v any) (*yaml.Node, error) {
	switch v := v.(type) {
	case map[string]any:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			child, err := Node(v[key])
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, textNode(key), child)
		}
		return n, nil
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for _, one := range v {
			child, err := Node(one)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
		}
		return n, nil
	case string:
		return textNode(v), nil
	case *big.Int:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: v.String()}, nil
	case float64:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: floatText(v)}, nil
	}
	n := new(yaml.Node)
	return n, n.Encode(v)
}

// textNode quotes text that would be something else without quotes.
func textNode(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: s}
	if utf8.ValidString(s) { // else it is written as !!binary
		n.Tag = "!!str"
	}
	if _, typed := scalar.Resolve(s); typed || s == "<<" { // which merges maps
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// floatText writes a float with a dot, without which it would be text or an integer.
func floatText(f float64) string {
	text := strconv.FormatFloat(f, 'g', -1, 64)
	switch text {
	case "NaN":
		return ".nan"
	case "+Inf":
		return ".inf"
	case "-Inf":
		return "-.inf"
	}
	digits, exponent, large := strings.Cut(text, "e")
	if !strings.Contains(digits, ".") {
		digits += ".0"
	}
	if large {
		return digits + "e" + exponent
	}
	return digits
}

// Format returns data of package value as YAML that Parse and Value turn into the same data.
func Format(v any) (string, error) {
	n, err := Node(v)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(n); err != nil {
		return "", err
	}
	return b.String(), e.Close()
}
