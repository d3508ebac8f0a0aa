package yamlfile

import (
	"math"
	"math/big"
	"reflect"
	"testing"
	"unicode/utf8"
)

// lookAlikes are texts that are something else without quotes, here or to the YAML library.
var lookAlikes = []string{
	"yes", "Off", "y", "n", "null", "~", "", "010", "08", "0x1f", "0xdeadbeefdeadbeefdeadbeef", "0b1", "1:30", "-1:30:00", "1_000", "1e3", "1e+06", "1.0e+3",
	".5", "5.", ".inf", ".NaN", "2026-01-02", "2026-01-02 10:00:00", "99999999999999999999999", "0o17", "=", "<<", "- a", "a: b", "# c", "'", "\"", "%x", "@x",
	"two\nlines", "two\nlines\n", " spaces ", "a\ttab", "!tag", "&a", "*a", "{a", "[a", "\u0085", "\ufeffx", "\x00", "\xff", "a\r\nb",
}

// TestWhatIsWrittenIsReadAgain: functions keep settings and grains in files, and what they keep
// stays what it was.
func TestWhatIsWrittenIsReadAgain(t *testing.T) {
	large, _ := new(big.Int).SetString("123456789012345678901234567890", 10)
	values := []any{
		nil, true, false, int64(0), int64(-7), int64(math.MaxInt64), large, new(big.Int).Neg(large), 0.0, 1.0, 1.5, 1e6, 1e20, -2.5e-7, 1e300, math.Inf(1), math.Inf(-1),
		[]any{}, map[string]any{}, []any{int64(1), "1", nil, []any{"yes", true}}, map[string]any{"1": "1", "no": false, "": "", "<<": "x", "a b": []any{map[string]any{"x": 1e6}}},
	}
	for _, text := range lookAlikes {
		values = append(values, text)
		if utf8.ValidString(text) { // other keys stay as their base64
			values = append(values, map[string]any{text: text})
		}
	}
	for _, v := range values {
		text, err := Format(map[string]any{"a": v})
		if err != nil {
			t.Errorf("%#v: %v", v, err)
			continue
		}
		root, err := Parse("f", []byte(text))
		if err != nil {
			t.Errorf("%#v is written as %s: %v", v, text, err)
			continue
		}
		if got := Value(root).(map[string]any)["a"]; !reflect.DeepEqual(got, v) {
			t.Errorf("%#v is written as %sand read as %#v", v, text, got)
		}
	}
	text, err := Format(map[string]any{"a": math.NaN()})
	root, errParse := Parse("f", []byte(text))
	if err != nil || errParse != nil {
		t.Fatal(err, errParse)
	}
	if f, ok := Value(root).(map[string]any)["a"].(float64); !ok || !math.IsNaN(f) {
		t.Errorf("NaN is written as %s", text)
	}
}
