package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
)

// world is a journal with an audit log in it.
type world struct {
	*testing.T
	bus  *bustest.Bus
	opts Options
	l    *Log
}

func start(t *testing.T, change func(*Options)) *world {
	t.Helper()
	w := &world{T: t, bus: bustest.StartStore(t)}
	j, err := journal.Open(t.Context(), w.bus.Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	w.opts = Options{Journal: j, HeadFile: filepath.Join(dir, "head"), KeyFile: filepath.Join(dir, "key"), Log: bustest.Log(t)}
	if w.opts.Queue, err = journal.OpenQueue(t.Context(), w.bus.Conn(), "AUDIT", nil); err != nil {
		t.Fatal(err)
	}
	if w.opts.Position, err = j.Table(t.Context(), "audit"); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&w.opts)
	}
	w.open()
	t.Cleanup(func() { w.l.Close() })
	return w
}

func (w *world) open() {
	w.Helper()
	l, err := Open(w.Context(), w.opts)
	if err != nil {
		w.Fatal(err)
	}
	w.l = l
}

func (w *world) reopen() {
	w.Helper()
	w.l.Close()
	w.open()
}

// write writes n entries.
func (w *world) write(n int) {
	w.Helper()
	for i := range n {
		if err := w.l.Record(w.Context(), ping(fmt.Sprint("user", i))); err != nil {
			w.Fatal(err)
		}
	}
}

func ping(user string) Entry {
	uid := 1000
	return Entry{
		Kind: Publish, Verdict: Allowed, Who: Who{User: user, UID: &uid}, Target: "*",
		Commands: []salt.Command{{Function: "test.ping"}},
	}
}

func (w *world) lines(q Query) (all []string) {
	w.Helper()
	if err := w.l.Each(w.Context(), q, func(line []byte) error { all = append(all, string(line)); return nil }); err != nil {
		w.Fatal(err)
	}
	return all
}

