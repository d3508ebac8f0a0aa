package yamlfile

import (
	"errors"
	"math"
	"reflect"
	"testing"
)

// TestWordsMeanTheSameInEveryFile has the meanings of Salt's own loader.
func TestWordsMeanTheSameInEveryFile(t *testing.T) {
	for text, want := range map[string]any{
		"yes": true, "Off": false, "~": nil, "010": int64(10), "1:30": int64(90), "0x1f": int64(31), "1_000": int64(1000),
		"2026-01-02": "2026-01-02", "1e3": "1e3", "1.5": 1.5, ".inf": math.Inf(1), "'yes'": "yes", "!!str 1": "1", "!!int 7": int64(7),
		"[no, {a: on}]": []any{false, map[string]any{"a": true}}, "{<<: {x: 1}, y: 2}": map[string]any{"x": int64(1), "y": int64(2)},
	} {
		root, err := Parse("f", []byte("a: "+text+"\n"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := Value(root).(map[string]any)["a"]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %#v, want %#v", text, got, want)
		}
	}
	for _, text := range []string{"!!int x", "!!bool 1", "!!python/object:os.system x", "!mine {}", "[1]]", "{a: 1, a: 2}", "\x01"} {
		root, err := Parse("f", []byte("a: "+text+"\n"))
		var mistake *Error
		if root != nil || !errors.As(err, &mistake) || mistake.Line != 1 || mistake.File != "f" {
			t.Errorf("%s: %v, %v; want an *Error in line 1", text, root, err)
		}
	}
	for _, text := range []string{"", "# nothing\n", "---\n", "~\n", "\ufeff"} {
		if root, err := Parse("f", []byte(text)); root != nil || err != nil {
			t.Errorf("%q: %v, %v", text, root, err)
		}
	}
}

func TestShortenComments(t *testing.T) {
	for text, want := range map[string]string{
		"# a\nb: 1 # c\n# d":         "#\nb: 1 # c\n#\n",
		"a: |\n  # kept\n# gone\n":   "a: |\n  # kept\n#\n",
		"a: \"b\n# c\"\n":            "a: \"b\n# c\"\n",
		"a: \"b \\\" d\n# c\"\n":     "a: \"b \\\" d\n# c\"\n",
		"a: 'b\n# c'\nd: 'e'\n# f\n": "a: 'b\n# c'\nd: 'e'\n# f\n",
	} {
		if got := shortenComments([]byte(text)); string(got) != want {
			t.Errorf("shortenComments(%q) = %q, want %q", text, got, want)
		}
	}
}

// FuzzShortenComments states that the comments do not matter.
func FuzzShortenComments(f *testing.F) {
	for _, seed := range []string{"# a\nb: 1\n", "a: 'x\n# y'\n", "a: |\n x\n# y\n z\n", "a: x\n# y\n  z\n", "a: [b,\n# c\n d]\n", "? |\n# x\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if checkText("f", []byte(text)) != nil {
			return
		}
		with, err1 := parseYAML("f", []byte(text))
		without, err2 := parseYAML("f", shortenComments([]byte(text)))
		if (err1 == nil) != (err2 == nil) || (with == nil) != (without == nil) || with != nil && !reflect.DeepEqual(Value(with), Value(without)) {
			t.Errorf("%q: with its comments %v, without %v", text, err1, err2)
		}
	})
}
