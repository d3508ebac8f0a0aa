package value

import (
	"errors"
	"math"
	"math/big"
	"reflect"
	"strings"
	"testing"
)

func TestRoundTrip(t *testing.T) {
	huge, _ := new(big.Int).SetString("123456789012345678901234567890", 10)
	for name, v := range map[string]any{
		"null": nil, "true": true, "int": int64(-7), "huge": huge, "float that is whole": 1.0, "float": 0.1, "exponent": 1e300,
		"inf": math.Inf(1), "-inf": math.Inf(-1), "text": "a\n\"ü\u2028<>&", "bytes": "\xff\x00a",
		"list": []any{int64(1), 2.0, "x", nil}, "map": map[string]any{"b": int64(1), "a": []any{}},
	} {
		b, err := Encode(v)
		if err != nil {
			t.Errorf("%s: Encode: %v", name, err)
			continue
		}
		got, err := Decode(b)
		if err != nil || !reflect.DeepEqual(got, v) {
			t.Errorf("%s: Decode(%s) = %#v, %v; want %#v", name, b, got, err, v)
		}
	}
	b, _ := Encode(math.NaN())
	if got, err := Decode(b); err != nil || !math.IsNaN(got.(float64)) {
		t.Errorf("nan: %v, %v", got, err)
	}
}

func TestEncodeForms(t *testing.T) {
	for want, v := range map[string]any{
		`{"a":1,"b":[1.0,"<x>"]}`: map[string]any{"b": []any{1.0, "<x>"}, "a": 1},
		`["x","y"]`:               []string{"x", "y"},
		`{"k":[1,2]}`:             map[string][]uint8{"k": {1, 2}},
	} {
		if b, err := Encode(v); err != nil || string(b) != want {
			t.Errorf("Encode(%#v) = %s, %v; want %s", v, b, err, want)
		}
	}
	if b, err := Encode(struct{}{}); err == nil {
		t.Errorf("a struct was encoded: %s", b)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, s := range []string{"", "{", "1 2", "nan", "[1,]", "\x00"} {
		if v, err := Decode([]byte(s)); err == nil {
			t.Errorf("Decode(%q) = %#v, want an error", s, v)
		}
	}
	deep := strings.Repeat("[", MaxDepth+2) + strings.Repeat("]", MaxDepth+2)
	if _, err := Decode([]byte(deep)); !errors.Is(err, ErrDepth) {
		t.Errorf("deep nesting: %v, want ErrDepth", err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.0,"x"]}`, `{"$bytes":"/w=="}`, `{"$float":"nan"}`, `1e999`, `-0`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := Decode(b)
		if err != nil {
			return
		}
		one, err := Encode(v)
		if err != nil {
			t.Fatalf("Encode of what Decode gave: %v", err)
		}
		again, err := Decode(one)
		if err != nil {
			t.Fatalf("Decode(%s): %v", one, err)
		}
		if two, err := Encode(again); err != nil || string(one) != string(two) {
			t.Errorf("not stable: %s then %s, %v", one, two, err)
		}
	})
}
