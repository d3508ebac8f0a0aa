package sink

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestStorable(t *testing.T) {
	for data, want := range map[string]string{
		`{"a":1}`:               `{"a":1}`,
		`{"a\u0000":"\u0000x"}`: `{"a\ufffd":"\ufffdx"}`,
		`"\\u0000"`:             `"\\u0000"`,
		`"\\\u0000"`:            `"\\\ufffd"`,
		`"\ud83e\uddc2"`:        `"\ud83e\uddc2"`,
		`"\uD83E\uDDC2 \ud83e"`: `"\uD83E\uDDC2 \ufffd"`,
		`"\ud83e\u0041\uddc2"`:  `"\ufffd\u0041\ufffd"`,
		`"\ud83e\ud83e\uddc2"`:  `"\ufffd\ud83e\uddc2"`,
		`"\ud83e\\uddc2"`:       `"\ufffd\\uddc2"`,
		"\"\xff\\u00e4\"":       "\"\ufffd\\u00e4\"",
		`"\u00`:                 `"\u00`,
	} {
		if got := storable([]byte(data)); got != want {
			t.Errorf("storable(%s) = %s, want %s", data, got, want)
		}
	}
}

// FuzzStorable: the text means what encoding/json reads in the data, which puts U+FFFD for
// halves of pairs too, without the character zero. Of bytes that are not UTF-8 a whole run
// becomes one character, and so is left out here.
func FuzzStorable(f *testing.F) {
	for _, data := range []string{`{"a":"\u0000"}`, `"\ud83e\uddc2\ud83e"`, `"\\\u0000\""`, `["\ud800\u0000"]`} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var want, got any
		if !utf8.Valid(data) || json.Unmarshal(data, &want) != nil {
			storable(data)
			return
		}
		text := storable(data)
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("storable(%q) = %q: %v", data, text, err)
		}
		w, _ := json.Marshal(want)
		g, _ := json.Marshal(got)
		if strings.Contains(string(w), `\u0000`) {
			return // the one thing that differs
		}
		if !reflect.DeepEqual(w, g) {
			t.Errorf("storable(%q) = %q means %s, want %s", data, text, g, w)
		}
	})
}
