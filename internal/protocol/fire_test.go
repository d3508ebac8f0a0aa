package protocol

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/brinebus/brine/internal/event"
)

func TestFireBody(t *testing.T) {
	pre := "pre"
	for name, f := range map[string]Fire{
		"none":      {ID: "x"},
		"plain":     {ID: "x", Events: []event.Item{{Tag: "a", Data: json.RawMessage(`{"a":1}`)}, {Tag: "b", Data: json.RawMessage("null")}}},
		"no data":   {Events: []event.Item{{Tag: "a"}}},
		"odd tags":  {Events: []event.Item{{Tag: `a"b\`, Data: json.RawMessage("1")}, {Tag: "ü <&> \u2028", Data: json.RawMessage(`"},\"data\":"`)}, {Tag: ""}}},
		"alike":     {Events: sameData("a", "a", "ab", "a", `a\u0062`, `a\u0062`, "ab", `a"`, "a", `a\`, `a\`, "a\u00e4", "a\u00e4", "")},
		"live":      {Live: true, Events: []event.Item{{Tag: "a", Data: json.RawMessage("1")}}},
		"series":    {ID: "x", Series: "y", First: 5000, Events: []event.Item{{Tag: "a", Data: json.RawMessage("1")}}},
		"with form": {Form: FormSingle, Pretag: &pre, Events: []event.Item{{Tag: "a", Data: json.RawMessage("[]")}}},
	} {
		for form, encode := range map[string]func() ([]byte, error){
			"lines": f.MarshalBinary, "JSON": func() ([]byte, error) { return json.Marshal(f) },
		} {
			b, err := encode()
			if err != nil {
				t.Errorf("%s as %s: %v", name, form, err)
				continue
			}
			var back Fire
			if err := back.UnmarshalBinary(b); err != nil {
				t.Errorf("%s as %s: %v", name, form, err)
			}
			if len(f.Events) == 0 {
				f.Events, back.Events = nil, nil
			}
			if !reflect.DeepEqual(back, f) {
				t.Errorf("%s as %s came back as %+v", name, form, back)
			}
		}
	}
}

func sameData(tags ...string) (all []event.Item) {
	for _, tag := range tags {
		all = append(all, event.Item{Tag: tag, Data: json.RawMessage("1")})
	}
	return all
}

func TestFireBodyOfSeveralLines(t *testing.T) {
	f := Fire{Events: []event.Item{{Tag: "a", Data: json.RawMessage("{\n \"x\":\r\n 1 }")}, {Tag: "b", Data: json.RawMessage("2")}}}
	b, err := f.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	var back Fire
	if err := back.UnmarshalBinary(b); err != nil || len(back.Events) != 2 || string(back.Events[0].Data) != `{"x":1}` {
		t.Errorf("came back as %s, %v", back.Events, err)
	}
	f.Events[0].Data = json.RawMessage("1}\n{\"tag\":\"c\",\"data\":2")
	if b, err := f.MarshalBinary(); err == nil {
		t.Errorf("data that is two events was written: %q", b)
	}
}

// FuzzFireBody reads any body: what is read can be written and read again, with
// as many events as before.
func FuzzFireBody(f *testing.F) {
	f.Add([]byte("\x1e{}\n{\"tag\":\"a\",\"data\":1}\n"))
	f.Add([]byte(`{"events":[{"tag":"a"}]}`))
	f.Add([]byte("\x1e{}\n{\"tag\":\"a\",\"data\":}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var got, back Fire
		if got.UnmarshalBinary(b) != nil {
			return
		}
		for _, e := range got.Events {
			if len(e.Data) > 0 && !json.Valid(e.Data) {
				return // it is refused where it is stored
			}
		}
		again, err := got.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		if err := back.UnmarshalBinary(again); err != nil || len(back.Events) != len(got.Events) {
			t.Errorf("%q: %d events came back as %d, %v", b, len(got.Events), len(back.Events), err)
		}
	})
}
