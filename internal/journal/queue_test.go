package journal_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
)

func openQueue(t *testing.T, b *broker.Broker) *journal.Queue {
	t.Helper()
	q, err := journal.OpenQueue(t.Context(), b.Conn(), "OUTBOX", nil)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func put(t *testing.T, q *journal.Queue, from, to int) {
	t.Helper()
	pending := make([]*journal.Pending, 0, to-from)
	for n := from; n < to; n++ {
		p, err := q.Begin([]byte(strconv.Itoa(n)), "")
		if err != nil {
			t.Fatal(err)
		}
		pending = append(pending, p)
	}
	for _, p := range pending {
		if _, err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, q *journal.Queue, seq uint64, count, bytes int) []journal.Entry {
	t.Helper()
	entries, err := q.Read(t.Context(), seq, count, bytes)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func bodies(entries []journal.Entry) (all []string) {
	for _, e := range entries {
		all = append(all, string(e.Body))
	}
	return all
}

func expectSpan(t *testing.T, q *journal.Queue, first, last uint64) {
	t.Helper()
	s, err := q.Span(t.Context())
	if err != nil || s.First != first || s.Last != last || (s.Bytes == 0) != (first > last) {
		t.Errorf("span %+v, %v; want %d to %d", s, err, first, last)
	}
}

func TestQueueKeepsOrder(t *testing.T) {
	t.Parallel()
	q := openQueue(t, bustest.StartStore(t).Broker)
	expectSpan(t, q, 1, 0)
	const n = 2500
	put(t, q, 0, n)
	want := 0
	for from := uint64(1); ; {
		entries := read(t, q, from, 1000, 1<<20)
		if len(entries) == 0 {
			break
		}
		for _, e := range entries {
			if string(e.Body) != strconv.Itoa(want) || e.Seq != uint64(want+1) || e.Stored.IsZero() || e.Size != q.Size(e.Body) {
				t.Fatalf("entry %+v; want %d", e, want)
			}
			want++
			from = e.Seq + 1
		}
	}
	if want != n {
		t.Errorf("%d entries, want %d", want, n)
	}
}

func TestQueueReadIsBounded(t *testing.T) {
	t.Parallel()
	q := openQueue(t, bustest.StartStore(t).Broker)
	if got := read(t, q, 1, 10, 1000); len(got) != 0 {
		t.Errorf("an empty queue holds %v", got)
	}
	put(t, q, 0, 10)
	if got := bodies(read(t, q, 3, 4, 1<<20)); !slices.Equal(got, []string{"2", "3", "4", "5"}) {
		t.Errorf("four from the third: %v", got)
	}
	if got := bodies(read(t, q, 0, 10, 1)); !slices.Equal(got, []string{"0"}) {
		t.Errorf("one byte from nowhere: %v, want the first", got)
	}
	if got := read(t, q, 11, 10, 1000); len(got) != 0 {
		t.Errorf("behind the end: %v", got)
	}
}

func TestQueueRemove(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := startStore(t, dir)
	q := openQueue(t, b)
	put(t, q, 0, 10)
	if err := q.Remove(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	expectSpan(t, q, 5, 10)
	if got := bodies(read(t, q, 1, 3, 1000)); !slices.Equal(got, []string{"4", "5", "6"}) {
		t.Errorf("after the first four went: %v", got)
	}
	if err := q.Remove(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	expectSpan(t, q, 11, 10)
	b.Stop()
	q = openQueue(t, startStore(t, dir))
	expectSpan(t, q, 11, 10)
	put(t, q, 10, 11)
	if got := read(t, q, 1, 3, 1000); len(got) != 1 || got[0].Seq != 11 {
		t.Errorf("after a restart: %+v, want sequence 11", got)
	}
}

func TestQueueKnowsARepetition(t *testing.T) {
	t.Parallel()
	q := openQueue(t, bustest.StartStore(t).Broker)
	for i, row := range []struct {
		id   string
		want uint64
	}{{"a", 1}, {"", 2}, {"a", 1}, {"", 3}, {"b", 4}, {"a", 1}} {
		p, err := q.Begin([]byte("x"), row.id)
		if err != nil {
			t.Fatal(err)
		}
		if seq, err := p.Wait(t.Context()); err != nil || seq != row.want {
			t.Errorf("put %d with id %q: sequence %d, %v; want %d", i, row.id, seq, err, row.want)
		}
	}
}

func TestQueueRefusesALargeBody(t *testing.T) {
	t.Parallel()
	q := openQueue(t, bustest.StartStore(t).Broker)
	p, err := q.Begin([]byte(strings.Repeat("x", journal.MaxEntry)), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(t.Context()); err != nil {
		t.Errorf("the largest body: %v", err)
	}
	if _, err := q.Begin([]byte(strings.Repeat("x", journal.MaxEntry+1)), ""); err == nil {
		t.Error("a body above the limit was taken")
	}
	if got := read(t, q, 1, 1, 1); len(got) != 1 || len(got[0].Body) != journal.MaxEntry {
		t.Errorf("%d entries", len(got))
	}
}

// Several goroutines put messages at once; each one's messages keep their order.
func TestQueueConcurrentPuts(t *testing.T) {
	t.Parallel()
	q := openQueue(t, bustest.StartStore(t).Broker)
	var wg sync.WaitGroup
	const workers, each = 8, 50
	for w := range workers {
		wg.Go(func() {
			for n := range each {
				if _, err := q.Put(context.Background(), fmt.Appendf(nil, "%d %d", w, n)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	deadline.Call(t, wg.Wait, "wg")
	next := [workers]int{}
	for _, body := range bodies(read(t, q, 1, 1000, 1<<20)) {
		var w, n int
		if _, err := fmt.Sscan(body, &w, &n); err != nil || n != next[w] {
			t.Fatalf("%q, %v; want %d of it", body, err, next[w])
		}
		next[w]++
	}
	for w, n := range next {
		if n != each {
			t.Errorf("worker %d: %d of %d", w, n, each)
		}
	}
}

// TestAQueueWithoutCopiesHidesMarks: a queue of a member of a cluster was restored at a single master, with its marks.
func TestAQueueWithoutCopiesHidesMarks(t *testing.T) {
	t.Parallel()
	b := bustest.StartStore(t).Broker
	q := openQueue(t, b)
	mark := func(newest string) {
		t.Helper()
		m := &nats.Msg{Subject: "salt.queue.OUTBOX", Data: []byte("p"), Header: nats.Header{"Salt-Piece": {"term/1/3"}, "Salt-Newest": {newest}}}
		if _, err := b.Conn().RequestMsg(m, deadline.Time); err != nil {
			t.Fatal(err)
		}
	}
	put(t, q, 1, 3)
	mark("2")
	mark("0") // where it was not known
	for from, want := range map[uint64]int{1: 2, 2: 1, 3: 0} {
		if got := read(t, q, from, 1000, 1<<20); len(got) != want {
			t.Errorf("from %d: %v", from, bodies(got))
		}
	}
	if e, any, err := q.Newest(t.Context()); err != nil || !any || e.Seq != 2 {
		t.Errorf("the newest entry is %+v, %t, %v", e, any, err)
	}
	put(t, q, 5, 6)
	if got := read(t, q, 3, 1, 1); len(got) != 1 || got[0].Seq != 5 {
		t.Errorf("one entry from the third: %+v", got)
	}
	if err := q.Remove(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	mark("5")
	if e, any, err := q.Newest(t.Context()); err != nil || !any || e.Seq != 5 {
		t.Errorf("the newest entry is %+v, %t, %v", e, any, err)
	}
}
