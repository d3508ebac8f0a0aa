package argument

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/documented"
)

// vector is one case of testdata/cli_args.json: words and what Salt 3006 makes
// of them. The file says in its "about" how values are marked.
type vector struct {
	ID          string
	Kind        string
	Words       []any
	Word        string
	NoParse     []string `json:"no_parse"`
	Args        []any
	Kwargs      map[string]any
	Conditioned []any
	Name, Value *string
}

// differences are the cases in which we answer otherwise than Salt, by reason.
var differences = map[string][]string{
	"times of day stay text; they do not become numbers to the base of 60": {"0036", "0037"},
	"a word that YAML reads as null stays text":                            {"0218", "0231", "0232"},
	"a word that is only ! stays text: many shell commands begin with it":  {"0210"},
	"the input is not words but values of Salt's Python API":               {"0485", "0487", "0488"},
}

func TestVectors(t *testing.T) {
	documented.Differences(t, slices.Collect(maps.Keys(differences))...)
	differs := map[string]string{}
	for reason, ids := range differences {
		for _, id := range ids {
			differs["cli_args-"+id] = reason
		}
	}
	var count documented.Comparison
	for _, v := range loadVectors(t) {
		got, want := v.answers(t)
		reason, listed := differs[v.ID]
		delete(differs, v.ID)
		same := sameValue(got, want)
		switch {
		case same && listed:
			t.Errorf("%s agrees with Salt, but is listed as different: %s", v.ID, reason)
		case !same && !listed:
			t.Errorf("%s %v%q:\n got %#v\nwant %#v", v.ID, v.Words, v.Word, got, want)
		}
		_, failed := got.(error)
		count.Count(documented.Refusal(same, !failed, true))
	}
	if len(differs) > 0 {
		t.Errorf("listed as different, but not among the cases: %v", differs)
	}
	count.Stands(t, "arguments")
}

