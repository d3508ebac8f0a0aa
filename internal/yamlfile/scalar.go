package yamlfile

import (
	"encoding/base64"
	"math"
	"math/big"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// Quoted are the styles of a scalar that is text whatever it looks like.
const Quoted = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle

// Value turns a node without aliases, as Parse makes them, into data of package value: nil,
// bool, string, int64, *big.Int, float64, []any and map[string]any. A nil node is nil.
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
		return scalar(n)
	}
}

// scalar gives a scalar node the meaning that Salt gives it.
func scalar(n *yaml.Node) any {
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

// IsNull tells whether n is a scalar that says nothing.
func IsNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && scalar(n) == nil
}

// decodeBinary returns the bytes of a !!binary scalar, or its text when it is
// not base64: the resolver has refused that already.
func decodeBinary(s string) string {
	b, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		return s
	}
	return string(b)
}

// Word gives an unquoted word its meaning by YAML 1.1, the version that Salt
// reads: yes, on and True are booleans and 1_000 is a number. As in Salt,
// leading zeros do not make a number octal and a date stays text.
func Word(s string) any {
	switch s {
	case "", "~", "null", "Null", "NULL":
		return nil
	case "true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON":
		return true
	case "false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF":
		return false
	}
	if c := s[0]; c != '-' && c != '+' && c != '.' && (c < '0' || c > '9') {
		return s
	}
	if n, ok := wholeNumber(s); ok {
		return n
	}
	if f, ok := fraction(s); ok {
		return f
	}
	return s
}

// wholeNumber reads 42, -7, 1_000, 0x1f, 0b101, 007 and 1:30, the sixties of
// YAML 1.1. The result is an int64, or a *big.Int when that is too small.
func wholeNumber(s string) (any, bool) {
	digits := strings.TrimLeft(s, "+-")
	if len(s)-len(digits) > 1 || digits == "" || digits[0] < '0' || digits[0] > '9' {
		return nil, false
	}
	sign, base := s[:len(s)-len(digits)], 10
	switch {
	case strings.HasPrefix(digits, "0x"):
		digits, base = digits[2:], 16
	case strings.HasPrefix(digits, "0b"):
		digits, base = digits[2:], 2
	case strings.Contains(digits, ":"):
		return sixties(sign, digits)
	case digits[0] == '0' && strings.ContainsAny(digits, "89"):
		return nil, false
	}
	digits = strings.ReplaceAll(digits, "_", "")
	if digits == "" || strings.ContainsAny(digits, "+-") {
		return nil, false
	}
	if n, err := strconv.ParseInt(sign+digits, base, 64); err == nil {
		return n, true
	}
	n, ok := new(big.Int).SetString(sign+digits, base)
	return n, ok
}

// sixties reads 1:30 as ninety. What does not fit into 64 bits stays text.
func sixties(sign, digits string) (any, bool) {
	var sum int64
	for i, part := range strings.Split(digits, ":") {
		n, err := strconv.ParseUint(part, 10, 32)
		if err != nil || i > 0 && (n > 59 || len(part) > 2) || i == 0 && part[0] == '0' || sum > math.MaxInt64/64 {
			return nil, false
		}
		sum = sum*60 + int64(n)
	}
	if sign == "-" {
		sum = -sum
	}
	return sum, true
}

// fraction reads 1.5, .5, 1., 1.5e+3 and .inf; 1e3 is text in YAML 1.1.
func fraction(s string) (float64, bool) {
	body := strings.TrimPrefix(strings.TrimPrefix(s, "-"), "+")
	switch strings.ToLower(body) {
	case ".inf":
		if s[0] == '-' {
			return math.Inf(-1), true
		}
		return math.Inf(1), true
	case ".nan":
		return math.NaN(), body == s
	}
	before, after, ok := strings.Cut(body, ".")
	if !ok || before == "" && after == "" || !isDigits(before) {
		return 0, false
	}
	mantissa, exponent, has := strings.Cut(strings.ToLower(after), "e")
	if !isDigits(mantissa) || has && (len(exponent) < 2 || exponent[0] != '+' && exponent[0] != '-' || !isDigits(exponent[1:])) {
		return 0, false
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	return f, err == nil
}

// isDigits also accepts nothing at all, and the underscores of YAML 1.1.
func isDigits(s string) bool {
	return strings.Trim(s, "0123456789_") == ""
}
