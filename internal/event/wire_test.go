package event

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzWire carries events through their text: whatever CheckTag accepts comes
// back exactly, on one line, and the head and the sequence are read as a full reader
// of JSON would.
func FuzzWire(f *testing.F) {
	f.Add("mytag", "web1", `{"a":1}`, uint64(1))
	f.Add(`a "b" \c`, "user:x", "[1,\r\n 2]", uint64(0))
	f.Add("ü <&> \u2028", "", `"x,\"from\":\"evil\""`, uint64(1<<63))
	f.Add("t", "", `{"seq":5}`, uint64(0))
	f.Fuzz(func(t *testing.T, tag, from, data string, seq uint64) {
		if CheckTag(tag) != nil || CheckTag(from) != nil && from != "" || !json.Valid([]byte(data)) {
			return
		}
		e := Event{Tag: tag, From: from, Data: json.RawMessage(data)}
		stored := e.Append(nil)
		line := stored
		if seq > 0 {
			line = AppendStored(nil, stored, seq)
		}
		if bytes.IndexByte(line, '\n') >= 0 {
			t.Fatalf("several lines: %q", line)
		}
		var back Event
		if err := json.Unmarshal(line, &back); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if back.Tag != tag || back.From != from || back.Seq != seq || !sameJSON(t, back.Data, e.Data) {
			t.Errorf("%q came back as %+v", line, back)
		}
		if head, err := HeadOf(line); err != nil || head != (Head{tag, from}) {
			t.Errorf("HeadOf(%q) = %+v, %v", line, head, err)
		}
		if got := SeqOf(append(line, '\n')); seq > 0 && got != seq {
			t.Errorf("SeqOf(%q) = %d, want %d", line, got, seq)
		}
	})
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y bytes.Buffer
	if json.Compact(&x, a) != nil || json.Compact(&y, b) != nil {
		t.Fatal("no JSON")
	}
	return bytes.Equal(x.Bytes(), y.Bytes())
}

func TestHeadOf(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want Head
		ok   bool
	}{
		"from in the data": {`{"tag":"t","data":{"from":"evil"}}`, Head{"t", ""}, true},
		"blanks":           {`{ "tag": "t", "data": 1 }`, Head{"t", ""}, true},
		"escapes":          {`{"tag":"a\"b","data":1}`, Head{`a"b`, ""}, true},
		"no tag":           {`{"data":1}`, Head{}, false},
		"no JSON":          {`{"tag":`, Head{}, false},
		"empty":            {``, Head{}, false},
	} {
		if got, err := HeadOf([]byte(c.text)); got != c.want || (err == nil) != c.ok {
			t.Errorf("%s: HeadOf = %+v, %v", name, got, err)
		}
	}
}

// TestHeads: what neighbours have in common is never taken for the head of another.
func TestHeads(t *testing.T) {
	var texts [][]byte
	for _, e := range []Event{
		{Tag: "a", From: "web1", Data: []byte(`{"n":1}`)}, {Tag: "a", From: "web1", Data: []byte(`"x"`)}, {Tag: "a", Data: []byte("1")},
		{Tag: "a", From: "web10", Data: []byte("1")}, {Tag: "ab", Data: []byte("1")}, {Tag: `a","from":"web1","data":1`, Data: []byte("1")},
		{Tag: "\u00fc", Data: []byte("1")}, {Tag: "\u00fc", From: "web1", Data: []byte("1")}, {Tag: "a", From: "web1", Data: []byte("2")},
	} {
		texts = append(texts, e.Append(nil))
	}
	var heads Heads
	for _, text := range append(texts, texts...) {
		want, err := HeadOf(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := heads.Of(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
	if _, err := heads.Of([]byte(`{"data":1}`)); err == nil {
		t.Error("a text without a tag has a head")
	}
}

func TestRetag(t *testing.T) {
	for stored, want := range map[string]string{
		`{"tag":"salt/job/1/ret/a","from":"a","data":{"tag":"x"},"seq":7}` + "\n": `{"tag":"1","from":"a","data":{"tag":"x"},"seq":7}` + "\n",
		`{"tag":"salt/job/1/ret/ä","data":null}`:                                  `{"tag":"1","data":null}`,
		`no event`: "no event",
	} {
		text := []byte(stored)
		if got := string(Retag(text, "1")); got != want {
			t.Errorf("%s becomes %s, want %s", stored, got, want)
		}
		if string(text) != stored {
			t.Errorf("%s was changed to %s: others read it as well", stored, text)
		}
	}
	for tag, want := range map[string]string{
		"salt/job/1/ret/web1": "1", "salt/job/1/new": "", "salt/run/1/ret": "", "salt/job/1": "", "salt/job//ret/x": "", "x/salt/job/1/ret/web1": "",
	} {
		if got := ReturnOf(tag); got != want {
			t.Errorf("the job of %s is %q, want %q", tag, got, want)
		}
	}
}