func loadVectors(t *testing.T) []vector {
	t.Helper()
	b, err := os.ReadFile("testdata/cli_args.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []json.RawMessage }
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	vectors := make([]vector, len(file.Cases))
	for i, c := range file.Cases {
		if err := json.Unmarshal(c, &vectors[i]); err != nil {
			t.Fatal(err)
		}
	}
	return vectors
}

// answers returns our answer and Salt's for one case, each as a comparable tree.
func (v vector) answers(t *testing.T) (got, want any) {
	switch v.Kind {
	case "words":
		words := make([]string, len(v.Words))
		for i, w := range v.Words {
			s, ok := w.(string)
			if !ok {
				return "not words", nil
			}
			words[i] = s
		}
		args, kwargs, err := Parse(words, Options{NoParse: v.NoParse})
		if err != nil {
			return err, nil
		}
		return []any{slices.Clone(args), maps.Clone(kwargs), condition(args, kwargs)}, unmark([]any{v.Args, v.Kwargs, v.Conditioned})
	case "parse_kwarg":
		name, text, ok := Keyword(v.Word)
		if v.Name == nil {
			return ok, false
		}
		return []any{name, text}, []any{*v.Name, *v.Value}
	}
	t.Fatalf("%s: unknown kind %s", v.ID, v.Kind)
	return nil, nil
}

// unmark makes values of the marks in the file of cases.
func unmark(v any) any {
	switch x := v.(type) {
	case float64:
		if x == math.Trunc(x) {
			return int64(x) // a float without fraction is marked as such
		}
	case []any:
		list := make([]any, len(x))
		for i := range x {
			list[i] = unmark(x[i])
		}
		return list
	case map[string]any:
		if s, ok := x["$float"].(string); ok {
			f, _ := strconv.ParseFloat(s, 64)
			return f
		}
		if s, ok := x["$int"].(string); ok {
			i, _ := value.Decode([]byte(s))
			return i
		}
		dict := map[string]any{}
		for k := range x {
			dict[k] = unmark(x[k])
		}
		return dict
	}
	return v
}

// sameValue compares by what travels: 1 and 1.0 differ, nan is nan.
func sameValue(got, want any) bool {
	if _, failed := got.(error); failed {
		return false
	}
	a, errA := value.Encode(got)
	b, errB := value.Encode(want)
	return errA == nil && errB == nil && string(a) == string(b)
}

func TestWord(t *testing.T) {
	for word, want := range map[string]any{
		"12:30": "12:30", "1:30:45.5": "1:30:45.5", "190:20:30": "190:20:30", "[12:30]": []any{"12:30"},
		">": ">", ">-": ">-", "|-": "|-", "|+2": "|+2", "&a": "&a", "&a x": "&a x", "--- a": "--- a", "... a": "... a",
		"! test -f x": "! test -f x", "!x": "!x", "! ": "! ", "!": "!",
		"-017": int64(-17), "+017": int64(17), "0o17": "0o17", "0x_1f": int64(31), "-0b11": int64(-3), "0x": "0x", "0b_": "0b_",
		"9223372036854775808": value2(t, "9223372036854775808"), "-9223372036854775808": int64(math.MinInt64),
		"1.": 1.0, "1.0e+400": math.Inf(1), "1.0e-3": 0.001, "._5": "._5", ".": ".", "-.inf": math.Inf(-1), "1.5e3": "1.5e3", "_1.5": "_1.5",
		"  12 ": int64(12), " yes ": true, " a  b ": "a  b", " None": "None", "None": nil, "null": nil, "\u00a0": "\u00a0",
		"\ufeff12": int64(12), "\ufeff{a: 1}": "\ufeff{a: 1}", "a\xff": "a\xff", "\x1b[1m": "\x1b[1m", "{a: \x1b}": "{a: \x1b}", "\ufffd": "\ufffd",
		"1 #x": int64(1), "~ #x": "~ #x", "a: b": "a: b", "a:": "a:", ":a": ":a", "? a": "? a", "?a": "?a", "%a": "%a", "`a`": "`a`",
		"{a: 1, a: 2}": "{a: 1, a: 2}", "{<<: {a: 1}}": "{<<: {a: 1}}", "{1: a, yes: b}": map[string]any{"1": "a", "yes": "b"},
		"{[a]: b}": "{[a]: b}", "[a]: b": "[a]: b", "'a': b": "'a': b", "{a: 1} {b: 2}": "{a: 1} {b: 2}", "[a] --- [b]": "[a] --- [b]",
		"[&x 1, *x]": "[&x 1, *x]", "[&x [*x]]": "[&x [*x]]", "[*x]": "[*x]", "[!!set {a}]": "[!!set {a}]", "{a: !!python/tuple [1]}": "{a: !!python/tuple [1]}",
		"[https://a/b?c=d]": []any{"https://a/b?c=d"}, "{a:1}": map[string]any{"a:1": nil}, "{\"a\":1}": map[string]any{"a": int64(1)}, "[a:]": "[a:]", "[a: ]": []any{map[string]any{"a": nil}},
		"[-]": []any{"-"}, "[- a]": "[- a]", "[? a]": "[? a]", "[a, #b]": "[a, #b]", "[a]#b": []any{"a"}, "[a b : c d]": []any{map[string]any{"a b": "c d"}}, "[a: b: c]": "[a: b: c]",
		"\"\\x41\\u00e9\\U0001F9C2\\e\"": "Aé🧂\x1b", "\"\\ud800\"": "\"\\ud800\"", "\"\\x4\"": "\"\\x4\"", "\"\\q\"": "\"\\q\"", "\"\\": "\"\\", "'": "'", "echo a: b #c": "echo a: b #c",
		"[~, 'no', no, 1.0]": []any{nil, "no", false, 1.0}, "!!float 5": 5.0, "!!int x": "!!int x", "!!bool 'no'": false, "!!null x": nil, "!!str": "",
	} {
		if got, err := Word(word); err != nil || !sameValue(got, want) {
			t.Errorf("Word(%q) = %#v, %v; want %#v", word, got, err, want)
		}
	}
}

func value2(t *testing.T, s string) any {
	v, err := value.Decode([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestWordLimits(t *testing.T) {
	for name, c := range map[string]struct {
		word string
		want error
	}{
		"deep list":     {strings.Repeat("[", value.MaxDepth+2) + strings.Repeat("]", value.MaxDepth+2), value.ErrDepth},
		"deep map":      {strings.Repeat("{a: ", value.MaxDepth+2) + strings.Repeat("}", value.MaxDepth+2), value.ErrDepth},
		"many digits":   {strings.Repeat("9", 4097), nil},
		"long list":     {"[" + strings.Repeat("x,", 100_000) + "]", nil},
		"deepest legal": {strings.Repeat("[", value.MaxDepth) + strings.Repeat("]", value.MaxDepth), nil},
	} {
		v, err := Word(c.word)
		if !errors.Is(err, c.want) || err != nil && v != nil {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if err != nil && (len(err.Error()) > 200 || salt.Hint(err) == "") {
			t.Errorf("%s: the error is long or has no hint: %v", name, err)
		}
		if _, _, err := Parse([]string{"a", "k=" + c.word}, Options{}); !errors.Is(err, c.want) {
			t.Errorf("%s as a keyword: %v, want %v", name, err, c.want)
		}
		if args, kwargs, err := Parse([]string{"k=" + c.word}, Options{NoParse: []string{"k"}}); err != nil || len(args) != 0 || kwargs["k"] != c.word {
			t.Errorf("%s is typed although no_parse names it: %v", name, err)
		}
	}
}

// condition is what becomes of the arguments of a job, in the one list that Salt has for them:
// the keywords are its last item.
func condition(args []any, kwargs map[string]any) []any {
	JobIDsAsText(args, kwargs)
	list := append([]any{}, args...)
	if len(kwargs) == 0 {
		return list
	}
	last := maps.Clone(kwargs)
	last[keywordsKey] = true
	return append(list, last)
}

func TestJobIDsAsText(t *testing.T) {
	jid := value2(t, "20261121113344286549")
	args, kwargs := []any{jid, int64(1)}, map[string]any{"jid": jid, "n": value2(t, "-99999999999999999999")}
	JobIDsAsText(args, kwargs)
	if args[0] != "20261121113344286549" || kwargs["jid"] != "20261121113344286549" {
		t.Errorf("a jid did not become text: %v %v", args, kwargs)
	}
	if _, isText := kwargs["n"].(string); isText {
		t.Errorf("a negative number became text: %v", kwargs)
	}
	JobIDsAsText(nil, nil)
}

func TestSplit(t *testing.T) {
	list := []any{"a", map[string]any{keywordsKey: true, "x": int64(1)}, map[string]any{keywordsKey: "yes"}, map[string]any{keywordsKey: true, "x": int64(2)}, map[string]any{"y": nil}}
	before, _ := value.Encode(list)
	args, kwargs := Split(list)
	if want := []any{"a", map[string]any{keywordsKey: "yes"}, map[string]any{"y": nil}}; !reflect.DeepEqual(args, want) {
		t.Errorf("args %v, want %v", args, want)
	}
	if want := map[string]any{"x": int64(2)}; !reflect.DeepEqual(kwargs, want) {
		t.Errorf("kwargs %v, want %v", kwargs, want)
	}
	if after, _ := value.Encode(list); string(before) != string(after) {
		t.Errorf("the list changed from %s to %s", before, after)
	}
	if args, kwargs := Split(nil); args == nil || kwargs == nil {
		t.Errorf("Split(nil) = %#v, %#v", args, kwargs)
	}
}

func TestCompound(t *testing.T) {
	two := []string{"a.b", "c.d"}
	for name, c := range map[string]struct {
		funs, words []string
		separator   string
		want        [][]string
		err         error
	}{
		"one function keeps its commas":     {[]string{"a.b"}, []string{"x,y", ","}, ",", [][]string{{"x,y", ","}}, nil},
		"standalone":                        {two, []string{"x", ",", "y,z"}, ",", [][]string{{"x"}, {"y,z"}}, nil},
		"within":                            {two, []string{"x,y"}, ",", [][]string{{"x"}, {"y"}}, nil},
		"an empty word is an argument":      {two, []string{"", ",", ""}, ",", [][]string{{""}, {""}}, nil},
		"only a separator":                  {two, []string{","}, ",", [][]string{nil, nil}, nil},
		"no words":                          {two, nil, ",", [][]string{nil, nil}, nil},
		"long separator":                    {two, []string{"x,", "--", "y"}, "--", [][]string{{"x,"}, {"y"}}, nil},
		"too few":                           {two, []string{"x"}, ",", nil, ErrTooFew},
		"too many":                          {two, []string{"x", ",", "y", ",", "z"}, ",", nil, ErrTooMany},
		"both ways do not fit, within does": {[]string{"a.b", "c.d", "e.f"}, []string{"x", ",", "y,z"}, ",", [][]string{{"x"}, {"y"}, {"z"}}, nil},
	} {
		got, err := Compound(c.funs, c.words, c.separator)
		if !errors.Is(err, c.err) || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: Compound(%q, %q, %q) = %q, %v; want %q, %v", name, c.funs, c.words, c.separator, got, err, c.want, c.err)
		}
		if err != nil && salt.Hint(err) == "" {
			t.Errorf("%s: the error has no hint: %v", name, err)
		}
	}
	if _, err := Compound(two, []string{"x"}, ""); err == nil {
		t.Error("an empty separator was accepted")
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"{a: [1, 'x']}", "k=yes", "[&a 1, *a]", "!!int '5'", "0x1f", "1:30", "{<<: *a}", "\"\\x41\"", "a=b\n", "'", "- a", "\ufeff[", "[%", "{? }", "[!<x> a]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, word string) {
		args, kwargs, err := Parse([]string{word}, Options{})
		if err != nil {
			if args != nil || kwargs != nil {
				t.Fatalf("an error and a result: %v %v %v", args, kwargs, err)
			}
			return
		}
		if len(args)+len(kwargs) != 1 {
			t.Fatalf("Parse(%q) = %v, %v: not one value", word, args, kwargs)
		}
		wire, err := value.Encode(condition(args, kwargs))
		if err != nil {
			t.Fatalf("Parse(%q) gave what has no wire form: %v", word, err)
		}
		list, err := value.Decode(wire)
		if err != nil {
			t.Fatalf("Decode(%s): %v", wire, err)
		}
		backArgs, backKwargs := Split(list.([]any))
		if again, _ := value.Encode(condition(backArgs, backKwargs)); string(again) != string(wire) && kwargs[keywordsKey] == nil {
			t.Errorf("%s came back as %s", wire, again)
		}
	})
}

func BenchmarkPlainWord(b *testing.B) {
	for b.Loop() {
		if _, err := Word("/etc/salt/minion.d/f_defaults.conf"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMapWord(b *testing.B) {
	for b.Loop() {
		if _, err := Word("{a: 1, b: [x, y]}"); err != nil {
			b.Fatal(err)
		}
	}
}
