package journal_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
)

// TestALeaderThatIsNoneAnyMore: for some seconds after a member was cut off, one server answers that leads,
// and another that led before, and lacks the newest messages. What is stored, and whose answers were lost,
// is not stored again because of that.
func TestALeaderThatIsNoneAnyMore(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	j := openMember(t, s.Members[0])
	if _, err := j.Append(inTime(t), filled("a", "x", 1), "web1/0"); err != nil {
		t.Fatal(err)
	}
	restore := j.DropAnswers()
	j.MissFor(3 * time.Second) // several questions
	const n = 17
	var all []*journal.Pending
	for i := range n {
		p, err := j.Begin(filled(fmt.Sprintf("b/%02d", i), "x", 1), fmt.Sprintf("web1/%d", i+1))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	restore()
	for _, p := range all {
		if _, err := p.Wait(inTime(t)); err != nil {
			t.Error(err)
		}
	}
	seen := map[string]int{}
	if err := j.Read(inTime(t), journal.Query{}, func(e event.Event) error { seen[e.Tag]++; return nil }); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if tag := fmt.Sprintf("b/%02d", i); seen[tag] != 1 {
			t.Errorf("%s is stored %d times", tag, seen[tag])
		}
	}
}

// TestAStartLearnsAllNames: where the server that told a start the state of the stream lacked the newest messages, what
// is sent again is recognised nevertheless.
func TestAStartLearnsAllNames(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	j := openMember(t, s.Members[0])
	js, err := jetstream.New(s.Members[0].Conn())
	if err != nil {
		t.Fatal(err)
	}
	told, err := js.Stream(inTime(t), "EVENTS_"+s.Members[0].Name)
	if err != nil {
		t.Fatal(err)
	}
	seq, err := j.Append(inTime(t), filled("a", "x", 1), "web1/1")
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Relearn(inTime(t), told); err != nil {
		t.Fatal(err)
	}
	if again, err := j.Append(inTime(t), filled("a", "x", 1), "web1/1"); err != nil || again != seq {
		t.Errorf("it is at %d, and again at %d: %v", seq, again, err)
	}
}

// TestAQueueIsNotCutShort: a server that led a queue before lacks its newest messages, and says that there are
// none. What is known to be stored is waited for.
func TestAQueueIsNotCutShort(t *testing.T) {
	t.Parallel()
	const stored, shown = 5, 2
	s := startMembers(t)
	q, err := openMember(t, s.Members[0]).Queue(inTime(t), "WORK", s.Members[0].Store())
	if err != nil {
		t.Fatal(err)
	}
	for n := range stored {
		if _, err := q.Put(inTime(t), []byte{byte(n)}); err != nil {
			t.Fatal(err)
		}
	}
	for name, look := range map[string]func() (uint64, error){
		"its extent": func() (uint64, error) {
			span, err := q.Span(inTime(t))
			return span.Last, err
		},
		"its newest message": func() (uint64, error) {
			m, _, err := q.Newest(inTime(t))
			return m.Seq, err
		},
		"its messages": func() (last uint64, err error) {
			for last < stored && err == nil {
				var list []journal.Entry
				if list, err = q.Read(inTime(t), last+1, 2, 1<<20); len(list) == 0 {
					break
				}
				last = list[len(list)-1].Seq
			}
			return last, err
		},
	} {
		q.Shorten(shown, time.Second)
		if last, err := look(); last != stored || err != nil {
			t.Errorf("%s ends with %d, %v", name, last, err)
		}
	}
	if err := q.Remove(inTime(t), stored); err != nil {
		t.Fatal(err)
	}
	if list, err := q.Read(inTime(t), 1, 10, 1<<20); len(list) != 0 || err != nil {
		t.Errorf("all are removed, and %d are read, %v", len(list), err)
	}
	if _, any, err := q.Newest(inTime(t)); any || err != nil {
		t.Errorf("all are removed, and there is a newest one: %t, %v", any, err)
	}
}

