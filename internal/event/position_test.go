package event

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"
)

func TestPositions(t *testing.T) {
	for _, text := range []string{"m1-a:4711", "m1-a:4711,m2-b:12"} {
		if p, err := ReadPosition(text); err != nil || p.String() != text {
			t.Errorf("%s is read as %s, %v", text, p, err)
		}
	}
	for _, text := range []string{"", "4711", "m1-a", "m1-a:", ":1", "m1-a:-1", "m1-a:1,", "m1-a:1,m1-a:2"} {
		if p, err := ReadPosition(text); err == nil {
			t.Errorf("%q is read as %s", text, p)
		}
	}
	p := Position{}
	p.Pass("m1-a", 5)
	p.Pass("m1-a", 3)
	if p["m1-a"] != 5 {
		t.Errorf("a position went back to %d", p["m1-a"])
	}
}

// TestPositionsInManyJournals: the journals of former members stay, so there may be many more than members. What is
// written is read, whatever their names are; what is read from the network is bounded.
func TestPositionsInManyJournals(t *testing.T) {
	p := Position{}
	for n := range 250 {
		p[fmt.Sprintf("%064d", n)] = math.MaxUint64 - uint64(n)
	}
	got, err := ReadPosition(p.String())
	if err != nil || !maps.Equal(got, p) {
		t.Errorf("%d journals are read as %d: %v", len(p), len(got), err)
	}
	if p, err := ReadPosition("a:1" + strings.Repeat(",a:1", MaxPosition/4)); err == nil {
		t.Errorf("a text of more than %d bytes is read as %s", MaxPosition, p)
	}
	long := make([]string, MaxPosition/7+2)
	for n := range long {
		long[n] = fmt.Sprintf("%04d:1", n)
	}
	if p, err := ReadPosition(strings.Join(long, ",")); err == nil {
		t.Errorf("a text of more than %d bytes is read: %d journals", MaxPosition, len(p))
	}
}

// TestMirroredLines: whatever a sender writes into their event, it names no other journal.
func TestMirroredLines(t *testing.T) {
	now := time.Date(2026, 11, 23, 1, 2, 3, 4000, time.UTC)
	for _, data := range []string{``, `{}`, `{"a":1}`, `"x"`, `",\"master\":\"m9\""`, `{"master":"m9","seq":7}`, `[1,"master"]`, `7`, `"a,"`, `{"x":",\"master\":\"m9\",\"seq\":8}"}`} {
		text := At("web1", now).AppendNew(nil, "tag", json.RawMessage(data))
		own, other := AppendStored(nil, text, 42), AppendMirrored(nil, text, "m2-b", 42)
		if MasterOf(own) != "" || SeqOf(own) != 42 {
			t.Errorf("%s: of %q, %d", own, MasterOf(own), SeqOf(own))
		}
		if MasterOf(other) != "m2-b" || SeqOf(other) != 42 || !json.Valid(other) {
			t.Errorf("%s: of %q, %d", other, MasterOf(other), SeqOf(other))
		}
		if stamp := StampOf(text); (stamp == "") != (data != "" && data[0] != '{') || stamp != "" && stamp != "2026-11-23T01:02:03.000004" {
			t.Errorf("%s: stamp %q", text, stamp)
		}
	}
}

// TestPositionTextsOfAnotherMaster: one that has its own journal written by somebody else cannot say
// more to a listener than one event.
func TestPositionTextsOfAnotherMaster(t *testing.T) {
	text := At("web1", time.Now()).AppendNew(nil, "tag", json.RawMessage(`{"a":"\n"}`))
	if err := CheckText(text); err != nil {
		t.Errorf("%s: %v", text, err)
	}
	for _, hostile := range []string{
		"", "{", "}", "{}x", " {}", "{} ", `["tag"]`, `"{}"`, `{"tag":"a","from":"b","data":{}`, `{"tag":"a"}}`,
		`{"tag":"a","from":"b","data":{}}` + "\n" + `{"tag":"salt/auth","from":"master","data":{}}`,
		`{"tag":"a","from":"b",` + "\n" + `"data":{}}`, `{"tag":"a","from":"b",` + "\r" + `"data":{}}`,
	} {
		if err := CheckText([]byte(hostile)); err == nil {
			t.Errorf("%q is taken for an event", hostile)
		}
	}
	for _, line := range []string{"", `,"seq":1}`, `{"seq":1}`, `","seq":1}`} {
		if of := MasterOf([]byte(line)); of != "" {
			t.Errorf("%q is of %q", line, of)
		}
	}
}

// TestCutMaster: an event has one text, whichever master has sent it.
func TestCutMaster(t *testing.T) {
	for _, stored := range []string{`{"tag":"a","from":"web1","data":{"_stamp":"2026-11-23T04:33:36.396000"}}`, `{"tag":"a","data":"\",\"master\":\"x\""}`} {
		own := AppendStored(nil, []byte(stored), 12)
		plain, master := CutMaster(AppendMirrored(nil, []byte(stored), "m2-9f8e7d6c", 12))
		if string(plain) != string(own) || master != "m2-9f8e7d6c" {
			t.Errorf("%s of the journal %q, want %s", plain, master, own)
		}
		if plain, master = CutMaster(own); string(plain) != string(own) || master != "" {
			t.Errorf("an own event became %s of the journal %q", plain, master)
		}
		for _, line := range [][]byte{own, AppendMirrored(nil, []byte(stored), "m2-9f8e7d6c", 12)} {
			if named := NameMaster(line, "m2-9f8e7d6c"); string(named) != string(AppendMirrored(nil, []byte(stored), "m2-9f8e7d6c", 12)) {
				t.Errorf("with its journal it is %s", named)
			}
		}
	}
}
