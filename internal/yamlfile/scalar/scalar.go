// Package scalar gives an unquoted YAML word its value. Everything that Brine reads uses it
// (configuration, grains, pillar, arguments, the files of the reactor and of sinks), so that a word
// always means the same. It does not parse YAML: its callers split text into words.
//
// The rules are those of YAML 1.1 as Salt applies them: yes, on and True are true; 010 is ten; a
// date is text; 1:30 is ninety, a sexagesimal number. Salt reads sexagesimal numbers only in files
// and not in arguments; callers that parse arguments handle that.
package scalar

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// maxDigits is the longest number in characters; a longer row of digits is text.
const maxDigits = 4096

// Value returns the value of a word: nil, a bool, an int64, a *big.Int, a float64, or the word
// itself, which is text.
func Value(word string) any {
	if v, ok := Resolve(word); ok {
		return v
	}
	return word
}

// Plain returns a word for what counts units, such as a time or a size: a number in plain decimal
// digits, however it is written, and other words as they are.
func Plain(word string) string {
	switch v := Value(word).(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		if !math.IsInf(v, 0) && !math.IsNaN(v) {
			return strconv.FormatFloat(v, 'f', -1, 64)
		}
	}
	return word
}

// Resolve types text by its form; ok is false for text that stays text.
func Resolve(text string) (v any, ok bool) {
	if v, ok := constants[text]; ok {
		return v, true
	}
	switch {
	case len(text) == 0 || len(text) > maxDigits || !strings.Contains("+-.0123456789", text[:1]):
		return nil, false
	case strings.ContainsRune(text, ':'):
		return sixties(text)
	case strings.ContainsRune(text, '.'):
		return float(text)
	}
	return integer(text)
}

// constants are the words of YAML 1.1 for bools, null and NaN. The letters y and n alone are text.
var constants = map[string]any{
	"": nil, "~": nil, "null": nil, "Null": nil, "NULL": nil,
	"yes": true, "Yes": true, "YES": true, "no": false, "No": false, "NO": false,
	"true": true, "True": true, "TRUE": true, "false": false, "False": false, "FALSE": false,
	"on": true, "On": true, "ON": true, "off": false, "Off": false, "OFF": false,
	".nan": math.NaN(), ".NaN": math.NaN(), ".NAN": math.NaN(),
	".inf": math.Inf(1), ".Inf": math.Inf(1), ".INF": math.Inf(1),
	"+.inf": math.Inf(1), "+.Inf": math.Inf(1), "+.INF": math.Inf(1),
	"-.inf": math.Inf(-1), "-.Inf": math.Inf(-1), "-.INF": math.Inf(-1),
}

// integer parses 12, +12, -1_000, 0x1F, 0b101 and 010, which is ten: someone who writes a leading
// zero means a day or a port, not the octal number of YAML 1.1. It refuses 08 as YAML does, so that
// 0777 is a number and 0888 is text.
func integer(text string) (any, bool) {
	digits := strings.TrimLeft(text[:1], "+-") + text[1:]
	base, set := 10, "0123456789_"
	switch {
	case strings.HasPrefix(digits, "0b"):
		base, set, digits = 2, "01_", digits[2:]
	case strings.HasPrefix(digits, "0x"):
		base, set, digits = 16, "0123456789abcdefABCDEF_", digits[2:]
	case strings.HasPrefix(digits, "0"):
		set = "01234567_"
	case strings.HasPrefix(digits, "_"):
		return nil, false
	}
	if !only(digits, set) {
		return nil, false
	}
	digits = strings.ReplaceAll(digits, "_", "")
	if text[0] == '-' {
		digits = "-" + digits
	}
	if i, err := strconv.ParseInt(digits, base, 64); err == nil {
		return i, true
	}
	i, ok := new(big.Int).SetString(digits, base)
	if !ok {
		return nil, false
	}
	return i, true
}

// float parses 1.5, 1., .5 and 1.0e+3. YAML 1.1 requires the dot and the sign of the exponent, and
// no sign before a leading dot.
func float(text string) (any, bool) {
	mantissa, exponent := text, ""
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		mantissa, exponent = text[:i], text[i:]
		if len(exponent) < 3 || exponent[1] != '+' && exponent[1] != '-' || !only(exponent[2:], "0123456789") {
			return nil, false
		}
	}
	whole, fraction, dot := strings.Cut(mantissa, ".")
	if whole != "" {
		whole = strings.TrimLeft(whole[:1], "+-") + whole[1:]
	}
	switch {
	case !dot, !only(whole+fraction, "0123456789_"), strings.HasPrefix(whole, "_"):
		return nil, false
	case whole == "" && (mantissa[0] != '.' || fraction[0] == '_'):
		return nil, false
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(mantissa, "_", "")+exponent, 64)
	return f, err == nil || math.IsInf(f, 0)
}

// only reports whether s is not empty and contains only characters of set.
func only(s, set string) bool { return s != "" && strings.Trim(s, set) == "" }

// sixties parses 1:30 as 90 and 1:30.5 as 90.5. A number that does not fit into 64 bits is text.
func sixties(text string) (any, bool) {
	digits := strings.TrimLeft(text[:1], "+-") + text[1:]
	digits, fraction, broken := strings.Cut(digits, ".")
	parts := strings.Split(digits, ":")
	if len(parts) < 2 || !only(parts[0], "0123456789_") || parts[0][0] == '_' || parts[0][0] == '0' && !broken || strings.Trim(fraction, "0123456789_") != "" {
		return nil, false
	}
	var sum int64
	for i, part := range parts {
		n, err := strconv.ParseUint(strings.ReplaceAll(part, "_", ""), 10, 32)
		if err != nil || i > 0 && (n > 59 || len(part) > 2 || strings.Contains(part, "_")) || sum > math.MaxInt64/64 {
			return nil, false
		}
		sum = sum*60 + int64(n)
	}
	if text[0] == '-' {
		sum = -sum
	}
	if !broken {
		return sum, true
	}
	part, _ := strconv.ParseFloat("0."+strings.ReplaceAll(fraction, "_", "")+"0", 64) // only digits
	return float64(sum) + math.Copysign(part, float64(sum)), true
}
