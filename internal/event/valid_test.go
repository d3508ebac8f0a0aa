package event

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzValid: the same verdict as encoding/json, on everything.
func FuzzValid(f *testing.F) {
	for _, s := range []string{
		"", " ", "{}", "[]", "null", "nul", "nullx", "true false", `{"a":1}`, `{"a":1,}`, `{"a" : [1, -0.5e+3, "x\u00e9\n\\"] , "b":{}}`, `{a:1}`, `[1,]`, `[,1]`,
		`"`, `"\`, `"\x"`, `"\u12g4"`, `"a` + "\n" + `b"`, "\"\x1f12345678\"", "\"12345678\x00\"", "\"\x7f\xff\xfe0123456\"", "01", "-", "-0", "1.", ".5", "1e", "1e+", "0x1",
		`"` + strings.Repeat("x", 100) + `"`, `"` + strings.Repeat(`\"`, 20) + `"`, "\ufeff{}", `{"a":1}{"b":2}`, `[[[[]]]]`, `[[[[]]]`, "\u2028",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, want := Valid(b), json.Valid(b); got != want {
			t.Errorf("Valid(%q) = %v, encoding/json says %v", b, got, want)
		}
	})
}

func TestValidDepth(t *testing.T) {
	for _, n := range []int{9_999, 10_000, 10_001, 1_000_000} {
		for _, pair := range []string{"[]", "{}"} {
			open, end := pair[:1], pair[1:]
			if pair == "{}" {
				open = `{"a":`
			}
			text := []byte(strings.Repeat(open, n-1) + pair + strings.Repeat(end, n-1))
			if got, want := Valid(text), json.Valid(text); got != want {
				t.Errorf("%d deep: %v, encoding/json says %v", n, got, want)
			}
		}
	}
}

func BenchmarkValid(b *testing.B) {
	text := []byte(`{"message":"` + strings.Repeat("x", 1000) + `"}`)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if !Valid(text) {
			b.Fatal("it is valid")
		}
	}
}

// FuzzMembers compares with encoding/json.
func FuzzMembers(f *testing.F) {
	for _, s := range []string{`{}`, ` {"a":1,"a":[2] , "b" : {"c":"}"}} `, `{"\\u0061":null,"\\\"":"\\\""}`, `[]`, `{"a":1,}`, `{"a"}`, "{\"\xff\":1}", "{\"\x9d\xa0\":{}}", "null", ""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var want map[string]json.RawMessage
		valid := json.Unmarshal(b, &want) == nil && want != nil
		got, ok := members(b)
		if ok != valid || len(got) != len(want) {
			t.Fatalf("%q: %v, %v; want %v, %v", b, got, ok, want, valid)
		}
		for key, value := range want {
			if string(got[key]) != string(value) {
				t.Errorf("%q: %q is %s, want %s", b, key, got[key], value)
			}
		}
	})
}
