package value

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
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

// FuzzRead: what is read quickly means the same to encoding/json.
func FuzzRead(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,-0,0.5,1e999,"x\u00e9\ud800",null],"a":{}}`, `{"$bytes":"/w=="}`, `{"$bytes":{"$bytes":"YWFhYQ=="}}`, `{"$float":{"$bytes":"bmFu"}}`, `{"$float":"inf"}`,
		`{"$bytes":1,"$bytes":"YQ=="}`, `{"$bytes":"YQ==","x":1}`, "\"\xff\"", "{\"\xff\":1}", `{"\u0061":1,"a":2}`, " [ ] ", `[1,]`, `{"a"}`, "123456789012345678901234567890", "\t{\"a\" :\r1 } ",
		strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1), strings.Repeat("[", MaxDepth+1) + "1" + strings.Repeat("]", MaxDepth+1),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, rest, ok := reader(false).read(skipBlanks(b), 0)
		if !ok || len(skipBlanks(rest)) > 0 {
			return
		}
		want, err := decodeSlowly(b)
		if err != nil || Repr(v) != Repr(want) {
			t.Errorf("reader(false).read(%q) = %s; encoding/json says %s, %v", b, Repr(v), Repr(want), err)
		}
	})
}

// FuzzMembers: the members that are found are those of encoding/json, and
// what is Raw can be decoded, and nothing else.
func FuzzMembers(f *testing.F) {
	for _, s := range []string{`{}`, `[]`, `{"a":1,"b":[{"c":"}"}]}`, ` { "\u0061" : 1 , "b":2 } `, `[1, "]", {}]`, `{"a":1,}`, `{"a":1}x`, `[1}`, `1`, ``, `{"a":` + nested(MaxDepth+2) + `}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got := map[string]json.RawMessage{}
		check := func(v []byte) {
			raw, err := NewRaw(v)
			if _, wrong := Decode(v); err == nil && (wrong != nil || len(raw) > len(v) || bytes.ContainsAny(raw, "\r\n")) || errors.Is(err, ErrDepth) && len(v) <= 2*MaxDepth {
				t.Errorf("NewRaw(%q) = %q, %v; to decode it: %v", v, raw, err, wrong)
			}
		}
		if Members(b, func(key string, v []byte) error { got[key] = v; check(v); return nil }) == nil {
			var want map[string]json.RawMessage
			if err := json.Unmarshal(b, &want); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("Members(%q) = %s; want %s, %v", b, got, want, err)
			}
		}
	})
}

func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

// TestMembersRefuses: what is not a whole object is refused.
func TestMembersRefuses(t *testing.T) {
	for _, s := range []string{"", "null", "[]", `{"a":1`, `{"a":1,}`, `{"a" 1}`, `{a:1}`, `{"a":1}}`, `{"a":` + nested(10_000) + `}`} {
		if err := Members([]byte(s), func(string, []byte) error { return nil }); err == nil {
			t.Errorf("Members(%.40q) took it", s)
		}
	}
}

func TestNewRaw(t *testing.T) {
	for _, s := range []string{`1`, `"x"`, `{"a":[]}`, nested(MaxDepth)} {
		if raw, err := NewRaw([]byte(s)); err != nil || string(raw) != s {
			t.Errorf("NewRaw(%.40q) = %.40q, %v", s, raw, err)
		}
		if b, err := Encode(map[string]any{"k": Raw(s)}); err != nil || string(b) != `{"k":`+s+`}` {
			t.Errorf("a raw value was written as %.40q, %v", b, err)
		}
	}
	if raw, err := NewRaw([]byte("{\"a\":\r\n [1]}")); err != nil || string(raw) != `{"a":[1]}` {
		t.Errorf("line ends became %q, %v", raw, err)
	}
	for _, s := range []string{``, ` 1`, `1 `, `{`, `x`, nested(MaxDepth + 2)} {
		if raw, err := NewRaw([]byte(s)); err == nil {
			t.Errorf("NewRaw(%.40q) = %.40q", s, raw)
		}
	}
}

func TestText(t *testing.T) {
	type name string
	for _, s := range []string{`""`, `"a"`, `"\u00e9\n"`, "\"\xff\"", `"a`, `1`, `null`, ``, `"a" `, `"a""b"`} {
		var got, want name
		err, wrong := Text([]byte(s), &got), json.Unmarshal([]byte(s), &want)
		if s == `null` || s == `"a" ` { // which are not text alone
			want, wrong = "", errNoJSON
		}
		if (err == nil) != (wrong == nil) || got != want {
			t.Errorf("Text(%s) = %q, %v; encoding/json says %q, %v", s, got, err, want, wrong)
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
