package journal_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/brinebus/brine/internal/journal"
)

// TestQueuesOfOthersAreRead: what a member has put into its queue can be read at another one, also when it is gone; and what it
// does not write any more can be ended there, but not in between.
func TestQueuesOfOthersAreRead(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	own := openMember(t, s.Members[0])
	q, err := own.Queue(inTime(t), "AUDIT", s.Members[0].Store())
	if err != nil {
		t.Fatal(err)
	}
	const n = 100
	var want []string
	for i := range n {
		want = append(want, fmt.Sprint(i))
		if _, err := q.Put(inTime(t), []byte(want[i])); err != nil {
			t.Fatal(err)
		}
	}
	other := openMember(t, s.Members[1])
	if names, err := journal.PeerQueues(inTime(t), other, "AUDIT"); err != nil || !slices.Equal(names, []string{s.Members[0].Name}) {
		t.Errorf("the queues of others are %v, %v", names, err)
	}
	if names, err := journal.PeerQueues(inTime(t), own, "AUDIT"); err != nil || len(names) != 0 {
		t.Errorf("the own queue is one of others: %v, %v", names, err)
	}
	if none, err := journal.PeerQueue(inTime(t), other, "AUDIT", s.Members[2].Name); none != nil || err != nil {
		t.Errorf("a queue that does not exist: %v, %v", none, err)
	}
	far, err := journal.PeerQueue(inTime(t), other, "AUDIT", s.Members[0].Name)
	if err != nil || far == nil {
		t.Fatal(far, err)
	}
	all := func() (got []string) {
		t.Helper()
		for seq := uint64(1); ; {
			list, err := far.Read(inTime(t), seq, 1000, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if len(list) == 0 {
				return got
			}
			got, seq = append(got, bodies(list)...), list[len(list)-1].Seq+1
		}
	}
	if got := all(); !slices.Equal(got, want) {
		t.Errorf("it has %v", got)
	}
	s.Members[0].Kill(t)
	if got := all(); !slices.Equal(got, want) {
		t.Errorf("when its member is gone it has %v", got)
	}
	if err := far.PutAfter(inTime(t), []byte("x"), n-1); err == nil {
		t.Error("something was put after an entry that is not the last")
	}
	if err := far.PutAfter(inTime(t), []byte("x"), n); err != nil {
		t.Fatal(err)
	}
	if err := far.Remove(inTime(t), 50); err != nil {
		t.Fatal(err)
	}
	if got := all(); !slices.Equal(got, append(slices.Clone(want[50:]), "x")) {
		t.Errorf("it has %v", got)
	}
	if e, any, err := far.Newest(inTime(t)); err != nil || !any || string(e.Body) != "x" {
		t.Errorf("the newest is %q, %v, %v", e.Body, any, err)
	}
	if span, err := far.Span(inTime(t)); err != nil || span.First != 51 || span.Last != n+1 {
		t.Errorf("%+v, %v", span, err)
	}

	s.Rejoin(s.Members[0])
	s.Members[0].Start(t) // it goes on behind that
	s.Leader(t)
	if q, err = openMember(t, s.Members[0]).Queue(journal.Starting(inTime(t)), "AUDIT", s.Members[0].Store()); err != nil {
		t.Fatal(err)
	}
	span, err := q.Span(inTime(t))
	if err != nil || span.First != 51 || span.Last != n+2 { // with the mark of its start
		t.Fatalf("%+v, %v", span, err)
	}
	p, err := q.BeginAfter([]byte("y"), span.Last)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(inTime(t)); err != nil {
		t.Fatal(err)
	}
	if got := all(); !slices.Equal(got, append(slices.Clone(want[50:]), "x", "y")) {
		t.Errorf("when its member is back it has %v", got)
	}
}
