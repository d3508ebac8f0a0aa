package job

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// TestUpdateForms: the quick forms of an update are those of encoding/json.
func TestUpdateForms(t *testing.T) {
	ret := Report{State: Done, Return: value.Value{V: map[string]any{"a": "<\xff>\n", "b": []any{int64(1), 1.0}}}, Retcode: value.Value{V: int64(0)}, Success: value.Value{V: true}, Out: "highstate"}
	for name, u := range map[string]Update{
		"nothing":      {},
		"a return":     {ID: "web1", Report: ret},
		"why not":      {ID: `a"b`, Report: Report{State: Refused, Text: "line\nanother"}},
		"a batch":      {Begun: []salt.MinionID{"a", "b"}},
		"output":       {ID: "web1", Report: Report{State: Running, Output: []Output{{Error: true, Text: value.Value{V: "x\n"}}}}},
		"its end":      {ID: "web1", Report: Report{State: Running, OutputEnd: true}},
		"nothing back": {ID: "web1", Report: Report{State: Failed, Return: value.Value{V: nil}, Retcode: value.Value{V: int64(1)}, Success: value.Value{V: false}}},
	} {
		b, err := u.Append([]byte("x"))
		if err != nil || b[0] != 'x' || strings.ContainsAny(string(b), "\r\n") {
			t.Fatalf("%s: %s, %v", name, b, err)
		}
		var plain Update
		if err := json.Unmarshal(b[1:], &plain); err != nil || !reflect.DeepEqual(plain, u) {
			t.Errorf("%s: written as %s, which is %+v, %v", name, b[1:], plain, err)
		}
		if got, err := ReadUpdate(b[1:]); err != nil || !reflect.DeepEqual(got, u) {
			t.Errorf("%s: %s is read as %+v, %v", name, b[1:], got, err)
		}
	}
}

// TestAppendReturn: a return is what encoding/json makes of it.
func TestAppendReturn(t *testing.T) {
	type form struct {
		Report
		Commands []Command `json:"commands"`
	}
	in := form{Report{State: Killed, Return: value.Value{V: []any{"<&>", 1.5, nil}}, Retcode: value.Value{V: int64(1)}, Success: value.Value{V: false}, Out: "nested", Text: "by root"},
		[]Command{{Function: "test.arg", Args: []any{"a", int64(1)}, Kwargs: map[string]any{"k": []any{}}}, {Function: "test.ping", Args: []any{}, Kwargs: map[string]any{}}}}
	b, err := in.AppendReturn(nil, in.Commands)
	if err != nil {
		t.Fatal(err)
	}
	var got form
	if err := json.Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got, in) {
		t.Errorf("%s is %+v, %v; want %+v", b, got, err, in)
	}
	if b, err := in.AppendReturn(nil, []Command{{Function: "x.y", Args: []any{struct{}{}}}}); err == nil {
		t.Errorf("written: %s", b)
	}
}

// TestReadReport: what was returned is not decoded, what is not a report is refused.
func TestReadReport(t *testing.T) {
	var others []string
	r, err := ReadReport([]byte(`{"state":"done","return":{"a": [1,
 2]},"retcode":0,"success":true,"commands":[]}`), func(key string, _ []byte) error { others = append(others, key); return nil })
	if raw, ok := r.Return.V.(value.Raw); err != nil || !ok || string(raw) != `{"a":[1,2]}` || !reflect.DeepEqual(others, []string{"commands"}) {
		t.Errorf("%+v, %v, others %v", r, err, others)
	}
	if err := r.Decode(); err != nil || !reflect.DeepEqual(r.Return.V, map[string]any{"a": []any{int64(1), int64(2)}}) {
		t.Errorf("decoded: %+v, %v", r, err)
	}
	long := strings.Repeat("0,", maxOutput/2)
	deep := strings.Repeat("[", value.MaxDepth+2) + strings.Repeat("]", value.MaxDepth+2)
	for _, s := range []string{"", "[]", "null", `{"state":1}`, `{"state":"done","return":}`, `{"return":` + deep + `}`, `{"out":[]}`, `{} {}`,
		`{"retcode":[` + long + `0]}`, `{"success":[` + long + `0]}`, `{"output":[` + long + `{}]}`} {
		if r, err := ReadReport([]byte(s), nil); err == nil {
			t.Errorf("ReadReport(%.40q) = %+v", s, r)
		}
	}
}