// verify expects problems with these words, in this order; none means that all
// is well.
func (w *world) verify(words ...string) Report {
	w.Helper()
	r, err := w.l.Verify(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	w.expect(r, words...)
	return r
}

func (w *world) expect(r Report, words ...string) {
	w.Helper()
	if len(r.Problems) != len(words) || r.OK != (len(words) == 0) {
		w.Fatalf("OK %v, problems %q, want %q", r.OK, r.Problems, words)
	}
	for i, want := range words {
		if !strings.Contains(r.Problems[i], want) {
			w.Errorf("problem %q, want %q in it", r.Problems[i], want)
		}
	}
}

// stream is the store behind the queue, for the attacks.
func (w *world) stream() jetstream.Stream {
	w.Helper()
	s, err := w.jetStream().Stream(w.Context(), "AUDIT")
	if err != nil {
		w.Fatal(err)
	}
	return s
}

func (w *world) jetStream() jetstream.JetStream {
	w.Helper()
	js, err := jetstream.New(w.bus.Conn())
	if err != nil {
		w.Fatal(err)
	}
	return js
}

func (w *world) remove(seqs ...uint64) {
	w.Helper()
	s := w.stream()
	for _, seq := range seqs {
		if err := s.DeleteMsg(w.Context(), seq); err != nil {
			w.Fatal(err)
		}
	}
}

// replace writes the chain again with lines changed.
func (w *world) replace(change func([]string) []string) {
	w.Helper()
	lines := change(w.lines(Query{}))
	w.l.Close()
	if err := w.stream().Purge(w.Context()); err != nil {
		w.Fatal(err)
	}
	for _, one := range lines {
		if _, err := w.opts.Queue.Put(w.Context(), []byte(one)); err != nil {
			w.Fatal(err)
		}
	}
	w.open()
}

func TestChainOfManyWriters(t *testing.T) {
	w := start(t, nil)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			for range 20 {
				if err := w.l.Record(t.Context(), ping(fmt.Sprint("user", i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	deadline.Call(t, all.Wait, "all")
	w.reopen()
	w.write(5)
	r := w.verify()
	if r.Entries != 405 || r.First != 1 || r.Last != 405 {
		t.Errorf("%+v, want 405 entries", r)
	}
	prev := origin.hash
	for n, line := range w.lines(Query{}) {
		var e Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.N != uint64(n+1) || e.Prev != prev {
			t.Fatalf("entry %d: %+v, %v", n+1, e, err)
		}
		prev = Hash([]byte(line))
	}
	if want := fmt.Sprintf("405:%s", prev); r.Head != want {
		t.Errorf("head %s, want %s", r.Head, want)
	}
}

// Whatever is taken out, put in or changed shows.
func TestAttacksOnTheChain(t *testing.T) {
	for name, c := range map[string]struct {
		attack func(w *world)
		want   []string
	}{
		"nothing":            {func(*world) {}, nil},
		"one in the middle":  {func(w *world) { w.remove(4) }, []string{"entry 4 is missing"}},
		"two in the middle":  {func(w *world) { w.remove(4, 5) }, []string{"entries 4 to 5 are missing"}},
		"the first":          {func(w *world) { w.remove(1) }, []string{"entry 1 is missing at the beginning"}},
		"the last":           {func(w *world) { w.remove(10) }, []string{"entry 10 is missing at the end"}},
		"the last, restart":  {func(w *world) { w.remove(9, 10); w.reopen() }, []string{"entries 9 to 10 are missing"}},
		"the last, and more": {func(w *world) { w.remove(9, 10); w.reopen(); w.write(5) }, []string{"entries 9 to 10 are missing"}},
		"all":                {func(w *world) { w.replace(func([]string) []string { return nil }) }, []string{"entries 1 to 10 are missing at the beginning"}},
		"one is changed": {func(w *world) {
			w.replace(func(l []string) []string { l[3] = strings.Replace(l[3], "user3", "root0", 1); return l })
		}, []string{"entry 4 was changed"}},
		"the last is changed": {func(w *world) {
			w.replace(func(l []string) []string { l[9] = strings.Replace(l[9], "user9", "root0", 1); return l })
		}, []string{"entry 10 was changed"}},
		"two change places": {func(w *world) {
			w.replace(func(l []string) []string { l[3], l[4] = l[4], l[3]; return l })
		}, []string{"entry 4 is missing", "entry 4 stands behind entry 5", "entry 5 is missing"}},
		"one twice": {func(w *world) {
			w.replace(func(l []string) []string { return append(l[:4:4], l[3:]...) })
		}, []string{"entry 4 stands behind entry 4"}},
		"a fork behind the head": {func(w *world) {
			w.replace(func(l []string) []string { return fork(w.T, l, 5) })
			w.write(1)
		}, []string{"entry 11 was changed, or entry 12 is not the one"}},
		"no entry at all": {func(w *world) {
			w.replace(func(l []string) []string { l[3] = "what?"; return l })
		}, []string{"unreadable", "entry 4 is missing"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t, nil)
			w.write(10)
			c.attack(w)
			w.verify(c.want...)
		})
	}
}

// fork makes other entries of those from a number on, with one more, which follow each other as they should.
func fork(t *testing.T, lines []string, from int) []string {
	t.Helper()
	lines = append(lines[:from-1:from-1], append(lines[from-1:], lines[len(lines)-1])...)
	for i := from - 1; i < len(lines); i++ {
		e, err := parse([]byte(lines[i]))
		if err != nil {
			t.Fatal(err)
		}
		e.N, e.Prev, e.User = uint64(i+1), Hash([]byte(lines[i-1])), "forger"
		text, err := json.Marshal(&e)
		if err != nil {
			t.Fatal(err)
		}
		lines[i] = string(text)
	}
	return lines
}

// TestAHeadBehindTheChain: after a crash the head may be behind, also behind what was pruned. Nothing is wrong with that.
func TestAHeadBehindTheChain(t *testing.T) {
	for name, pruned := range map[string]bool{"there": false, "pruned": true} {
		w := start(t, nil)
		w.write(10)
		w.verify() // waits for the head
		old := w.content(w.opts.HeadFile)
		w.write(10)
		if pruned {
			if _, err := w.l.prune(t.Context(), limits{since: time.Now().Add(time.Hour)}); err != nil {
				t.Fatal(err)
			}
		}
		w.l.Close()
		w.spoil(w.opts.HeadFile, old)
		w.open()
		w.write(1)
		want := uint64(21)
		if pruned {
			want++ // with the entry about that
		}
		if r := w.verify(); r.Last != want {
			t.Errorf("%s: %+v, want %d entries", name, r, want)
		}
	}
}

// A chain that was made again, head and all, does not fit to a head that was kept
// elsewhere.
func TestKeptHead(t *testing.T) {
	w := start(t, nil)
	w.write(3)
	kept := w.verify().Head
	w.write(3)
	r, err := w.l.Verify(t.Context(), kept)
	if err != nil {
		t.Fatal(err)
	}
	w.expect(r)
	w.l.Close()
	if err := errors.Join(os.Remove(w.opts.HeadFile), w.stream().Purge(t.Context())); err != nil {
		t.Fatal(err)
	}
	w.open()
	w.write(6)
	w.verify()
	r, err = w.l.Verify(t.Context(), kept)
	if err != nil {
		t.Fatal(err)
	}
	w.expect(r, "entry 3 is not the one that was written")
	for _, bad := range []string{"", "3", "x:" + origin.hash, "3:abc"} {
		if _, err := w.l.Verify(t.Context(), bad); err == nil {
			t.Errorf("the head %q was taken", bad)
		}
	}
}

// TestAKeptHeadCountsBesideThePresentOne: a chain that was made again may have been given as many entries.
func TestAKeptHeadCountsBesideThePresentOne(t *testing.T) {
	w := start(t, nil)
	w.write(6)
	other, present := "6:"+strings.Repeat("a", len(origin.hash)), w.verify().Head
	for _, kept := range [][]string{{other}, {other, present}, {present, other}} {
		r, err := w.l.Verify(t.Context(), kept...)
		if err != nil {
			t.Fatal(err)
		}
		w.expect(r, "entry 6 is not the one that was written")
	}
	r, err := w.l.Verify(t.Context(), present, present)
	if err != nil {
		t.Fatal(err)
	}
	w.expect(r)
}

// TestPruneDuringACheck: what is pruned while the chain is read is not missing. What is missing behind that is.
func TestPruneDuringACheck(t *testing.T) {
	for name, c := range map[string]struct {
		checked uint64 // before it is pruned
		missing uint64 // 0 for none
		want    []string
	}{
		"before the first": {0, 0, nil},
		"in the middle":    {5, 0, nil},
		"and one more":     {5, 31, []string{"entry 31 is missing"}},
		"at the beginning": {0, 31, []string{"entry 31 is missing at the beginning"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t, nil)
			w.write(50)
			check := newCheck(&w.l.removed)
			read := func(from, to uint64) {
				t.Helper()
				if err := each(t.Context(), w.opts.Queue, from, to, func(e journal.Entry) error { check.entry(e.Body); return nil }); err != nil {
					t.Fatal(err)
				}
			}
			read(1, c.checked)
			if _, err := w.l.prune(t.Context(), limits{since: time.Now().Add(time.Hour), look: 30}); err != nil {
				t.Fatal(err)
			}
			if c.missing > 0 {
				w.remove(c.missing)
			}
			read(c.checked+1, 50)
			w.expect(check.finish(), c.want...)
		})
	}
}

func TestMissingHeadIsReported(t *testing.T) {
	w := start(t, nil)
	w.write(2)
	w.l.Close()
	if err := os.Remove(w.opts.HeadFile); err != nil {
		t.Fatal(err)
	}
	w.open()
	w.verify()
	lines := w.lines(Query{})
	if len(lines) != 3 || !strings.Contains(lines[2], "was missing") {
		t.Errorf("%q, want a word about the head", lines)
	}
	w.verify()
}

func TestPrune(t *testing.T) {
	w := start(t, nil) // without limits, so that its housekeeping prunes nothing in between
	small := (&Options{MaxBytes: 5000}).limits(time.Now())
	w.write(50)
	if _, err := w.l.prune(t.Context(), small); err != nil {
		t.Fatal(err)
	}
	r := w.verify()
	if r.First < 30 || r.Last != 51 {
		t.Fatalf("%+v, want the last few of 51", r)
	}
	w.reopen()
	w.write(50)
	if _, err := w.l.prune(t.Context(), small); err != nil {
		t.Fatal(err)
	}
	r = w.verify()
	w.remove(r.First)
	w.verify("missing at the beginning")
}

// TestPruneInParts: reading all that is beyond the limits may take longer than one attempt may, in a cluster. Each attempt
// removes what it has found.
func TestPruneInParts(t *testing.T) {
	w := start(t, nil)
	w.write(50)
	k := limits{since: time.Now().Add(time.Hour), look: 20}
	first := func() uint64 {
		t.Helper()
		return w.verify().First
	}
	if more, err := w.l.prune(t.Context(), k); err != nil || !more || first() != 21 {
		t.Errorf("the first time: more is %v, %v, the first entry is %d", more, err, first())
	}
	if err := pruneAll(w.l, k); err != nil {
		t.Fatal(err)
	}
	if r := w.verify(); r.First != 52 || r.Last != 53 {
		t.Errorf("%+v, want the last two entries of 53", r)
	}
}

func TestPruneByAge(t *testing.T) {
	w := start(t, nil)
	hour := Options{MaxAge: time.Hour}
	w.write(5)
	if _, err := w.l.prune(t.Context(), hour.limits(time.Now())); err != nil {
		t.Fatal(err)
	}
	if r := w.verify(); r.Entries != 5 {
		t.Fatalf("%+v, want all of them", r)
	}
	if _, err := w.l.prune(t.Context(), hour.limits(time.Now().Add(2*time.Hour))); err != nil {
		t.Fatal(err)
	}
	if r := w.verify(); r.First != 5 || r.Last != 6 {
		t.Errorf("%+v, want the newest and the word about the others", r)
	}
}

// Arguments are recorded as a keyed digest, the same for the same.
func TestArguments(t *testing.T) {
	secret := Entry{Kind: Publish, Verdict: Allowed, Commands: []salt.Command{
		{Function: "user.add", Args: []any{"fred", int64(5)}, Kwargs: map[string]any{"b": true, "password": "hunter2"}},
	}}
	for _, values := range []bool{false, true} {
		w := start(t, func(o *Options) { o.Values = values })
		for range 2 {
			if err := w.l.Record(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
		}
		lines := w.lines(Query{})
		a, errA := parse([]byte(lines[0]))
		b, errB := parse([]byte(lines[1]))
		if err := errors.Join(errA, errB); err != nil {
			t.Fatal(err)
		}
		if a.Digest == "" || a.Digest != b.Digest || a.Fun != "user.add" {
			t.Errorf("digests %q and %q of %s", a.Digest, b.Digest, a.Fun)
		}
		if strings.Contains(lines[0], "hunter2") != values {
			t.Errorf("audit_args %v: %s", values, lines[0])
		}
		same, err := w.l.Digest(secret.Commands[0].Args, secret.Commands[0].Kwargs)
		if err != nil || same != a.Digest {
			t.Errorf("Digest = %s, %v, want %s", same, err, a.Digest)
		}
		if other, _ := w.l.Digest([]any{"fred"}, nil); other == a.Digest {
			t.Error("other arguments have the same digest")
		}
	}
}

// The store says no: nothing is allowed then. When it can, the chain goes on
// without a gap.
func TestStoreFails(t *testing.T) {
	w := start(t, nil)
	w.write(2)
	w.limit(2)
	var pending []*Pending
	for range 3 {
		p, err := w.l.Begin(ping("fred"))
		if err == nil {
			pending = append(pending, p)
		} else if !errors.Is(err, ErrUnwritten) {
			t.Errorf("Begin: %v, want ErrUnwritten", err)
		}
	}
	for _, p := range pending {
		if err := p.Wait(t.Context()); !errors.Is(err, ErrUnwritten) {
			t.Errorf("an entry without room: %v, want ErrUnwritten", err)
		}
	}
	w.limit(-1)
	w.write(2)
	if r := w.verify(); r.Last != 4 {
		t.Errorf("%+v, want 4 entries", r)
	}
}

// limit makes the store refuse more than n entries, as a full disk would.
func (w *world) limit(n int64) {
	w.Helper()
	js, err := jetstream.New(w.bus.Conn())
	if err != nil {
		w.Fatal(err)
	}
	cfg := w.stream().CachedInfo().Config
	cfg.MaxMsgs, cfg.Discard = n, jetstream.DiscardNew
	if _, err := js.UpdateStream(w.Context(), cfg); err != nil {
		w.Fatal(err)
	}
}

// Somebody else's message in the queue fails the next entry, and shows.
func TestForeignMessage(t *testing.T) {
	w := start(t, nil)
	w.write(2)
	if _, err := w.opts.Queue.Put(t.Context(), []byte(w.lines(Query{})[1])); err != nil {
		t.Fatal(err)
	}
	if err := w.l.Record(t.Context(), ping("fred")); !errors.Is(err, ErrUnwritten) {
		t.Errorf("an entry behind a foreign one: %v, want ErrUnwritten", err)
	}
	w.write(2)
	w.verify("entry 2 stands behind entry 2")
}

// TestAnEndThatIsNoEntryDoesNotEndTheLog: what the queue ends with cannot be read as entries. That is told, in the chain, too, which
// continues behind the last entry, of an open log and of one that is opened, and old ones are pruned nevertheless.
func TestAnEndThatIsNoEntryDoesNotEndTheLog(t *testing.T) {
	for name, c := range map[string]struct {
		entries, foreign int
		want             string
	}{
		"one behind entries":  {2, 1, "one message is not an entry behind entry 2"},
		"some behind entries": {2, 3, "3 messages are not entries behind entry 2"},
		"nothing else":        {0, 2, "2 messages are not entries behind entry 0"},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, nil)
			spoil := func() {
				t.Helper()
				for range c.foreign {
					if _, err := w.opts.Queue.Put(t.Context(), []byte(`{"n":`)); err != nil {
						t.Fatal(err)
					}
				}
			}
			w.write(c.entries)
			spoil()
			w.reopen()
			w.write(1)
			lines := w.lines(Query{Last: 2})
			e, err := parse([]byte(lines[0]))
			if err != nil || e.Fun != "audit.start" || e.Reason != c.want || e.N != uint64(c.entries+1) {
				t.Errorf("the chain continues with %s, %v, want %q", lines[0], err, c.want)
			}
			spoil() // of the open log
			if err := w.l.Record(t.Context(), ping("fred")); !errors.Is(err, ErrUnwritten) {
				t.Errorf("an entry behind a foreign one: %v, want ErrUnwritten", err)
			}
			w.write(1)
			if r, err := w.l.Verify(t.Context()); err != nil || r.Last != uint64(c.entries+3) || len(r.Problems) != 2*c.foreign {
				t.Errorf("%+v, %v", r, err)
			}
			for range 2 { // the newest entry always stays
				if _, err := w.l.prune(t.Context(), limits{since: time.Now().Add(time.Hour)}); err != nil {
					t.Error(err)
				}
			}
			w.verify()
		})
	}
}

func TestClosedBus(t *testing.T) {
	w := start(t, nil)
	w.write(1)
	w.bus.Stop()
	if err := w.l.Record(t.Context(), ping("fred")); !errors.Is(err, ErrUnwritten) {
		t.Errorf("without a bus: %v, want ErrUnwritten", err)
	}
	w.l.Close()
	if err := w.l.Record(t.Context(), ping("fred")); !errors.Is(err, ErrUnwritten) {
		t.Errorf("closed: %v, want ErrUnwritten", err)
	}
}

// One who is refused again and again fills the audit log with a few entries, which
// have the number of all; others are told as ever.
func TestFlood(t *testing.T) {
	w := start(t, nil)
	for range 1000 {
		w.l.Note(Entry{Kind: Publish, Who: Who{User: "eve"}})
	}
	w.l.Note(Entry{Kind: Publish, Who: Who{User: "ann"}})
	for range 200 {
		w.l.Note(Entry{Kind: Publish, Verdict: Allowed, Who: Who{User: "fred"}})
	}
	w.reopen()
	count := map[string]int{}
	repeated := 0
	for _, line := range w.lines(Query{}) {
		e, err := parse([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		count[e.User]++
		repeated += e.Repeated
	}
	if count["eve"] != floodLimit+1 || repeated != 1000-floodLimit || count["ann"] != 1 || count["fred"] != 200 {
		t.Errorf("entries %v, %d repeated", count, repeated)
	}
	w.verify()
}

func TestQueries(t *testing.T) {
	w := start(t, nil)
	w.write(3)
	since := time.Now()
	w.write(2)
	for name, c := range map[string]struct {
		q    Query
		want int
	}{
		"all": {Query{}, 5}, "since": {Query{Since: since}, 2}, "since ever": {Query{Since: since.Add(-time.Hour)}, 5},
		"since tomorrow": {Query{Since: since.Add(time.Hour)}, 0}, "the last": {Query{Last: 2}, 2}, "more than there are": {Query{Last: 50}, 5},
	} {
		if got := len(w.lines(c.q)); got != c.want {
			t.Errorf("%s: %d entries, want %d", name, got, c.want)
		}
	}
}

// TestTheNewestEntriesAreNotMarks: each start of a member stores a mark in the queue of its log. As many entries are
// returned as were asked for, wherever there are marks among them.
func TestTheNewestEntriesAreNotMarks(t *testing.T) {
	w := start(t, nil)
	mark := func(n int) {
		t.Helper()
		for range n {
			answer, err := w.bus.Conn().RequestMsg(&nats.Msg{Subject: "salt.queue.AUDIT", Data: []byte{'p'}, Header: nats.Header{"Salt-Piece": {"term/1/3"}}}, time.Minute)
			if err != nil || bytes.Contains(answer.Data, []byte(`"error"`)) {
				t.Fatalf("%s, %v", answer.Data, err)
			}
		}
	}
	w.write(2)
	mark(1)
	w.reopen()
	w.write(2)
	mark(5)
	w.reopen()
	w.write(2)
	mark(3)
	all := w.lines(Query{})
	if len(all) != 6 {
		t.Fatalf("there are %d entries", len(all))
	}
	for n := 1; n <= 8; n++ {
		if got, want := w.lines(Query{Last: n}), all[max(0, 6-n):]; !slices.Equal(got, want) {
			t.Errorf("of the newest %d there are %d: %q", n, len(got), got)
		}
	}
}

// Listeners are told of each entry, with its hash.
func TestAnnounce(t *testing.T) {
	reported := make(chan string, 10)
	w := start(t, func(o *Options) {
		o.Announce = func(tag string, data json.RawMessage) { reported <- tag + " " + string(data) }
	})
	w.write(1)
	w.l.Note(Entry{Kind: Key, Who: Who{Minion: "web1"}})
	line := w.lines(Query{})[0]
	if got := deadline.Receive(t, reported, "reported"); !strings.HasPrefix(got, "salt/audit/allowed {") || !strings.Contains(got, Hash([]byte(line))) {
		t.Errorf("told %s", got)
	}
	if got := deadline.Receive(t, reported, "reported"); !strings.HasPrefix(got, "salt/audit/refused {") || !strings.Contains(got, `"verdict":"refused"`) {
		t.Errorf("told %s", got)
	}
}

func (w *world) copied() []string {
	w.Helper()
	b, err := os.ReadFile(w.opts.File)
	if err != nil {
		w.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

// await waits until the file has n lines.
func (w *world) await(n int) {
	w.Helper()
	w.awaitIn(n, w.opts.File)
}

// awaitIn waits until the files have n lines together.
func (w *world) awaitIn(n int, files ...string) {
	w.Helper()
	deadline := time.Now().Add(time.Minute)
	for ; ; time.Sleep(time.Millisecond) {
		lines := 0
		var err error
		for _, name := range files {
			b, one := os.ReadFile(name)
			if lines += strings.Count(string(b), "\n"); !errors.Is(one, os.ErrNotExist) {
				err = errors.Join(err, one)
			}
		}
		if err == nil && lines == n {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("%s: %d lines, want %d: %v", files, lines, n, err)
		}
		w.l.copy.wake()
	}
}

func TestCopy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	w := start(t, func(o *Options) { o.File = path })
	w.write(3)
	w.reopen()
	w.write(2)
	w.await(5)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v, want 0600", info.Mode(), err)
	}
	if got, want := w.copied(), w.lines(Query{}); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the file has\n%q\nwant\n%q", got, want)
	}

	// logrotate moves it away; the next entry comes into a new one
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	w.write(1)
	w.awaitIn(6, path+".1", path)
	first := 7 // of the file after that
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		// What is being copied at the moment of the move goes where the file has gone.
		w.write(1)
		w.await(1)
		first++
	}
	w.l.Close()
	if err := os.Rename(path, path+".2"); err != nil { // while nobody looks
		t.Fatal(err)
	}
	w.open()
	w.write(2)
	w.await(2)
	if got := w.copied()[0]; !strings.Contains(got, fmt.Sprintf(`"n":%d,`, first)) {
		t.Errorf("the file begins with %s, want entry %d", got, first)
	}
}

// TestACopyGoesOnWhereItEnds: a kill or a power cut during a write leaves a part of it, and a position before or behind
// that. Each entry is in the file once and whole, and what is not of an entry stays.
func TestACopyGoesOnWhereItEnds(t *testing.T) {
	for name, c := range map[string]struct {
		lines    int    // that are there of five
		part     string // behind them
		position string
		kept     string
	}{
		"a part of the next entry":       {3, `{"n":4,"ki`, "2", ""},
		"the first byte of it":           {3, `{`, "2", ""},
		"zeros":                          {3, "\x00\x00\x00", "2", ""},
		"a part, and zeros":              {3, `{"n":4,"ki` + "\x00\x00", "2", ""},
		"whole lines":                    {4, "", "1", ""},
		"less than the position":         {3, "", "5", ""},
		"a part, less than the position": {3, `{"n":4,"ki`, "5", ""},
		"a note of somebody":             {3, "rotated", "3", "rotated"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t, func(o *Options) { o.File = filepath.Join(t.TempDir(), "audit.jsonl") })
			w.write(5)
			w.await(5)
			w.l.Close()
			all := w.copied()
			w.spoil(w.opts.File, strings.Join(all[:c.lines], "\n")+"\n"+c.part)
			if err := w.opts.Position.Put(t.Context(), positionKey, []byte(c.position)); err != nil {
				t.Fatal(err)
			}
			w.open()
			want := slices.Clone(all)
			if c.kept != "" {
				want = slices.Insert(want, c.lines, c.kept)
			}
			w.await(len(want))
			if got := w.copied(); !slices.Equal(got, want) {
				t.Errorf("the file has\n%q\nwant\n%q", got, want)
			}
		})
	}
}

