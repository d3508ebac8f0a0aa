package journal_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
)

// numbered is a batch of n events that differ only in their numbers; the one in the middle is
// long. after is called after each event is sent.
func numbered(name string, n int, after func(sent int)) journal.Batch {
	return journal.Batch{Name: name, Count: n, Drafts: func(yield func(journal.Draft) bool) {
		for i := range n {
			size := 1
			if i == n/2 {
				size = mega
			}
			e := filled(name+"/"+strconv.Itoa(i), "x", size)
			if !yield(journal.Draft{Tag: e.Tag, Text: e.Append(nil)}) {
				return
			}
			after(i + 1)
		}
	}}
}

func store(ctx context.Context, j *journal.Journal, l journal.Batch) (uint64, error) {
	p, err := j.BeginAll(l)
	if err != nil {
		return 0, err
	}
	return p.Wait(ctx)
}

func mustStore(t testing.TB, j *journal.Journal, l journal.Batch) uint64 {
	t.Helper()
	seq, err := store(t.Context(), j, l)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

func tags(t testing.TB, j *journal.Journal) []string {
	t.Helper()
	var list []string
	for _, e := range readAll(t, j, journal.Query{}) {
		list = append(list, e.Tag)
	}
	return list
}

func wantTags(t *testing.T, j *journal.Journal, want ...string) {
	t.Helper()
	if got := tags(t, j); !slices.Equal(got, want) {
		t.Errorf("in the journal: %q, want %q", got, want)
	}
}

// batchTags are the tags of numbered.
func batchTags(name string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = name + "/" + strconv.Itoa(i)
	}
	return list
}

// cutEnv makes the test binary write a batch and kill itself in the middle: "DIR EVENTS".
const cutEnv = "JOURNAL_TEST_CUT"

const batchSize = 12

// cut stores an event without a name, and then sends the batch until that many of its events
// are stored.
func cut(dir string, events int) error {
	b, err := broker.Start(storeOptions(dir, slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	ctx := context.Background()
	j, err := journal.Open(ctx, b.Conn(), journal.Options{})
	if err != nil {
		return err
	}
	if _, err := j.Append(ctx, filled("nameless", "x", 1), ""); err != nil {
		return err
	}
	_, err = store(ctx, j, numbered("web1/batch", batchSize, func(sent int) {
		for sent == events {
			stored := 0
			err := j.Read(ctx, journal.Query{}, func(e event.Event) error {
				if strings.HasPrefix(e.Tag, "web1/batch") {
					stored++
				}
				return nil
			})
			if err != nil || stored >= events {
				fmt.Fprintln(os.Stderr, "stored", stored, err)
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // it does not return
			}
		}
	}))
	return errors.Join(errors.New("nobody has killed it"), err)
}

func killWithin(t *testing.T, dir string, events int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), cutEnv+"="+dir+" "+strconv.Itoa(events))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if want := fmt.Sprintf("stored %d <nil>\n", events); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || string(out) != want {
		t.Fatalf("%v, %s; want %s and a kill", err, out, want)
	}
}

// When a batch that was interrupted by a kill, once or twice, is sent again, only what is
// missing is stored, whatever was stored in between; when it is sent once more, nothing is
// stored.
func TestBatchIsStoredOnceOverKills(t *testing.T) {
	t.Parallel()
	for _, cuts := range [][]int{{1}, {5}, {6}, {7}, {11}, {12}, {1, 2}, {4, 9}, {6, 7}, {7, 12}} {
		t.Run(fmt.Sprint(cuts), func(t *testing.T) {
			t.Parallel()
			dir, all := t.TempDir(), batchTags("web1/batch", batchSize)
			var want []string
			have := 0
			for _, events := range cuts {
				killWithin(t, dir, events)
				want = append(append(want, "nameless"), all[have:events]...)
				have = events
			}
			j := open(t, startStore(t, dir))
			mustStore(t, j, numbered("web2/batch", 2, func(int) {}))
			want = append(append(want, batchTags("web2/batch", 2)...), all[have:]...)
			end := mustStore(t, j, numbered("web1/batch", batchSize, func(int) {}))
			if again := mustStore(t, j, numbered("web1/batch", batchSize, func(int) {})); again != end {
				t.Errorf("the repetition is at %d, the batch at %d", again, end)
			}
			wantTags(t, j, want...)
		})
	}
}

