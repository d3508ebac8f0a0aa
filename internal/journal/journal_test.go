package journal_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
)

// startStore starts a broker without a listener on the store in dir.
func startStore(t testing.TB, dir string) *broker.Broker {
	t.Helper()
	b, err := broker.Start(storeOptions(dir, slog.New(slog.NewTextHandler(t.Output(), nil))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	return b
}

func storeOptions(dir string, log *slog.Logger) broker.Options {
	return broker.Options{Name: "test", StoreDir: dir, Log: log, Admit: func(broker.Peer) bus.Identity { return bus.Identity{} }}
}

func open(t testing.TB, b *broker.Broker) *journal.Journal {
	t.Helper()
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// filled returns an event whose data is one letter n times.
func filled(tag, letter string, n int) event.Event {
	return event.Event{Tag: tag, Data: json.RawMessage(`"` + strings.Repeat(letter, n) + `"`), From: "web1"}
}

func readAll(t testing.TB, j *journal.Journal, q journal.Query) []event.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var list []event.Event
	if err := j.Read(ctx, q, func(e event.Event) error { list = append(list, e); return nil }); err != nil {
		t.Fatal(err)
	}
	return list
}

// show writes events as tag:letter×length, to compare them.
func show(list []event.Event) string {
	var s []string
	for _, e := range list {
		data := strings.Trim(string(e.Data), `"`)
		letter := ""
		if data != "" && strings.Count(data, data[:1]) == len(data) {
			letter = data[:1]
		}
		s = append(s, fmt.Sprintf("%s:%s×%d", e.Tag, letter, len(data)))
	}
	return strings.Join(s, " ")
}

// limit bounds the waits of a failing test.
const limit = time.Minute

// Sizes of events that are stored in three and in two pieces.
const (
	long = 1100 << 10
	mega = 600 << 10
)

func TestLongEventsSideBySide(t *testing.T) {
	t.Parallel()
	j := open(t, bustest.StartStore(t).Broker)
	const writers, each = 4, 2
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := range each {
				e := filled(fmt.Sprintf("long/%d/%d", w, n), string(rune('a'+w)), long+w)
				// Ids that differ only in where their slash is.
				id := strings.Repeat("x", w) + "/" + strings.Repeat("x", writers-w) + "/" + strconv.Itoa(n)
				if _, err := j.Append(t.Context(), e, id); err != nil {
					t.Error(err)
				}
				if _, err := j.Append(t.Context(), filled("short", string(rune('a'+w)), 1), ""); err != nil {
					t.Error(err)
				}
			}
		})
	}
	deadline.Call(t, wg.Wait, "wg")
	whole, short := 0, 0
	for _, e := range readAll(t, j, journal.Query{}) {
		if e.Tag == "short" {
			short++
			continue
		}
		whole++
		var w, n int
		if _, err := fmt.Sscanf(e.Tag, "long/%d/%d", &w, &n); err != nil {
			t.Fatal(err)
		}
		if want := show([]event.Event{filled(e.Tag, string(rune('a'+w)), long+w)}); show([]event.Event{e}) != want || e.From != "web1" {
			t.Errorf("read %s of %s, want %s", show([]event.Event{e}), e.From, want)
		}
	}
	if whole != writers*each || short != writers*each {
		t.Errorf("%d long and %d short events, want %d of each", whole, short, writers*each)
	}
}

