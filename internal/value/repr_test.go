package value

import (
	"math"
	"math/big"
	"strings"
	"testing"
)

func TestRepr(t *testing.T) {
	huge, _ := new(big.Int).SetString("123456789012345678901234567890", 10)
	for _, c := range []struct {
		v    any
		want string
	}{
		{nil, "None"}, {true, "True"}, {false, "False"}, {int64(-7), "-7"}, {huge, "123456789012345678901234567890"},
		{1.0, "1.0"}, {0.1, "0.1"}, {1e16, "1e+16"}, {1e15, "1000000000000000.0"}, {123456789012345680.0, "1.2345678901234568e+17"},
		{1e-4, "0.0001"}, {1e-5, "1e-05"}, {1.5e-7, "1.5e-07"}, {1e300, "1e+300"}, {5e-324, "5e-324"}, {math.Copysign(0, -1), "-0.0"},
		{math.NaN(), "nan"}, {math.Inf(1), "inf"}, {math.Inf(-1), "-inf"}, {0.30000000000000004, "0.30000000000000004"},
		{"", "''"}, {"a", "'a'"}, {"it's", `"it's"`}, {`"`, `'"'`}, {`'"`, `'\'"'`}, {"\\\n\r\t", `'\\\n\r\t'`},
		{"\x00\x1b\x7f\u0085\u00a0\u00ad", `'\x00\x1b\x7f\x85\xa0\xad'`}, {"é日🧂", "'é日🧂'"}, {"\u2028\u202e\ufeff\U000e0001", `'\u2028\u202e\ufeff\U000e0001'`},
		{"\xff'a\n\x80", `b"\xff'a\n\x80"`},
		{[]any{}, "[]"}, {map[string]any{}, "{}"}, {[]any{int64(1), []any{nil}}, "[1, [None]]"},
		{map[string]any{"b": int64(1), "a": map[string]any{"é": "x"}}, "{'a': {'é': 'x'}, 'b': 1}"},
		{[]string{"x"}, "['x']"}, {map[string]int{"n": 3}, "{'n': 3}"}, {7, "7"}, {struct{ A int }{1}, "{1}"},
	} {
		if got := Repr(c.v); got != c.want {
			t.Errorf("Repr(%#v) = %s, want %s", c.v, got, c.want)
		}
	}
	if got := Str("a'b"); got != "a'b" {
		t.Errorf("Str of text = %s", got)
	}
	if got := Str("\xff"); got != `b'\xff'` {
		t.Errorf("Str of bytes = %s", got)
	}
}

func TestReprDepth(t *testing.T) {
	var v any
	for range 2 * MaxDepth {
		v = []any{v}
	}
	if got := Repr(v); !strings.Contains(got, "...") || len(got) > 3*MaxDepth {
		t.Errorf("deep value: %s", got)
	}
	if _, err := Plain(v); err == nil {
		t.Error("Plain took a value beyond MaxDepth")
	}
}
