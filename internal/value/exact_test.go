package value

import (
	"math/big"
	"testing"
)

// TestExact: what is written is read in its order and with its types, and where nobody asks
// for them it is plain.
func TestExact(t *testing.T) {
	for text, want := range map[string]struct{ repr, wire string }{
		`{"z": 1, "a": {"y": null, "b": []}}`:                  {"{'z': 1, 'a': {'y': None, 'b': []}}", `{"z":1,"a":{"y":null,"b":[]}}`},
		`{"z": 1, "a": 2, "z": 3}`:                             {"{'z': 3, 'a': 2}", `{"z":3,"a":2}`},
		`[{"$tuple": [1]}, {"$tuple": []}, {"$tuple": "x"}]`:   {"[(1,), (), {'$tuple': 'x'}]", `[[1],[],{"$tuple":"x"}]`},
		`[{"$set": [1, "a"]}, {"$set": []}]`:                   {"[{1, 'a'}, set()]", `[[1,"a"],[]]`},
		`{"$map": [[1, "a"], [null, 2], [true, 3], [1.5, 4]]}`: {"{1: 'a', None: 2, True: 3, 1.5: 4}", `{"1":"a","null":2,"true":3,"1.5":4}`},
		`{"$map": [[[1], 2]]}`:                                 {"{'$map': [[[1], 2]]}", `{"$map":[[[1],2]]}`},
		`{"$map": [[1, 2], ["1", 3]]}`:                         {"{1: 2, '1': 3}", `{"1":3}`},
		`{"$bytes": "eA=="}`:                                   {"b'x'", `"x"`},
		`{"$bytes": "//4="}`:                                   {`b'\xff\xfe'`, `{"$bytes":"//4="}`},
		`{"$float": "inf"}`:                                    {"inf", `{"$float":"inf"}`},
		`{"$tuple": [1], "a": 2}`:                              {"{'$tuple': [1], 'a': 2}", `{"$tuple":[1],"a":2}`},
	} {
		v, err := DecodeExact([]byte(text))
		if err != nil || Repr(v) != want.repr {
			t.Errorf("%s is %s, %v; want %s", text, Repr(v), err, want.repr)
		}
		if b, err := Encode(v); err != nil || string(b) != want.wire {
			t.Errorf("%s travels as %s, %v; want %s", text, b, err, want.wire)
		}
		plain, err := Plain(v)
		if err != nil || !isMade(plain, 0, false) {
			t.Errorf("%s is not plain: %#v, %v", text, plain, err)
		}
	}
	if _, err := DecodeExact([]byte(`{"a": }`)); err == nil {
		t.Error("a mistake is read")
	}
}

func TestSorted(t *testing.T) {
	big1 := big.NewInt(1)
	for want, m := range map[string]any{
		"{2: 0, 10: 0}":         Map{{int64(10), int64(0)}, {int64(2), int64(0)}},
		"{True: 0, 'a': 0}":     Map{{"a", int64(0)}, {true, int64(0)}},
		"{1: 0, 10: 0, 'a': 0}": Map{{int64(10), int64(0)}, {"a", int64(0)}, {big1, int64(0)}},
		"{'a': 1, 'b': 2}":      map[string]any{"b": int64(2), "a": int64(1)},
	} {
		if got, ok := Sorted(m); !ok || Repr(got) != want {
			t.Errorf("%s: %s", want, Repr(got))
		}
	}
}