func TestReadingFromTheMiddle(t *testing.T) {
	t.Parallel()
	b := bustest.StartStore(t).Broker
	j := open(t, b)
	for i, e := range []event.Event{filled("a", "a", 1), filled("long", "l", long), filled("z", "z", 1)} {
		if _, err := j.Append(t.Context(), e, strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	last, err := j.Last(t.Context())
	if err != nil || last < 5 {
		t.Fatalf("%d messages, %v; the long event should take several", last, err)
	}
	reported := 0
	all := readAll(t, j, journal.Query{Long: func(_ context.Context, size int) error { reported += size; return nil }})
	if reported < long || reported > 2*long {
		t.Errorf("before the long event of %d bytes it was told of %d", long, reported)
	}
	if got, want := show(all), fmt.Sprintf("a:a×1 long:l×%d z:z×1", long); got != want || all[2].Seq != last {
		t.Errorf("read %s, want %s", got, want)
	}
	for from := uint64(3); from <= last; from++ { // 2 is the first piece
		if got := show(readAll(t, j, journal.Query{FromSeq: from})); got != "z:z×1" {
			t.Errorf("from %d: %s", from, got)
		}
	}
	if got := show(readAll(t, j, journal.Query{Subjects: []string{event.Subject("z")}})); got != "z:z×1" {
		t.Errorf("by tag: %s", got)
	}
	if got := show(readAll(t, j, journal.Query{FromSeq: last + 1})); got != "" {
		t.Errorf("behind the end: %s", got)
	}
	e, ok, err := j.First(t.Context(), event.Subject("long"))
	if err != nil || !ok || len(e.Data) != long+2 {
		t.Errorf("the first long event has %d bytes, %v, %v", len(e.Data), ok, err)
	}
	if _, ok, err := j.First(t.Context(), event.Subject("nosuch")); ok || err != nil {
		t.Errorf("an event that there is not: %v, %v", ok, err)
	}
}

// Incomplete or invalid pieces are skipped: a daemon that is killed while it stores leaves them
// behind.
func TestOrphansAreNeverRead(t *testing.T) {
	t.Parallel()
	b := bustest.StartStore(t).Broker
	j := open(t, b)
	js, err := jetstream.New(b.Conn())
	if err != nil {
		t.Fatal(err)
	}
	half := "p" + strings.Repeat("h", 512<<10)
	for _, part := range []string{"x/0/3", "x/1/3", "y/1/2", "z/0/0", "z/5/2", "z/-1/2", "/0", "", "a/b/c", "x/0/999999999999999999999"} {
		m := &nats.Msg{Subject: event.Subject("orphan"), Data: []byte(half), Header: nats.Header{"Salt-Part": {part}}}
		if part == "" {
			continue
		}
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := j.Append(t.Context(), filled("ok", "k", 1), ""); err != nil {
		t.Fatal(err)
	}
	// The same id again, from its beginning.
	if _, err := j.Append(t.Context(), filled("again", "g", mega), "x"); err != nil {
		t.Fatal(err)
	}
	if got, want := show(readAll(t, j, journal.Query{})), fmt.Sprintf("ok:k×1 again:g×%d", mega); got != want {
		t.Errorf("read %s, want %s", got, want)
	}
}

func TestRepetitionsAreNotStored(t *testing.T) {
	t.Parallel()
	j := open(t, bustest.StartStore(t).Broker)
	for name, n := range map[string]int{"short": 1, "long": 2 * mega} {
		first, err := j.Append(t.Context(), filled(name, "a", n), name)
		if err != nil {
			t.Fatal(err)
		}
		again, err := j.Append(t.Context(), filled(name, "b", n), name)
		if err != nil || again != first {
			t.Errorf("%s: the repetition is at %d, %v; the first at %d", name, again, err, first)
		}
		if _, err := j.Append(t.Context(), filled(name, "c", n), name+"2"); err != nil {
			t.Error(err)
		}
		want := show([]event.Event{filled(name, "a", n), filled(name, "c", n)})
		if got := show(readAll(t, j, journal.Query{Subjects: []string{event.Subject(name)}})); got != want {
			t.Errorf("read %s, want %s", got, want)
		}
	}
	for range 3 {
		if _, err := j.Append(t.Context(), filled("nameless", "a", 1), ""); err != nil {
			t.Error(err)
		}
	}
	if got := readAll(t, j, journal.Query{Subjects: []string{event.Subject("nameless")}}); len(got) != 3 {
		t.Errorf("%d events without an id, want 3", len(got))
	}
}

// Follow gets everything that is appended after Open has returned, whatever happened before.
func TestFollowFromOpen(t *testing.T) {
	t.Parallel()
	j := open(t, bustest.StartStore(t).Broker)
	for range 10 {
		if _, err := j.Append(t.Context(), filled("before", "b", 1), ""); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var follow []*journal.Cursor
	for _, q := range []journal.Query{{New: true, Follow: true}, {New: true, Follow: true, Subjects: []string{event.Subject("after")}}, {FromSeq: 11, Follow: true}} {
		c, err := j.Open(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		follow = append(follow, c)
	}
	for n := range 50 {
		if _, err := j.Append(ctx, filled("after", "a", n+1), ""); err != nil {
			t.Fatal(err)
		}
	}
	enough := errors.New("enough")
	for i, c := range follow {
		n := 0
		err := c.Each(ctx, func(e event.Event) error {
			n++
			if want := show([]event.Event{filled("after", "a", n)}); show([]event.Event{e}) != want {
				t.Errorf("cursor %d: %s, want %s", i, show([]event.Event{e}), want)
			}
			if n == 50 {
				return enough
			}
			return nil
		})
		if !errors.Is(err, enough) {
			t.Errorf("cursor %d: %v after %d events", i, err, n)
		}
	}
}

func TestFollowEndsWithItsContext(t *testing.T) {
	t.Parallel()
	j := open(t, bustest.StartStore(t).Broker)
	gone := errors.New("the listener is gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	c, err := j.Open(ctx, journal.Query{New: true, Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan struct{})
	done := make(chan error, 1)
	go func() { done <- c.Each(ctx, func(event.Event) error { close(heard); return nil }) }()
	if _, err := j.Append(t.Context(), filled("x", "x", 1), ""); err != nil {
		t.Fatal(err)
	}
	deadline.Receive(t, heard, "heard")
	cancel(gone)
	select {
	case err := <-done:
		if !errors.Is(err, gone) {
			t.Errorf("%v, want %v", err, gone)
		}
	case <-time.After(limit):
		t.Fatal("it follows on")
	}
}

// A reader that does not follow ends even if events are stored as fast as it reads.
func TestReadEndsUnderLoad(t *testing.T) {
	t.Parallel()
	j := open(t, bustest.StartStore(t).Broker)
	for range 20 {
		if _, err := j.Append(t.Context(), filled("old", "o", 1), ""); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n := 0
	err := j.Read(ctx, journal.Query{}, func(event.Event) error {
		n++
		_, err := j.Append(ctx, filled("new", "n", 1), "") // one more for each that is read
		return err
	})
	if err != nil || n != 20 {
		t.Errorf("%d events, %v; want the 20 that were there", n, err)
	}
}

// Events may be discarded before a reader gets them.
func TestReadEndsWhenTheRestIsDiscarded(t *testing.T) {
	t.Parallel()
	b := bustest.StartStore(t).Broker
	j := open(t, b)
	for n := range 3000 {
		if _, err := j.Begin(filled("x", "x", n%10), ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := j.Append(t.Context(), filled("x", "x", 1), ""); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(b.Conn())
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), "EVENTS")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	n := 0
	if err := j.Read(ctx, journal.Query{}, func(event.Event) error {
		if n++; n == 1 {
			return s.Purge(ctx)
		}
		return nil
	}); err != nil {
		t.Errorf("after %d events: %v", n, err)
	}
}

// An append that is under way when the store closes returns an error.
func TestAppendEndsWithTheStore(t *testing.T) {
	t.Parallel()
	b := startStore(t, t.TempDir())
	j := open(t, b)
	b.Stop()
	done := make(chan error, 1)
	go func() {
		p, err := j.Begin(filled("x", "x", 1), "")
		if err == nil {
			_, err = p.Wait(context.Background())
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil {
			t.Error("stored in a store that is closed")
		}
	case <-time.After(limit):
		t.Fatal("it waits for ever")
	}
}

// The environment variable that makes the test binary a writer to be killed.
const writerEnv = "JOURNAL_TEST_WRITER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerEnv); dir != "" {
		os.Exit(write(dir))
	}
	if dir, events, ok := strings.Cut(os.Getenv(cutEnv), " "); ok {
		n, _ := strconv.Atoi(events)
		fmt.Fprintln(os.Stderr, cut(dir, n))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// write appends numbered events, and prints each one once it is acknowledged, until the process
// is killed.
func write(dir string) int {
	b, err := broker.Start(storeOptions(dir, slog.New(slog.DiscardHandler)))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx := context.Background()
	j, err := journal.Open(ctx, b.Conn(), journal.Options{})
	for n := 0; err == nil; n++ {
		size := 10
		if n%50 == 49 {
			size = mega // in several pieces
		}
		if _, err = j.Append(ctx, filled("n/"+strconv.Itoa(n), "x", size), strconv.Itoa(n)); err == nil {
			fmt.Println(n)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// Events that were acknowledged before a kill -9 are there after it, complete and in order.
func TestKilledWriterLosesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), writerEnv+"="+dir)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	deadline.Guard(t, func() { _ = cmd.Process.Kill() }, "the writer")
	acknowledged := -1
	for s := bufio.NewScanner(out); s.Scan(); {
		if acknowledged, err = strconv.Atoi(s.Text()); err != nil {
			t.Fatal(err)
		}
		if acknowledged == 160 {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait() // killed
	if acknowledged < 160 {
		t.Fatalf("the writer ended by itself after %d events", acknowledged)
	}
	list := readAll(t, open(t, startStore(t, dir)), journal.Query{})
	if len(list) <= acknowledged {
		t.Fatalf("%d events of %d that were acknowledged", len(list), acknowledged+1)
	}
	for n, e := range list {
		size := 10
		if n%50 == 49 {
			size = mega
		}
		if want := show([]event.Event{filled("n/"+strconv.Itoa(n), "x", size)}); show([]event.Event{e}) != want {
			t.Fatalf("event %d is %s, want %s", n, show([]event.Event{e}), want)
		}
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	j := open(t, bustest.StartStore(t).Broker)
	tab, err := j.Table(t.Context(), "facts")
	if err != nil {
		t.Fatal(err)
	}
	keys := []string{"web1.example.com", "a b", "", "*", ">", "$x", "ü", "a/b", "=", "a=2Eb", strings.Repeat("k", 300)}
	for i, k := range keys {
		if v, err := tab.Get(t.Context(), k); v != nil || err != nil {
			t.Errorf("%q before it is put: %q, %v", k, v, err)
		}
		for range 2 { // the second replaces the first
			if err := tab.Put(t.Context(), k, []byte(strconv.Itoa(i))); err != nil {
				t.Fatalf("put %q: %v", k, err)
			}
		}
	}
	if err := tab.Delete(t.Context(), keys[0]); err != nil {
		t.Fatal(err)
	}
	if err := tab.Delete(t.Context(), "never there"); err != nil {
		t.Errorf("delete what is not there: %v", err)
	}
	got := map[string]string{}
	if err := tab.Each(t.Context(), func(k string, v []byte) { got[k] = string(v) }); err != nil {
		t.Fatal(err)
	}
	for i, k := range keys[1:] {
		if v, err := tab.Get(t.Context(), k); err != nil || string(v) != strconv.Itoa(i+1) || got[k] != string(v) {
			t.Errorf("%q: %q, %v; each says %q", k, v, err, got[k])
		}
	}
	if len(got) != len(keys)-1 {
		t.Errorf("%d entries, want %d", len(got), len(keys)-1)
	}
}

// A reader leaves nothing behind in the store when it ends: thousands of short readers would
// add up.
func TestReadersLeaveNothing(t *testing.T) {
	t.Parallel()
	j := open(t, startStore(t, t.TempDir()))
	if _, err := j.Append(t.Context(), filled("mytag", "a", 10), ""); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		readAll(t, j, journal.Query{})
		readAll(t, j, journal.Query{Subjects: []string{event.Subject("mytag")}})
	}
	extent, err := j.Extent(t.Context())
	if err != nil || extent.Readers != 0 {
		t.Errorf("%d readers are left, %v", extent.Readers, err)
	}
}
