package protocol

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestLettersBody(t *testing.T) {
	fire, err := Encode(Fire{Events: []FireEvent{{Tag: "a", Data: json.RawMessage("1")}, {Tag: "b"}}})
	if err != nil {
		t.Fatal(err)
	}
	q := Letters{Letters: []Letter{{"e", 1, OpFire, fire}, {"e", 2, OpReturn, json.RawMessage(`{"jid":"1"}`)}, {"f\n", 1 << 60, "ret.1", nil}, {"e", 3, "odd", []byte("\n\x1e{")}}}
	b, err := q.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	var back Letters
	if err := back.UnmarshalBinary(b); err != nil {
		t.Fatal(err)
	}
	back.Letters[2].Body = nil
	if !reflect.DeepEqual(back, q) {
		t.Errorf("came back as %+v", back)
	}
	var f Fire
	if err := back.Letters[0].Decode(&f); err != nil || len(f.Events) != 2 {
		t.Errorf("its events: %+v, %v", f, err)
	}
	for n := 1; n < len(b); n++ {
		var part Letters
		if part.UnmarshalBinary(b[:n]) == nil && len(part.Letters) == len(q.Letters) {
			t.Errorf("%d of %d bytes are taken for all letters", n, len(b))
		}
	}
	if err := back.UnmarshalBinary([]byte(`{"letters":[{"epoch":"e","n":7,"op":"fire","body":{"events":[{"tag":"a"}]}}]}`)); err != nil || len(back.Letters) != 1 || back.Letters[0].N != 7 || back.Letters[0].Decode(&f) != nil || len(f.Events) != 1 {
		t.Errorf("as JSON: %+v, %v", back, err)
	}
}

// FuzzLettersBody reads any body: what is read can be written and is the same again.
func FuzzLettersBody(f *testing.F) {
	f.Add([]byte("\x1e{\"epoch\":\"e\",\"n\":1,\"op\":\"fire\",\"size\":2}\n{}"))
	f.Add([]byte("\x1e{\"size\":-1}\n{}"))
	f.Add([]byte("\x1e{\"size\":9223372036854775807}\n{}"))
	f.Add([]byte(`{"letters":[]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var got, back Letters
		if got.UnmarshalBinary(b) != nil {
			return
		}
		again, err := got.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		if err := back.UnmarshalBinary(again); err != nil || len(back.Letters) != len(got.Letters) {
			t.Fatalf("%q: %d letters came back as %d, %v", b, len(got.Letters), len(back.Letters), err)
		}
		for i, l := range got.Letters {
			if string(back.Letters[i].Body) != string(l.Body) || back.Letters[i].N != l.N {
				t.Errorf("%q: letter %d came back as %+v", b, i, back.Letters[i])
			}
		}
	})
}
