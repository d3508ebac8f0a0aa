package job

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzReadUpdate reads what is told of a minion's return: what is read can be written, and
// is then read as the same.
func FuzzReadUpdate(f *testing.F) {
	f.Add([]byte(`{"id":"web1","state":"done","return":true,"retcode":0}`))
	f.Add([]byte(`{"begun":["web1"]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		u, err := ReadUpdate(b)
		if err != nil {
			return
		}
		text, err := u.Append(nil)
		if err != nil {
			t.Fatalf("%q is read, and not written: %v", b, err)
		}
		again, err := ReadUpdate(text)
		if err != nil {
			t.Fatalf("%q is written as %q, which is not read: %v", b, text, err)
		}
		if same, err := again.Append(nil); err != nil || !bytes.Equal(same, text) {
			t.Errorf("%q is written as %q and then as %q, %v", b, text, same, err)
		}
	})
}

// FuzzCommand reads a command as anybody who may publish writes it.
func FuzzCommand(f *testing.F) {
	f.Add([]byte(`{"fun":"test.arg","arg":[1,"a",{"x":[null]}],"kwarg":{"a":1.5}}`))
	f.Add([]byte(`{"fun":"../x"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var c Command
		if json.Unmarshal(b, &c) != nil {
			return
		}
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatalf("%q is read, and not written: %v", b, err)
		}
		var again Command
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatalf("%q is written as %q, which is not read: %v", b, text, err)
		}
	})
}
