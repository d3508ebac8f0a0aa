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

// differences are the cases in which we print otherwise than Salt, by reason.
var differences = map[string][]string{
	"a value has no ordered map of its own type: any map keeps its order":                         {"0618", "0619", "0621"},
	"json has no NaN and no infinity, so they are text and the document is valid":                 {"0085", "0092", "0854"},
	"an indent is a number, also if the configuration has it as text":                             {"0839", "0840"},
	"an unknown outputter is an error":                                                            {"0804", "0820"},
	"the outputter table shows what is not a table as nested does; in Salt it prints blank lines": {"0812"},
}

func TestVectors(t *testing.T) {
	documented.Differences(t, slices.Collect(maps.Keys(differences))...)
	differs := map[string]string{}
	for reason, ids := range differences {
		for _, id := range ids {
			differs["outputters-"+id] = reason
		}
	}
	var count documented.Comparison
	for _, v := range loadVectors(t) {
		got, want := v.answer(t), v.Stdout
		reason, listed := differs[v.ID]
		delete(differs, v.ID)
		same := got == want
		switch {
		case same && listed:
			t.Errorf("%s agrees with Salt, but is listed as different: %s", v.ID, reason)
		case !same && !listed:
			t.Errorf("%s %s:\n got %q\nwant %q", v.ID, v.Data, got, want)
		}
		count.Count(documented.Refusal(same, !strings.HasPrefix(got, "<"), true))
	}
	if len(differs) > 0 {
		t.Errorf("listed as different, but not among the cases: %v", differs)
	}
	count.Stands(t, "output")
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
	opt.Sorted = v.Opts["output_indent"] == "pretty"
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

// unmark makes a value of the marks in the file of cases.
func unmark(t *testing.T, raw json.RawMessage) any {
	v, err := value.DecodeExact(bytes.ReplaceAll(raw, []byte(`"$`), []byte(`"#`))) // the marks are the file's own
	if err != nil {
		t.Fatal(err)
	}
	return plain(v)
}

func plain(v any) any {
	switch x := v.(type) {
	case []any:
		list := make([]any, len(x))
		for i := range x {
			list[i] = plain(x[i])
		}
		return list
	case value.Map:
		if len(x) == 1 {
			if v, ok := marked(x[0].Key, x[0].V); ok {
				return v
			}
		}
		m := make(value.Map, len(x))
		for i, e := range x {
			m[i] = value.Entry{Key: e.Key, V: plain(e.V)}
		}
		return m
	}
	return v
}

func marked(mark, inner any) (any, bool) {
	switch mark {
	case "#float":
		f, err := strconv.ParseFloat(inner.(string), 64)
		return f, err == nil || math.IsInf(f, 0)
	case "#int":
		n, err := value.Decode([]byte(inner.(string)))
		return n, err == nil
	case "#bytes":
		b, err := hex.DecodeString(inner.(string))
		return value.Bytes(b), err == nil
	case "#tuple":
		return value.Tuple(plain(inner).([]any)), true
	case "#set":
		return value.Set(plain(inner).([]any)), true
	case "#pairs", "#ordered":
		m := value.Map{}
		for _, pair := range inner.([]any) {
			m = append(m, value.Entry{Key: plain(pair.([]any)[0]), V: plain(pair.([]any)[1])})
		}
		return m, true
	}
	return nil, false
}
