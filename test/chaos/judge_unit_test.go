package chaos

import (
	"reflect"
	"testing"
)

// TestLinesInParts: what listen prints is read as it comes.
func TestLinesInParts(t *testing.T) {
	const text = `{"tag":"chaos/1/a","seq":3,"data":{"stream":"a","n":1}}
{"tag":"salt/auth","seq":4,"data":{}}
{"tag":"chaos/1/b","seq":5,"master":"m2","data":{"data":{"stream":"b","n":7}}}
{"tag":"chaos/12/a","seq":6,"data":{"stream":"c","n":1}}
{"tag":"chaos/1/a","seq":7,"data":{"stream":"a","n":2`
	for size := 1; size <= len(text); size++ {
		l := newLines("m1")
		for at := 0; at < len(text); at += size {
			if _, err := l.Write([]byte(text[at:min(len(text), at+size)])); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := l.of("chaos/1/"), []stored{{id{"a", 1}, "m1", 3}, {id{"b", 7}, "m2", 5}}; !reflect.DeepEqual(got, want) || l.count != 3 {
			t.Fatalf("in parts of %d: %v, and %d in all, want %v", size, got, l.count, want)
		}
	}
}

// TestJudge: the checker itself notices what it is for.
func TestJudge(t *testing.T) {
	all := []sent{
		{id{"a", 1}, 1, true}, {id{"a", 2}, 1, true},
		{id{"a", 3}, 2, false}, {id{"a", 4}, 2, false},
		{id{"a", 5}, 3, true}, {id{"b", 1}, 1, true},
	}
	show := func(ids ...id) []stored {
		var out []stored
		for i, x := range ids {
			out = append(out, stored{id: x, seq: i + 1})
		}
		return out
	}
	a := func(n int) id { return id{"a", n} }
	b := id{"b", 1}
	for _, c := range []struct {
		name  string
		shown []stored
		want  findings
	}{
		{"all", show(a(1), b, a(2), a(3), a(4), a(5)), findings{}},
		{"what was not acknowledged may be missing", show(a(1), a(2), b, a(5)), findings{}},
		{"or come late", show(a(1), a(2), b, a(5), a(3), a(4)), findings{}},
		{"lost", show(a(1), a(2), a(5)), findings{lost: []string{"b 1"}}},
		{"twice", show(a(1), a(2), a(2), b, a(5)), findings{twice: []string{"a 2 at sequence 2 again at sequence 3"}}},
		{"acknowledged out of order", show(a(1), a(5), a(2), b), findings{disorder: []string{"a 2 behind 5"}}},
		{"out of order in one command", show(a(1), a(2), a(4), a(3), a(5), b), findings{disorder: []string{"a 3 behind 4"}}},
	} {
		if got := judge(all, c.shown); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	if got := missed(all, show(a(1), a(2), b)); len(got) != 1 {
		t.Errorf("one was not heard: %q", got)
	}
}

func TestSequencesStay(t *testing.T) {
	s := sequences{}
	if got := s.see([]stored{{id: id{"a", 1}, seq: 7}, {id: id{"a", 2}, seq: 8}}); got != nil {
		t.Errorf("at first: %q", got)
	}
	if got := s.see([]stored{{id: id{"a", 1}, seq: 7}, {id: id{"a", 3}, seq: 8}}); len(got) != 1 {
		t.Errorf("another event has sequence 8: %q", got)
	}
}

func TestLastWords(t *testing.T) {
	for _, c := range []struct {
		word  word
		wrong bool
	}{
		{word{state: "done", returned: true, ran: 1}, false},
		{word{state: "done", returned: true, told: true, ran: 1}, false},
		{word{state: "done", returned: true}, true},
		{word{state: "done", ran: 1}, true},
		{word{state: "no response"}, false},
		{word{state: "no response", ran: 1}, true},
		{word{state: "no response", told: true}, true},
		{word{state: "no response", queued: true}, true},
		{word{state: "not connected", ran: 1}, true},
		{word{state: "not connected", queued: true}, true},
		{word{state: "refused"}, false},
		{word{state: "refused", ran: 1}, true},
		{word{state: "killed", touched: true, ran: 1}, false},
		{word{state: "killed", touched: true, queued: true}, false},
		{word{state: "killed", ran: 1}, true},
		{word{state: "failed"}, true},
		{word{state: "killed", touched: true, told: true}, true},
		{word{state: "running", ran: 1}, true},
		{word{state: "queued", queued: true}, true},
		{word{}, true},
	} {
		if got := c.word.untrue(); (got != "") != c.wrong {
			t.Errorf("%+v: %q", c.word, got)
		}
	}
}
