package output

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/documented"
)

// vector is one case of testdata/outputters.json: a value, the options, and what
// Salt 3006 prints. The file says in its "about" how values are marked.
type vector struct {
	ID     string
	Out    *string
	Opts   map[string]any
	Kwargs struct {
		Retcode int `json:"_retcode"`
		Indent  int `json:"nested_indent"`
	}
	Data      json.RawMessage
	Formatted *string
	Stdout    string
}

// byOrder is the reason for which the same characters come in another order.
const byOrder = "maps are printed in the order of their keys, not of their making"

// differences are the cases in which we print otherwise than Salt, by reason.
var differences = map[string][]string{
	byOrder: {
		"0445", "0498", "0500", "0501", "0540", "0542", "0545", "0618", "0661", "0664", "0666", "0669", "0676", "0678", "0689", "0690",
		"0692", "0783", "0787", "0789", "0795", "0822", "0828", "0830", "0831", "0832", "0841", "0842",
	},
	"a value has no ordered map of its own type":                                  {"0619", "0621"},
	"the keys of a map are text":                                                  {"0548", "0549", "0556", "0559", "0561", "0563", "0565", "0566", "0568", "0571", "0845"},
	"a value has no tuple, only lists":                                            {"0580", "0587", "0593", "0594"},
	"a value has no set, only lists":                                              {"0623", "0626", "0628", "0629", "0848"},
	"bytes that are UTF-8 are text":                                               {"0596", "0600", "0601", "0610", "0611", "0612", "0613", "0849"},
	"bytes that are not UTF-8 pass to a pipe as they are":                         {"0605", "0608"},
	"json has no NaN and no infinity, so they are text and the document is valid": {"0085", "0092", "0854"},
	"an indent is a number, also if the configuration has it as text":             {"0839", "0840"},
	"an unknown outputter is an error, also one for states, which are not ours":   {"0804", "0817", "0820"},
	"table shows what is no table as nested does, instead of blank lines":         {"0812"},
}

func TestVectors(t *testing.T) {
	documented.Differences(t, slices.Collect(maps.Keys(differences))...)
	differs := map[string]string{}
	for reason, ids := range differences {
		for _, id := range ids {
			differs["outputters-"+id] = reason
		}
	}
	agreed := 0
	for _, v := range loadVectors(t) {
		got, want := v.answer(t), v.Stdout
		reason, listed := differs[v.ID]
		delete(differs, v.ID)
		switch same := got == want; {
		case listed && reason == byOrder && sortedText(got) != sortedText(want):
			t.Errorf("%s differs by more than the order:\n got %q\nwant %q", v.ID, got, want)
		case same && listed:
			t.Errorf("%s agrees with Salt, but is listed as different: %s", v.ID, reason)
		case !same && !listed:
			t.Errorf("%s %s:\n got %q\nwant %q", v.ID, v.Data, got, want)
		case same:
			agreed++
		}
	}
	if len(differs) > 0 {
		t.Errorf("listed as different, but not among the cases: %v", differs)
	}
	t.Logf("%d cases agree with Salt", agreed)
}

// sortedText returns the characters of s in order.
func sortedText(s string) string {
	runes := []rune(s)
	slices.Sort(runes)
	return strings.TrimSpace(string(runes))
}

func loadVectors(t *testing.T) []vector {
	t.Helper()
	b, err := os.ReadFile("testdata/outputters.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []vector }
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	return file.Cases
}

// answer is what we print for the case, or the error in angle brackets.
func (v vector) answer(t *testing.T) string {
	name, hint := "", ""
	if v.Out != nil {
		hint = *v.Out
	}
	if s, ok := v.Opts["output"].(string); ok {
		name = s
	} else if slices.Contains(Names(), hint) || hint == "nosuch" {
		name, hint = hint, "" // the user's choice, as most cases mean it
	}
	opt := Options{Margin: v.Kwargs.Indent, Failed: v.Kwargs.Retcode != 0, KeepEscapes: v.Opts["strip_colors"] == false}
	opt.Color = v.Opts["color"] == true || v.Opts["force_color"] == true
	if v.Opts["__multi_key"] == true {
		opt.Margin = 4
	}
	if n, ok := indentOf(v.Opts["output_indent"]); ok {
		opt.Indent = &n
	}
	var b strings.Builder
	w, err := NewWriter(&b, name, opt)
	if err != nil {
		return "<" + err.Error() + ">"
	}
	if err := w.Whole(unmark(t, v.Data), hint); err != nil {
		return "<" + err.Error() + ">"
	}
	if err := w.Close(); err != nil {
		return "<" + err.Error() + ">"
	}
	return b.String()
}

func indentOf(v any) (int, bool) {
	switch x := v.(type) {
	case float64:
		return int(x), true
	case bool:
		return 1, x
	case string:
		n, err := strconv.Atoi(x)
		return n, err == nil
	}
	return 0, false
}

// unmark makes a value of the marks in the file of cases. Tuples and sets become
// lists, other keys than text become text: our values have no such types.
func unmark(t *testing.T, raw json.RawMessage) any {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return plain(v)
}

func plain(v any) any {
	switch x := v.(type) {
	case json.Number:
		n, _ := value.Decode([]byte(x))
		return n
	case []any:
		list := make([]any, len(x))
		for i := range x {
			list[i] = plain(x[i])
		}
		return list
	case map[string]any:
		for mark, inner := range x {
			if v, ok := marked(mark, inner); ok {
				return v
			}
		}
		m := maps.Clone(x)
		for k := range m {
			m[k] = plain(m[k])
		}
		return m
	}
	return v
}

func marked(mark string, inner any) (any, bool) {
	switch mark {
	case "$float":
		f, err := strconv.ParseFloat(inner.(string), 64)
		return f, err == nil || math.IsInf(f, 0)
	case "$int":
		n, err := value.Decode([]byte(inner.(string)))
		return n, err == nil
	case "$bytes":
		b, err := hex.DecodeString(inner.(string))
		return string(b), err == nil
	case "$tuple", "$set":
		return plain(inner), true
	case "$pairs", "$ordered":
		m := map[string]any{}
		for _, pair := range inner.([]any) {
			m[value.Str(plain(pair.([]any)[0]))] = plain(pair.([]any)[1])
		}
		return m, true
	}
	return nil, false
}
