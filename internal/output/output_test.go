package output

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/order"
)

func TestNames(t *testing.T) {
	order.Check(t, "outputters", Names())
	_, err := New("dson", Options{})
	if !errors.Is(err, ErrUnknown) || !strings.Contains(salt.Hint(err), "json, jsonl, key, nested") {
		t.Errorf("unknown outputter: %v, hint %q", err, salt.Hint(err))
	}
	if _, err := NewWriter(io.Discard, "nosuch", Options{}); !errors.Is(err, ErrUnknown) {
		t.Errorf("NewWriter of an unknown outputter: %v", err)
	}
}

// formatted formats data with the named outputter.
func formatted(t *testing.T, name string, opt Options, data any) string {
	t.Helper()
	o, err := New(name, opt)
	if err != nil {
		t.Fatal(err)
	}
	text, err := o.Format(data)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestFormat(t *testing.T) {
	one, nine := -1, 9
	long := strings.Repeat("word ", 30) + "end"
	for name, c := range map[string]struct {
		out  string
		opt  Options
		data any
		want string
	}{
		"go types":              {"json", Options{Indent: &one}, map[string]any{"n": 1, "l": []string{"a"}}, `{"l": ["a"], "n": 1}`},
		"jsonl ignores indent":  {"jsonl", Options{Indent: &nine}, map[string]any{"a": []any{int64(1), nil}}, `{"a": [1, null]}`},
		"json of bytes":         {"json", Options{}, "\xff", `"b'\\xff'"`},
		"yaml of bytes":         {"yaml", Options{}, map[string]any{"a": "\xff\x00"}, "a: !!binary |\n  /wA="},
		"yaml of bytes in flow": {"yaml", Options{Indent: &one}, []any{"\xff"}, `[!!binary "/w==\n"]`},
		"yaml folds":            {"yaml", Options{}, map[string]any{"a": long}, "a: " + strings.Repeat("word ", 15) + "word\n  " + strings.Repeat("word ", 14) + "end"},
		"yaml long key":         {"yaml", Options{}, map[string]any{strings.Repeat("k", 129): int64(1)}, "? " + strings.Repeat("k", 129) + "\n: 1"},
		"nan in a map":          {"pprint", Options{}, map[string]any{"a": math.NaN()}, "{'a': nan}"},
		"pprint breaks":         {"pprint", Options{}, []any{strings.Repeat("a", 50), strings.Repeat("b", 50)}, "['" + strings.Repeat("a", 50) + "',\n '" + strings.Repeat("b", 50) + "']"},
		"pprint breaks text":    {"pprint", Options{}, long, "('" + strings.Repeat("word ", 15) + "'\n '" + strings.Repeat("word ", 15) + "'\n 'end')"},
		"nested of Windows":     {"nested", Options{Terminal: true}, map[string]any{"w": "a\r\nb"}, "w:\n    a\n    b"},
		"values in their order": {"newline_values_only", Options{}, map[string]any{"b": "2", "a": []any{"1", int64(3)}}, "1\n3\n2"},
		"keys of another kind":  {"key", Options{}, map[string]any{"minions": "x"}, "minions:\n    x"},
		"empty":                 {"nested", Options{}, map[string]any{}, ""},
	} {
		if got := formatted(t, c.out, c.opt, c.data); got != c.want {
			t.Errorf("%s: %s of %#v\n got %q\nwant %q", name, c.out, c.data, got, c.want)
		}
	}
}

func TestTable(t *testing.T) {
	data := map[string]any{"web1": map[string]any{
		"out": []any{
			map[string]any{"last_move": 0.0, "mac": "40:A6", "note": strings.Repeat("wrap ", 11) + "end"},
			map[string]any{"mac": "64:16", "static": true},
		},
		"result": true,
	}}
	want, err := os.ReadFile("testdata/table.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got := formatted(t, "table", Options{}, data) + "\n"; got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	lists := formatted(t, "table", Options{}, []any{[]any{"a", int64(1)}, []any{"b"}})
	if want := "---------\n| a | 1 |\n---------\n| b |   |\n---------"; lists != want {
		t.Errorf("rows of lists:\n%s\nwant\n%s", lists, want)
	}
	for _, v := range []any{int64(1), []any{}, []any{int64(1), map[string]any{"a": nil}}, map[string]any{"a": []any{map[string]any{}}}} {
		if got, nested := formatted(t, "table", Options{}, v), formatted(t, "nested", Options{}, v); got != nested {
			t.Errorf("table of %v: %q, want nested's %q", v, got, nested)
		}
	}
}

// TestTerminal checks that no outputter lets a return steer a terminal, and that
// a pipe gets the bytes as they are.
func TestTerminal(t *testing.T) {
	evil := "\x1b]0;owned\x07\x1b[2J\rover\x08\x7f\u009b31m\x9b31m\x00\x0e"
	data := map[string]any{"web1": evil, "list": []any{evil, []any{evil}}, "maps": []any{map[string]any{evil: evil}}, evil: map[string]any{evil: evil}}
	for _, name := range Names() {
		for _, v := range []any{data, evil, []any{evil}, map[string]any{"minions": []any{evil}}, map[string]any{"minions": map[string]any{evil: evil}}} {
			text := formatted(t, name, Options{Terminal: true, KeepEscapes: true}, v)
			if steers(text) {
				t.Errorf("%s prints %q on a terminal", name, text)
			}
		}
	}
	for _, name := range []string{"txt", "newline_values_only", "raw", "no_return"} {
		if got := formatted(t, name, Options{}, "\x1b[1m\x9b x"); name != "raw" && !strings.Contains(got, "\x9b") {
			t.Errorf("%s to a pipe: %q", name, got)
		}
	}
	want := `\x1b[2J\x9b \xff` + "\tü\r\n"
	if got := (Options{Terminal: true}).visible("\x1b[2J\u009b \xff\tü\r\n"); got != want {
		t.Errorf("visible: %q, want %q", got, want)
	}
}

// steers says whether text has a control character or a byte that is not UTF-8.
func steers(text string) bool {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	return !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' })
}

func TestFormatErrors(t *testing.T) {
	var deep any
	for range value.MaxDepth + 2 {
		deep = []any{deep}
	}
	for _, name := range Names() {
		o, _ := New(name, Options{})
		if text, err := o.Format(deep); !errors.Is(err, value.ErrDepth) || text != "" {
			t.Errorf("%s of a deep value: %q, %v", name, text, err)
		}
		if text, err := o.Format(make(chan int)); err == nil || text != "" {
			t.Errorf("%s of a channel: %q, %v", name, text, err)
		}
	}
}

// write prints the returns with a Writer and gives what had come before Close.
func write(t *testing.T, name string, opt Options, returns ...Return) (before, all string) {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, name, opt)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range returns {
		if err := w.Return(r); err != nil {
			t.Fatal(err)
		}
	}
	before = b.String()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return before, b.String()
}

func TestWriter(t *testing.T) {
	two := []Return{{ID: "web2", Value: true}, {ID: "web1", Value: map[string]any{"a": int64(1)}, Hint: "raw", Failed: true}}
	one := -1
	for name, c := range map[string]struct {
		out         string
		opt         Options
		returns     []Return
		before, all string
	}{
		"hints":           {"", Options{}, two, "web2:\n    True\n{'web1': {'a': 1}}\n", "web2:\n    True\n{'web1': {'a': 1}}\n"},
		"hint overruled":  {"txt", Options{}, two, "web2: True\nweb1: {'a': 1}\n", "web2: True\nweb1: {'a': 1}\n"},
		"unknown hint":    {"", Options{}, []Return{{ID: "a", Value: "x", Hint: "highstate"}}, "a:\n    x\n", "a:\n    x\n"},
		"failed":          {"nested", Options{Color: true}, []Return{{ID: "a", Failed: true}}, "\x1b[0;31ma\x1b[0;0m:\n    \x1b[0;1;33mNone\x1b[0;0m\n", "\x1b[0;31ma\x1b[0;0m:\n    \x1b[0;1;33mNone\x1b[0;0m\n"},
		"json":            {"json", Options{}, two, "{\n    \"web2\": true,\n    \"web1\": {\n        \"a\": 1\n    }", "{\n    \"web2\": true,\n    \"web1\": {\n        \"a\": 1\n    }\n}\n"},
		"json, one line":  {"json", Options{Indent: &one}, two, `{"web2": true, "web1": {"a": 1}`, `{"web2": true, "web1": {"a": 1}}` + "\n"},
		"json of none":    {"json", Options{}, nil, "", "{}\n"},
		"jsonl":           {"jsonl", Options{}, two, "{\"web2\": true}\n{\"web1\": {\"a\": 1}}\n", "{\"web2\": true}\n{\"web1\": {\"a\": 1}}\n"},
		"yaml":            {"yaml", Options{}, two, "web2: true\nweb1:\n  a: 1\n", "web2: true\nweb1:\n  a: 1\n"},
		"quiet":           {"quiet", Options{}, two, "", ""},
		"static":          {"", Options{Static: true}, two, "", "{'web1': {'a': 1}}\nweb2:\n    True\n"},
		"static json":     {"json", Options{Static: true, Indent: &one}, two, "", `{"web1": {"a": 1}, "web2": true}` + "\n"},
		"static raw":      {"raw", Options{Static: true}, two, "", "{'web1': {'a': 1}, 'web2': True}\n"},
		"static jsonl":    {"jsonl", Options{Static: true}, two, "", "{\"web1\": {\"a\": 1}}\n{\"web2\": true}\n"},
		"static, nothing": {"raw", Options{Static: true}, nil, "", ""},
		"static json {}":  {"json", Options{Static: true}, nil, "", "{}\n"},
	} {
		before, all := write(t, c.out, c.opt, c.returns...)
		if before != c.before || all != c.all {
			t.Errorf("%s:\n got %q then %q\nwant %q then %q", name, before, all, c.before, c.all)
		}
	}
}

func TestWriterWhole(t *testing.T) {
	var b bytes.Buffer
	w, _ := NewWriter(&b, "json", Options{})
	if err := errors.Join(w.Whole([]any{"a"}, "nested"), w.Close()); err != nil || b.String() != "[\n    \"a\"\n]\n" {
		t.Errorf("whole: %q, %v", b.String(), err)
	}
	b.Reset()
	w, _ = NewWriter(&b, "", Options{})
	if err := errors.Join(w.Whole("x", "raw"), w.Whole("", ""), w.Close()); err != nil || b.String() != "x\n" {
		t.Errorf("whole with a hint: %q, %v", b.String(), err)
	}
}

// oneWrite counts the writes, and fails with err.
type oneWrite struct {
	n   int
	err error
}

func (w *oneWrite) Write(b []byte) (int, error) {
	w.n++
	return len(b), w.err
}

func TestWriterWritesOnce(t *testing.T) {
	for _, name := range []string{"nested", "json", "jsonl", "txt", "yaml"} {
		out := &oneWrite{}
		w, _ := NewWriter(out, name, Options{})
		if err := w.Return(Return{ID: "a", Value: []any{"x", "y"}}); err != nil || out.n != 1 {
			t.Errorf("%s: one return in %d writes, %v", name, out.n, err)
		}
	}
}

func TestWriterErrors(t *testing.T) {
	r, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	r.Close()
	w, _ := NewWriter(pipe, "nested", Options{})
	if err := w.Return(Return{ID: "a"}); !errors.Is(err, ErrReaderGone) || !errors.Is(err, syscall.EPIPE) {
		t.Errorf("closed pipe: %v, want ErrReaderGone", err)
	}
	full := &oneWrite{err: syscall.ENOSPC}
	w, _ = NewWriter(full, "json", Options{})
	for range 2 {
		if err := w.Return(Return{ID: "a"}); !errors.Is(err, syscall.ENOSPC) || errors.Is(err, ErrReaderGone) {
			t.Errorf("full disk: %v", err)
		}
	}
	if err := errors.Join(w.Close(), w.Whole(nil, "")); !errors.Is(err, syscall.ENOSPC) || full.n != 1 {
		t.Errorf("after an error: %v and %d writes, want the error and no further write", err, full.n)
	}
	for _, name := range []string{"json", "nested"} {
		w, _ = NewWriter(io.Discard, name, Options{})
		if err := w.Return(Return{ID: "a", Value: make(chan int)}); err == nil {
			t.Errorf("%s printed a channel", name)
		}
	}
}

// FuzzFormat checks that every outputter takes every value, that json is JSON of
// the same meaning, and that a terminal gets nothing unsafe.
func FuzzFormat(f *testing.F) {
	for _, s := range []string{`{"web1": ["a", {"b": null}]}`, `{"$bytes":"/w=="}`, `"x\u001b[2J\u009b"`, `[[{"a b":"- c"}],"# d\n e "]`, `1e22`, `{"minions":["a"]}`} {
		f.Add([]byte(s), 4)
	}
	f.Fuzz(func(t *testing.T, b []byte, indent int) {
		v, err := value.Decode(b)
		if err != nil {
			return
		}
		indent %= 12
		opt := Options{Terminal: true, Indent: &indent, Color: indent%2 == 0}
		for _, name := range Names() {
			o, _ := New(name, opt)
			text, err := o.Format(v)
			if err != nil {
				t.Fatalf("%s of %s: %v", name, b, err)
			}
			if strings.HasPrefix(name, "json") && !json.Valid([]byte(text)) {
				t.Errorf("%s of %s is not JSON: %s", name, b, text)
			}
			if !opt.Color && steers(text) {
				t.Errorf("%s of %s steers the terminal: %q", name, b, text)
			}
		}
	})
}

func BenchmarkNested(b *testing.B) {
	o, _ := New("nested", Options{})
	data := map[string]any{"web1": strings.Repeat("one line of output\n", 100)}
	for b.Loop() {
		if _, err := o.Format(data); err != nil {
			b.Fatal(err)
		}
	}
}

// TestNamesStandInTheTableOnly: a new outputter is a row, and a file of its own. Whoever
// shows something asks the row.
func TestNamesStandInTheTableOnly(t *testing.T) {
	files, err := filepath.Glob("../cli/jobview/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range append(files, "writer.go") {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && slices.Contains(Names(), strings.Trim(lit.Value, `"`)) && !strings.HasSuffix(file, "_test.go") {
				t.Errorf("%s names the outputter %s: ask its row", file, lit.Value)
			}
			return true
		})
	}
}