// TestACopyOfAnotherLog: a file may be there from another chain, whose numbers are higher. All entries of this one follow.
func TestACopyOfAnotherLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	if err := os.WriteFile(path, []byte(`{"n":50,"kind":"runner"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	log, read := logged()
	w := start(t, func(o *Options) { o.File, o.Log = path, log })
	w.write(3)
	w.await(4)
	if got, want := w.copied()[1:], w.lines(Query{}); !slices.Equal(got, want) {
		t.Errorf("the file has\n%q\nwant\n%q", got, want)
	}
	w.reopen()
	w.write(1)
	w.await(5)
	if n := strings.Count(read(), "an entry of another audit log"); n != 1 {
		t.Errorf("the log says so %d times", n)
	}
}

// A file that cannot be written is told in the log; what is missing comes later.
func TestCopyFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	log, read := logged()
	w := start(t, func(o *Options) { o.File, o.Log = path, log })
	w.write(1)
	w.await(1)
	// What is being copied at this moment goes where the file has gone.
	if err := errors.Join(os.Rename(path, path+".1"), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	w.write(3)
	w.reported(read, "audit_file not written")
	if n := strings.Count(read(), "audit_file not written"); n != 1 {
		t.Errorf("told %d times, want once", n)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	w.reported(read, "audit_file can be written again")
	w.awaitIn(4, path+".1", path)
}

// told waits until the log has these words.
func (w *world) reported(read func() string, words string) {
	w.Helper()
	deadline := time.Now().Add(time.Minute)
	for ; !strings.Contains(read(), words); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("the log does not say %q", words)
		}
		w.l.copy.wake()
	}
}

// What cannot be a file of its own is refused at the start.
func TestCopyRefused(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "folder"), 0o700), os.Symlink("/etc/passwd", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	w := start(t, nil)
	w.l.Close()
	for _, name := range []string{"folder", "link", "no/such/folder"} {
		o := w.opts
		o.File = filepath.Join(dir, name)
		if l, err := Open(t.Context(), o); err == nil {
			l.Close()
			t.Errorf("%s was taken", name)
		}
	}
	if l, err := Open(t.Context(), func() Options { o := w.opts; o.File = "/dev/null"; return o }()); err == nil {
		l.Close()
		t.Error("a device was taken")
	}
}

// TestNothingAsksTheStoreWhenCloseStopsWaiting: a store that does not answer would hold up the end of
// a daemon for longer than Close waits.
func TestNothingAsksTheStoreWhenCloseStopsWaiting(t *testing.T) {
	log, text := logged()
	w := start(t, func(o *Options) { o.Log, o.File = log, filepath.Join(t.TempDir(), "copy") })
	w.write(3)
	w.l.giveUp() // as after closeTime
	w.l.housekeep()
	w.l.broken.Store(true)
	if _, err := w.l.Begin(ping("fred")); !errors.Is(err, context.Canceled) {
		t.Errorf("after an entry that was not stored: %v", err)
	}
	w.l.Close()
	for _, words := range []string{"audit log not pruned", "audit_file not written"} {
		if !strings.Contains(text(), words) {
			t.Errorf("the log does not say %q:\n%s", words, text())
		}
	}
}

// logged is a logger and what it has written.
func logged() (*slog.Logger, func() string) {
	var mu sync.Mutex
	var text strings.Builder
	write := writer(func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return text.Write(b)
	})
	return slog.New(slog.NewTextHandler(write, nil)), func() string {
		mu.Lock()
		defer mu.Unlock()
		return text.String()
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

var _ io.Writer = writer(nil)

func TestLongLists(t *testing.T) {
	w := start(t, nil)
	e := ping("fred")
	for i := range 20_000 {
		e.Minions = append(e.Minions, salt.MinionID(fmt.Sprint("web", i)))
	}
	e.Count = len(e.Minions)
	e.Commands[0].Args = []any{strings.Repeat("x", 10<<20)}
	e.Target = strings.Repeat("ö", 30<<10)
	if err := w.l.Record(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	got, err := parse([]byte(w.lines(Query{})[0]))
	if err != nil || len(got.Minions) != maxMinions || got.Count != 20_000 || len(e.Minions) != 20_000 {
		t.Errorf("%d minions of %d, %v", len(got.Minions), got.Count, err)
	}
	if want := strings.Repeat("ö", maxText/2) + "... (61440 bytes, hmac-sha256:"; !strings.HasPrefix(got.Target, want) {
		t.Errorf("the target is %.40s... with %d bytes", got.Target, len(got.Target))
	}
}

// manyCommands are more than an entry can contain: the names of their functions alone are longer than what the
// queue takes.
func manyCommands() (list []salt.Command) {
	for i := range 6000 {
		list = append(list, salt.Command{Function: salt.Function(fmt.Sprintf("test.%0123d", i))})
	}
	return list
}

// TestNoEntryIsTooLong: whatever a request contains, its entry is written, and says what it lacks.
func TestNoEntryIsTooLong(t *testing.T) {
	long := strings.Repeat("<", 1<<20)
	var ids []salt.MinionID
	for i := range maxMinions {
		ids = append(ids, salt.MinionID(fmt.Sprintf("%0250d", i)))
	}
	for name, c := range map[string]struct {
		e       Entry
		omitted string
	}{
		"functions":             {Entry{Commands: manyCommands()}, ""},
		"inner functions":       {Entry{Inner: strings.Split(strings.Repeat("test.ping ", 100_000), " ")}, ""},
		"a reason":              {Entry{Reason: long}, ""},
		"arguments and minions": {Entry{Commands: []salt.Command{{Function: "test.echo", Args: []any{strings.Repeat("<", maxArguments-100)}}}, Minions: ids}, "arg"},
		"tags":                  {Entry{Tags: []string{long}}, "arg minions inner"},
		"a user":                {Entry{Who: Who{User: long, Source: long}}, "arg minions inner texts"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t, func(o *Options) { o.Values = true })
			c.e.Kind = Publish
			for range 2 {
				if err := w.l.Record(t.Context(), c.e); err != nil {
					t.Fatal(err)
				}
			}
			lines := w.lines(Query{})
			got, err := parse([]byte(lines[1]))
			if err != nil || strings.Join(got.Omitted, " ") != c.omitted || len(got.Inner) > maxInner+1 || len(lines[1]) > journal.MaxEntry {
				t.Errorf("%v, omitted %q, %d inner functions, %d bytes", err, got.Omitted, len(got.Inner), len(lines[1]))
			}
			if name == "functions" && (!strings.HasPrefix(got.Fun, "test.000") || !strings.Contains(got.Fun, "... (773999 bytes, hmac-sha256:")) {
				t.Errorf("the functions are %.20s... with %d bytes", got.Fun, len(got.Fun))
			}
			w.verify()
		})
	}
}

// Reading a head or an entry never panics and gives back what was written.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"n":1,"kind":"publish","verdict":"refused","user":"fred"}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := parse(line)
		if err != nil {
			return
		}
		again, err := json.Marshal(&e)
		if err != nil {
			return // a time beyond the year 9999
		}
		if _, err := parse(again); err != nil {
			t.Errorf("%s becomes %s: %v", line, again, err)
		}
	})
}

// BenchmarkRecord is one entry beside one message that is stored without it.
func BenchmarkRecord(b *testing.B) {
	bus := bustest.StartStore(b)
	q, err := journal.OpenQueue(b.Context(), bus.Conn(), "BARE", nil)
	if err != nil {
		b.Fatal(err)
	}
	j, err := journal.Open(b.Context(), bus.Conn(), journal.Options{})
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	o := Options{HeadFile: filepath.Join(dir, "head"), KeyFile: filepath.Join(dir, "key"), Log: slog.New(slog.DiscardHandler)}
	if o.Queue, err = journal.OpenQueue(b.Context(), bus.Conn(), "AUDIT", nil); err == nil {
		o.Position, err = j.Table(b.Context(), "audit")
	}
	if err != nil {
		b.Fatal(err)
	}
	l, err := Open(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	line, _, err := func() ([]byte, position, error) { e := ping("fred"); return e.encode(l.digest, false, origin) }()
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	var ours, bare time.Duration
	for b.Loop() {
		begun := time.Now()
		if err := l.Record(ctx, ping("fred")); err != nil {
			b.Fatal(err)
		}
		middle := time.Now()
		if _, err := q.Put(ctx, line); err != nil {
			b.Fatal(err)
		}
		ours += middle.Sub(begun)
		bare += time.Since(middle)
	}
	b.ReportMetric(float64(ours.Microseconds())/float64(b.N), "µs/entry")
	b.ReportMetric(float64(bare.Microseconds())/float64(b.N), "µs/bare")
	b.ReportMetric(float64(ours)/float64(bare), "ratio")
}

// The head is written when the entries are on the disk, and not before: a power cut then
// looks like nobody's work.
func TestHeadIsNeverAheadOfTheDisk(t *testing.T) {
	w := start(t, nil)
	w.l.Close()
	begun, goOn := make(chan struct{}, 1000), make(chan struct{})
	w.opts.Flush = func() error {
		begun <- struct{}{}
		<-goOn
		return nil
	}
	before, err := os.ReadFile(w.opts.HeadFile)
	if err != nil {
		t.Fatal(err)
	}
	w.open()
	if err := w.l.Record(t.Context(), Entry{Kind: Runner, Fun: "test.head"}); err != nil { // which does not wait for the head
		t.Fatal(err)
	}
	deadline.Receive(t, begun, "begun")
	if now, err := os.ReadFile(w.opts.HeadFile); err != nil || string(now) != string(before) {
		t.Errorf("the head is %q, %v, and the entry is not on the disk", now, err)
	}
	close(goOn)
	w.verify()
	if now, err := os.ReadFile(w.opts.HeadFile); err != nil || string(now) == string(before) {
		t.Errorf("the head is still %q, %v", now, err)
	}
}
