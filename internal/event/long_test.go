package event

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"
)

// TestNewLong: an event of NewLong is that of New, its text that of Append, and neither is a
// copy of what was written.
func TestNewLong(t *testing.T) {
	now := time.Unix(1_700_000_000, 5000)
	for _, data := range []string{`{"return":"x"}`, `{}`, `{"_stamp":"old","a":{"_stamp":1}}`, "{\n \"a\": [1,\r\n2]}", `[1,2]`, `"x"`, ` {"a":1} `} {
		want, err := New("salt/job/1/ret/web1", json.RawMessage(data), "web1", now)
		if err != nil {
			t.Fatal(err)
		}
		got, err := NewLong("salt/job/1/ret/web1", "web1", now, len(data), func(b []byte) ([]byte, error) { return append(b, data...), nil })
		if err != nil || !bytes.Equal(got.Data, want.Data) || got.Tag != want.Tag || got.From != want.From {
			t.Errorf("%q: %s of %s, %v; want %s", data, got.Data, got.From, err, want.Data)
		}
		if text := got.Text(); !bytes.Equal(text, want.Append(nil)) || &text[0] != &got.text[0] {
			t.Errorf("%q: the text is %s, want %s without a copy", data, text, want.Append(nil))
		}
		changed := got
		changed.Tag = "x"
		if want.Tag = "x"; !bytes.Equal(changed.Text(), want.Append(nil)) {
			t.Errorf("%q: the text with another tag is %s", data, changed.Text())
		}
		changed = got
		changed.Data = json.RawMessage(`1`)
		if text := changed.Text(); !bytes.Contains(text, []byte(`"data":1}`)) {
			t.Errorf("%q: the text with other data is %s", data, text)
		}
	}
	if _, err := NewLong("x", "", now, 10, func(b []byte) ([]byte, error) { return append(b, '{'), nil }); err == nil {
		t.Error("data that is not JSON is taken")
	}
	long := bytes.Repeat([]byte("x"), 1<<20)
	allocated := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			e, err := NewLong("x", "", now, len(long)+10, func(b []byte) ([]byte, error) {
				return append(append(append(b, `{"a":"`...), long...), `"}`...), nil
			})
			if err != nil || len(e.Text()) < len(long) {
				b.Fatal(err)
			}
		}
	}).AllocedBytesPerOp()
	if allocated > int64(len(long))*3/2 {
		t.Errorf("an event of %d bytes takes %d", len(long), allocated)
	}
}
