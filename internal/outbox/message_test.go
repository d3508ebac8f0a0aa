package outbox

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/protocol"
)

func TestBatchBody(t *testing.T) {
	fire, err := protocol.Encode(protocol.Fire{Events: []event.Item{{Tag: "a", Data: json.RawMessage("1")}, {Tag: "b"}}})
	if err != nil {
		t.Fatal(err)
	}
	q := Batch{Messages: []Message{{"e", 1, protocol.OpFire, fire}, {"e", 2, protocol.OpReturn, json.RawMessage(`{"jid":"1"}`)}, {"f\n", 1 << 60, "ret.1", nil}, {"e", 3, "odd", []byte("\n\x1e{")}}}
	b, err := q.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	var back Batch
	if err := back.UnmarshalBinary(b); err != nil {
		t.Fatal(err)
	}
	back.Messages[2].Body = nil
	if !reflect.DeepEqual(back, q) {
		t.Errorf("came back as %+v", back)
	}
	var f protocol.Fire
	if err := back.Messages[0].Decode(&f); err != nil || len(f.Events) != 2 {
		t.Errorf("its events: %+v, %v", f, err)
	}
	for n := 1; n < len(b); n++ {
		var part Batch
		if part.UnmarshalBinary(b[:n]) == nil && len(part.Messages) == len(q.Messages) {
			t.Errorf("%d of %d bytes are taken for all messages", n, len(b))
		}
	}
	if err := back.UnmarshalBinary([]byte(`{"letters":[{"epoch":"e","n":7,"op":"fire","body":{"events":[{"tag":"a"}]}}]}`)); err != nil || len(back.Messages) != 1 || back.Messages[0].N != 7 || back.Messages[0].Decode(&f) != nil || len(f.Events) != 1 {
		t.Errorf("as JSON: %+v, %v", back, err)
	}
}

// FuzzBatchBody reads any body: what is read can be written and is the same again.
func FuzzBatchBody(f *testing.F) {
	f.Add([]byte("\x1e{\"epoch\":\"e\",\"n\":1,\"op\":\"fire\",\"size\":2}\n{}"))
	f.Add([]byte("\x1e{\"size\":-1}\n{}"))
	f.Add([]byte("\x1e{\"size\":9223372036854775807}\n{}"))
	f.Add([]byte(`{"letters":[]}`))
	f.Add([]byte(`{"messages":[]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var got, back Batch
		if got.UnmarshalBinary(b) != nil {
			return
		}
		again, err := got.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		if err := back.UnmarshalBinary(again); err != nil || len(back.Messages) != len(got.Messages) {
			t.Fatalf("%q: %d messages came back as %d, %v", b, len(got.Messages), len(back.Messages), err)
		}
		for i, l := range got.Messages {
			if string(back.Messages[i].Body) != string(l.Body) || back.Messages[i].N != l.N {
				t.Errorf("%q: message %d came back as %+v", b, i, back.Messages[i])
			}
		}
	})
}

// FuzzCapacityBody reads any body as a question for capacity: what is given is never more than
// there is, nor less than nothing.
func FuzzCapacityBody(f *testing.F) {
	f.Add([]byte(`{"bytes":1048576}`))
	f.Add([]byte(`{"bytes":-9223372036854775808}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var q Capacity
		if json.Unmarshal(b, &q) != nil {
			return
		}
		c := newCapacity()
		l := c.ask(q.Bytes)
		if c.free < 0 || c.free > capacityBytes {
			t.Errorf("of %q %d bytes are left of %d", b, c.free, capacityBytes)
		}
		if c.giveBack(l); c.free != capacityBytes {
			t.Errorf("of %q %d bytes are left in the end", b, c.free)
		}
	})
}

// FuzzMessageBody reads any body as a message that is sent early: what is read can be written and is the
// same again.
func FuzzMessageBody(f *testing.F) {
	f.Add([]byte(`{"epoch":"e","n":1,"op":"ret.20260101000000000000","body":{"state":"done","return":true}}`))
	f.Add([]byte(`{"n":-1}`))
	f.Add([]byte(`{"body":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var got, back Message
		if json.Unmarshal(b, &got) != nil {
			return
		}
		again, err := json.Marshal(got)
		if err == nil {
			err = json.Unmarshal(again, &back)
		}
		if err != nil || back.Epoch != got.Epoch || back.N != got.N || back.Op != got.Op {
			t.Errorf("%q: %+v came back as %+v, %v", b, got, back, err)
		}
	})
}