// TestASlowQueueIsReadInParts: where not all messages are read in time, those that are count.
func TestASlowQueueIsReadInParts(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	q, err := openMember(t, s.Members[0]).Queue(inTime(t), "WORK", s.Members[0].Store())
	if err != nil {
		t.Fatal(err)
	}
	for n := range 5 {
		if _, err := q.Put(inTime(t), []byte{byte(n)}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(inTime(t))
	q.Slow(3, cancel)
	if list, err := q.Read(ctx, 1, 5, 0); len(list) != 3 || err != nil {
		t.Errorf("read are %d, %v, want 3", len(list), err)
	}
	if list, err := q.Read(ctx, 4, 5, 0); len(list) != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("without an answer: %d, %v", len(list), err)
	}
}

// TestOneLostMessageIsStoredAgain: a power cut has removed the last message of the journal on all members, and its sender
// has no answer. What a start stores has its place now, but the name of what was lost is not the name of that.
func TestOneLostMessageIsStoredAgain(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	m := s.Members[0]
	j := openMember(t, m)
	if _, err := j.Append(inTime(t), filled("a", "x", 1), "web1/1"); err != nil {
		t.Fatal(err)
	}
	j.Close()
	if err := j.TellNames(filepath.Join(m.Dir, "names"), "web1/2", 2); err != nil {
		t.Fatal(err)
	}
	j = openMember(t, m)
	for name, want := range map[string]uint64{"web1/1": 1, "web1/2": 3} {
		if seq, err := j.Append(inTime(t), filled("a", "x", 1), name); err != nil || seq != want {
			t.Errorf("%s is at %d, want %d: %v", name, seq, want, err)
		}
	}
}

// TestNoReaderSeesAMarkOfAQueue: each start of a member stores a mark in its queue. What is read of it has none, and
// what follows does so directly, also of a queue from which all was removed.
func TestNoReaderSeesAMarkOfAQueue(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	j := openMember(t, s.Members[0])
	open := func() *journal.Queue {
		t.Helper()
		q, err := j.Queue(inTime(t), "WORK", s.Members[0].Store())
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	put := func(q *journal.Queue, body string, after uint64) {
		t.Helper()
		p, err := q.BeginAfter([]byte(body), after)
		if err == nil {
			_, err = p.Wait(inTime(t))
		}
		if err != nil {
			t.Fatalf("%s after %d: %v", body, after, err)
		}
	}
	expect := func(what string, q *journal.Queue, seqs ...uint64) {
		t.Helper()
		for _, count := range []int{1, 10} {
			var got []uint64
			for next := uint64(1); ; {
				list, err := q.Read(inTime(t), next, count, 0)
				if err != nil {
					t.Fatal(err)
				}
				if len(list) == 0 {
					break
				}
				for _, e := range list {
					got, next = append(got, e.Seq), e.Seq+1
				}
			}
			if !slices.Equal(got, seqs) {
				t.Errorf("%s, %d at once: the entries are at %v, want %v", what, count, got, seqs)
			}
		}
		newest, any, err := q.Newest(inTime(t))
		if err != nil || any != (len(seqs) > 0) || any && newest.Seq != seqs[len(seqs)-1] {
			t.Errorf("%s: the newest entry is at %d, %t, %v; want %v", what, newest.Seq, any, err, seqs)
		}
	}
	q := open()
	put(q, "a", 0)
	put(q, "b", 1)
	q = open() // 3
	expect("with a mark", q, 1, 2)
	q = open() // 4
	expect("with two marks", q, 1, 2)
	put(q, "c", 4)
	put(q, "d", 5)
	expect("with marks inside", q, 1, 2, 5, 6)
	q = open() // 7
	expect("with marks inside and at the end", q, 1, 2, 5, 6)
	if err := q.Remove(inTime(t), 6); err != nil {
		t.Fatal(err)
	}
	expect("after a removal", q)
	q = open() // 8
	expect("after a removal, with two marks", q)
	put(q, "e", 8)
	expect("after a removal, with an entry", q, 9)
}