// Names returns the names as they were given, whatever is stored between them.
func TestNames(t *testing.T) {
	t.Parallel()
	j := open(t, bustest.StartStore(t).Broker)
	begin := mustStore(t, j, numbered("", 1, func(int) {}))
	mustStore(t, j, numbered("web1/a b/c", 4, func(int) {}))
	mustStore(t, j, numbered("", 4, func(int) {}))
	later := numbered("web2/x", 1, func(int) {})
	later.First = 7
	mustStore(t, j, later)
	mustStore(t, j, numbered("web1/a b/c", 5, func(int) {})) // one more
	var got []string
	if err := j.Names(t.Context(), begin+1, 0, func(_ uint64, name string, n int) { got = append(got, fmt.Sprint(name, " ", n)) }); err != nil {
		t.Fatal(err)
	}
	want := []string{"web1/a b/c 0", "web1/a b/c 1", "web1/a b/c 2", "web1/a b/c 3", "web2/x 7", "web1/a b/c 4"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// When the store has refused a part of a batch, for example because no more messages fit, the
// missing part is found out.
func TestBatchThatWasRefusedInPartIsCompleted(t *testing.T) {
	t.Parallel()
	b := bustest.StartStore(t).Broker
	j := open(t, b)
	js, err := jetstream.New(b.Conn())
	if err != nil {
		t.Fatal(err)
	}
	limit := func(messages int64) {
		t.Helper()
		s, err := js.Stream(t.Context(), "EVENTS")
		if err != nil {
			t.Fatal(err)
		}
		cfg := s.CachedInfo().Config
		cfg.MaxMsgs, cfg.Discard = messages, jetstream.DiscardNew
		if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	names := batchTags("web1/a", 5)
	mustStore(t, j, batchOf("web1/b", "b"))
	limit(4)
	if seq, err := store(t.Context(), j, batchOf("web1/a", names...)); err == nil {
		t.Fatalf("stored up to %d though there is room for a part", seq)
	}
	limit(-1)
	mustStore(t, j, batchOf("web1/c", "c"))
	mustStore(t, j, batchOf("web1/a", names...))
	mustStore(t, j, batchOf("web1/b", "b"))
	wantTags(t, j, append(append([]string{"b"}, names[:3]...), "c", names[3], names[4])...)
}

// A second batch with the same name waits for the first one, which is being stored.
func TestRepetitionOfABatchUnderWay(t *testing.T) {
	t.Parallel()
	j := open(t, bustest.StartStore(t).Broker)
	names := batchTags("web1/a", 2000)
	var pending []*journal.Pending
	for range 5 {
		p, err := j.BeginAll(batchOf("web1/a", names...))
		if err != nil {
			t.Fatal(err)
		}
		pending = append(pending, p)
	}
	for i, p := range pending {
		if seq, err := p.Wait(t.Context()); err != nil || seq != 2000 {
			t.Errorf("batch %d: %d, %v", i, seq, err)
		}
	}
	wantTags(t, j, names...)
}

// A flood of names of one sender removes neither the names of another sender nor its own latest
// ones.
func TestFloodOfNames(t *testing.T) {
	t.Parallel()
	j := open(t, bustest.StartStore(t).Broker)
	mustStore(t, j, batchOf("web1/first", "victim"))
	const flood = 20_000
	var last *journal.Pending
	for i := range flood {
		var err error
		if last, err = j.Begin(filled("flood", "x", 1), "web2/"+strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := last.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustStore(t, j, batchOf("web1/first", "victim"))
	mustStore(t, j, batchOf("web2/"+strconv.Itoa(flood-1000), "one of the latest"))
	if got := tags(t, j); len(got) != 1+flood || got[0] != "victim" {
		t.Errorf("%d events in the journal, the first %s; want %d", len(got), got[0], 1+flood)
	}
}

// older is a journal as an older version of the daemon made it. put stores a message.
func older(t *testing.T) (b *broker.Broker, put func(tag string, data []byte, h nats.Header)) {
	t.Helper()
	b = bustest.StartStore(t).Broker
	js, err := jetstream.New(b.Conn())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "EVENTS", Subjects: []string{event.Root + ".>"}, Storage: jetstream.FileStorage, AllowDirect: true, Duplicates: 10 * time.Minute,
	}); err != nil {
		t.Fatal(err)
	}
	return b, func(tag string, data []byte, h nats.Header) {
		if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: event.Subject(tag), Data: data, Header: h}); err != nil {
			t.Fatal(err)
		}
	}
}

// In an older version each event had its own message id, by which JetStream detected
// duplicates.
func TestBatchOfAnOlderDaemon(t *testing.T) {
	t.Parallel()
	b, put := older(t)
	names := batchTags("web1/x", 3)
	for i, tag := range names[:2] {
		put(tag, filled(tag, "x", 1).Append(nil), nats.Header{jetstream.MsgIDHeader: {"web1/x/" + strconv.Itoa(i)}})
	}
	j := open(t, b)
	mustStore(t, j, batchOf("web1/x", names...))
	wantTags(t, j, names...)
}

// In an older version the pieces of long events had no mark, and another header.
func TestLongEventOfAnOlderDaemon(t *testing.T) {
	t.Parallel()
	b, put := older(t)
	put("first", filled("first", "a", 1).Append(nil), nil)
	const size = 512 << 10
	text := filled("old", "x", long).Append(nil)
	var sequences []uint64
	for n := range 3 {
		put("old", text[n*size:min((n+1)*size, len(text))], nats.Header{"Salt-Part": {fmt.Sprintf("web1/old/%d/3", n)}})
		sequences = append(sequences, uint64(n+2))
	}
	j := open(t, b)
	for _, e := range []event.Event{filled("new", "n", long), filled("last", "z", 1)} {
		if _, err := j.Append(t.Context(), e, ""); err != nil {
			t.Fatal(err)
		}
	}
	want := show([]event.Event{filled("first", "a", 1), filled("old", "x", long), filled("new", "n", long), filled("last", "z", 1)})
	if got := show(readAll(t, j, journal.Query{})); got != want {
		t.Errorf("read %s, want %s", got, want)
	}
	for from := uint64(1); from <= 3; from++ { // in the middle of it, too
		var list []event.Event
		if err := j.Replay(t.Context(), from, 8, func(text journal.Text) error {
			e, err := event.Read(text.Body)
			list = append(list, e)
			return err
		}); err != nil {
			t.Errorf("replay from %d: %v", from, err)
		}
		if got := show(list); !strings.HasSuffix(want, got) || len(list) < 3 {
			t.Errorf("replayed %s from %d, want %s", got, from, want)
		}
	}
	if e, err := j.Fetch(t.Context(), sequences); err != nil || show([]event.Event{e}) != show([]event.Event{filled("old", "x", long)}) {
		t.Errorf("fetched %s, %v", show([]event.Event{e}), err)
	}
}
