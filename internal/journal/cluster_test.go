package journal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
)

// startMembers starts three members with a leader.
func startMembers(t testing.TB) *bustest.System {
	t.Helper()
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	return s
}

// openMember opens the journal of a member, with three copies.
func openMember(t testing.TB, m *bustest.Member, change ...func(*journal.Options)) *journal.Journal {
	t.Helper()
	o := journal.Options{Store: m.Store(), Copies: 3, Name: m.Name, Server: m.Name, Names: filepath.Join(m.Dir, "names")}
	for _, f := range change {
		f(&o)
	}
	ctx, cancel := context.WithTimeout(journal.Starting(t.Context()), 2*time.Minute)
	defer cancel()
	j, err := journal.Open(ctx, m.Conn(), o)
	if err != nil {
		t.Fatalf("%s: %v", m.Name, err)
	}
	t.Cleanup(j.Close)
	return j
}

// inTime returns a context for operations that must not hang.
func inTime(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestEachMemberHasAJournal: each member writes its own journal; all members read all journals,
// one by one and merged, including that of a member that is not running; tables are shared, and
// queues are not.
func TestEachMemberHasAJournal(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	var journals []*journal.Journal
	for _, m := range s.Members {
		j := openMember(t, m)
		for n := range 10 {
			e := filled(fmt.Sprintf("%s/%d", m.Name, n), m.Name[1:], 20)
			if seq, err := j.Append(inTime(t), e, fmt.Sprintf("%s/%d", m.Name, n)); err != nil || seq != uint64(n+1) {
				t.Fatal(m.Name, seq, err)
			}
		}
		if seq, err := j.Append(inTime(t), filled("again", "x", 1), m.Name+"/3"); err != nil || seq != 4 {
			t.Errorf("a repetition got %d, %v", seq, err)
		}
		long := filled("long", "l", 1<<20)
		if _, err := j.Append(inTime(t), long, m.Name+"/long"); err != nil {
			t.Fatal(err)
		}
		journals = append(journals, j)
	}
	tables(t, journals)
	queues(t, s, journals)
	s.Members[1].Kill(t)
	reader := s.Members[2]
	peers, err := journal.Peers(journal.Starting(inTime(t)), reader.Conn(), reader.Name, reader.Store())
	if err != nil || len(peers) != 2 {
		t.Fatal(peers, err)
	}
	for _, p := range peers {
		var got []string
		err := p.Read(journal.Starting(inTime(t)), journal.Query{}, func(e event.Event) error { got = append(got, e.Tag); return nil })
		if want := fmt.Sprintf("%s/0", p.Name); err != nil || len(got) != 11 || got[0] != want || got[10] != "long" {
			t.Errorf("the journal of %s has %v, %v", p.Name, got, err)
		}
		texts := 0
		if err := p.Replay(journal.Starting(inTime(t)), 1, 13, func(journal.Text) error { texts++; return nil }); err != nil || texts != 11 {
			t.Errorf("%d texts of %s were read again: %v", texts, p.Name, err)
		}
	}
	all := journal.All{Own: journals[2], Mirrors: func() []*journal.Mirror { return peers }, Log: slog.New(slog.DiscardHandler)}
	count := 0
	if err := all.Read(journal.Starting(inTime(t)), journal.Query{Subjects: []string{"salt.event.>"}}, func(event.Event) error { count++; return nil }); err != nil || count != 33 {
		t.Errorf("all journals have %d events, %v", count, err)
	}
}

// TestNamesAreNeverStale: the names of what was just stored can be read at each member, whichever copy
// is read, also of the first event of a journal.
func TestNamesAreNeverStale(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	for n := range 12 {
		j := openMember(t, s.Members[0], func(o *journal.Options) { o.Name, o.Server, o.Names = fmt.Sprint("j", n), "", "" })
		var readers []*journal.Mirror
		for _, m := range s.Members {
			peers, err := journal.Peers(journal.Starting(inTime(t)), m.Conn(), "", m.Store())
			if err != nil {
				t.Fatal(err)
			}
			readers = append(readers, peers[slices.IndexFunc(peers, func(p *journal.Mirror) bool { return p.Name == fmt.Sprint("j", n) })])
		}
		for k := range 3 {
			if _, err := j.Append(inTime(t), filled("a", "x", 1), fmt.Sprint("web1/", k)); err != nil {
				t.Fatal(err)
			}
			for i, r := range readers {
				count := 0
				if err := r.Names(inTime(t), 1, 0, func(uint64, string, int) { count++ }); err != nil || count != k+1 {
					t.Errorf("%s reads %d names of %s, want %d: %v", s.Members[i].Name, count, r.Name, k+1, err)
				}
			}
		}
	}
}

// tables: what one member writes, another one reads at once.
func tables(t *testing.T, journals []*journal.Journal) {
	t.Helper()
	var list []*journal.Table
	for _, j := range journals {
		table, err := j.Table(inTime(t), "grains")
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, table)
	}
	for n := range 300 {
		text := fmt.Sprint(n)
		if err := list[n%3].Put(inTime(t), "web1", []byte(text)); err != nil {
			t.Fatal(err)
		}
		if b, err := list[(n+1)%3].Get(inTime(t), "web1"); err != nil || string(b) != text {
			t.Fatalf("read %q after %q was written: %v", b, text, err)
		}
		if e, err := list[(n+2)%3].Entry(inTime(t), "web1"); err != nil || string(e.Value) != text {
			t.Fatalf("the entry is %q after %q was written: %v", e.Value, text, err)
		}
	}
	own, err := journals[0].OwnTable(inTime(t), "plans")
	if err == nil {
		err = own.Put(inTime(t), "x", []byte("of m1"))
	}
	if err != nil {
		t.Fatal(err)
	}
	other, err := journals[1].OwnTable(inTime(t), "plans")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := other.Get(inTime(t), "x"); err != nil || b != nil {
		t.Errorf("a table of one member holds for another one %q, %v", b, err)
	}
}

func queues(t *testing.T, s *bustest.System, journals []*journal.Journal) {
	t.Helper()
	for i, j := range journals {
		q, err := j.Queue(inTime(t), "AUDIT", s.Members[i].Store())
		if err != nil {
			t.Fatal(err)
		}
		for n := range 5 {
			p, err := q.BeginAfter([]byte(fmt.Sprint(i, n)), uint64(n))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Wait(inTime(t)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := q.BeginAfter([]byte("x"), 3); err == nil {
			t.Error("an entry was put after one that is not the last")
		}
		var entries []journal.Entry
		for { // a call may return fewer than there are
			more, err := q.Read(inTime(t), uint64(len(entries)+1), 10, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if len(more) == 0 {
				break
			}
			entries = append(entries, more...)
		}
		if len(entries) != 5 || string(entries[4].Body) != fmt.Sprint(i, 4) {
			t.Errorf("the queue has %v", entries)
		}
	}
}

// load writes from several senders until stop, and repeats each event under the same name until
// it is stored; the function that it returns checks the content of the journal.
type load struct {
	t       *testing.T
	stop    atomic.Bool
	running sync.WaitGroup
	mu      sync.Mutex
	acked   map[string]uint64
	refused int
	longest time.Duration
}

const (
	senders = 4
	breath  = 2 * time.Millisecond // between two events of a sender: other tests need the processor, too
)

func startLoad(t *testing.T, j *journal.Journal) *load {
	l := &load{t: t, acked: map[string]uint64{}}
	for i := range senders {
		l.running.Go(func() {
			for n := 0; !l.stop.Load(); n++ {
				l.one(j, fmt.Sprintf("s%d/%d", i, n))
				time.Sleep(breath)
			}
		})
	}
	return l
}

func (l *load) one(j *journal.Journal, name string) {
	begun := time.Now()
	for time.Since(begun) < 2*time.Minute {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		seq, err := j.Append(ctx, filled(name, "x", 100), name)
		cancel()
		l.mu.Lock()
		if err == nil {
			l.acked[name] = seq
			l.longest = max(l.longest, time.Since(begun))
			l.mu.Unlock()
			return
		}
		l.refused++
		l.mu.Unlock()
		if !errors.Is(err, journal.ErrStore) {
			l.t.Errorf("%s: %v", name, err)
		}
		time.Sleep(20 * time.Millisecond) // as a sender does after a refusal
	}
	l.t.Errorf("%s was not stored within two minutes", name)
	l.stop.Store(true)
}

// grows waits until more is stored.
func (l *load) grows() {
	l.t.Helper()
	count := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.acked)
	}
	before := count()
	bustest.Until(l.t, "more is stored", func() bool { return count() > before+20 })
}

// check ends the load: every acknowledged event is stored at its sequence, none twice, and the
// events of each sender are in order.
func (l *load) check(j *journal.Journal) {
	l.t.Helper()
	l.stop.Store(true)
	l.running.Wait()
	seen := map[string]uint64{}
	next := map[string]int{}
	for _, e := range readAll(l.t, j, journal.Query{}) {
		if seen[e.Tag] > 0 {
			l.t.Errorf("%s is stored at %d and at %d", e.Tag, seen[e.Tag], e.Seq)
		}
		seen[e.Tag] = e.Seq
		sender, number, _ := strings.Cut(e.Tag, "/")
		if want := fmt.Sprint(next[sender]); number != want {
			l.t.Errorf("%s/%s is stored where %s was due", sender, number, want)
		}
		next[sender]++
	}
	lost := 0
	for name, seq := range l.acked {
		if seen[name] != seq {
			lost++
			if lost < 10 {
				l.t.Errorf("%s was acknowledged with %d and is at %d", name, seq, seen[name])
			}
		}
	}
	l.t.Logf("%d acknowledged, %d refused, %d lost, the longest wait was %s", len(l.acked), l.refused, lost, l.longest)
}

// TestNothingIsLostOverElections: under load, another member leads the journal, is killed,
// comes back, hands over and is cut off. The writer loses no event, stores none twice, keeps
// each sender's order, and no wait is endless.
func TestNothingIsLostOverElections(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	writer := s.Members[0]
	j := openMember(t, writer, func(o *journal.Options) { o.Server = "" })
	l := startLoad(t, j)
	l.grows()
	leadBy(t, j, "m2")
	l.grows()
	s.Members[1].Kill(t)
	l.grows()
	s.Rejoin(s.Members[1])
	s.Members[1].Start(t)
	s.Linked(t)
	leadBy(t, j, "m3")
	l.grows()
	s.Isolate(t, s.Members[2])
	l.grows()
	s.Rejoin(s.Members[2])
	s.Linked(t)
	for _, name := range []string{"m1", "m2", "m3", "m1"} {
		leadBy(t, j, name)
		l.grows()
	}
	l.check(j)
}

// leadBy makes a member the leader of a journal.
func leadBy(t *testing.T, j *journal.Journal, name string) {
	t.Helper()
	bustest.Until(t, name+" leads", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := j.Lead(ctx, name); err != nil {
			return false
		}
		now, err := j.Leader(ctx)
		return err == nil && now == name
	})
}

// TestAMemberThatIsKilledLosesNothing: the writer itself is killed and started again on its
// files; its journal has everything that was acknowledged, and it continues.
func TestAMemberThatIsKilledLosesNothing(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	m := s.Members[0]
	acked := map[string]uint64{}
	for round := range 3 {
		j := openMember(t, m)
		for n := range 200 {
			name := fmt.Sprintf("s/%d-%d", round, n)
			seq, err := j.Append(inTime(t), filled(name, "x", 100), name)
			if err != nil {
				t.Fatal(name, err)
			}
			acked[name] = seq
		}
		m.Kill(t)
		s.Rejoin(m)
		m.Start(t)
		s.Linked(t)
		s.Leader(t)
	}
	j := openMember(t, m)
	list := readAll(t, j, journal.Query{})
	if len(list) != len(acked) {
		t.Errorf("%d events are stored, %d were acknowledged", len(list), len(acked))
	}
	for _, e := range list {
		if acked[e.Tag] != e.Seq {
			t.Errorf("%s is at %d, acknowledged at %d", e.Tag, e.Seq, acked[e.Tag])
		}
	}
	if seq, err := j.Append(inTime(t), filled("again", "x", 1), "s/2-199"); err != nil || seq != acked["s/2-199"] {
		t.Errorf("a repetition after the kill got %d, %v", seq, err)
	}
}

// TestAMemberAloneRefusesToWrite: without the two others it returns an error soon, long before
// the wait for an election is over, and it writes again by itself when one of them is back. Without
// load it takes less than a second; the limits here are for a busy machine.
func TestAMemberAloneRefusesToWrite(t *testing.T) {
	t.Parallel()
	const soon = 10 * time.Second
	s := startMembers(t)
	j := openMember(t, s.Members[0])
	table, err := j.Table(inTime(t), "grains")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.Append(inTime(t), filled("a", "x", 10), "s/1"); err != nil {
		t.Fatal(err)
	}
	s.Isolate(t, s.Members[1])
	s.Isolate(t, s.Members[2])
	begun := time.Now()
	_, err = j.Append(inTime(t), filled("b", "x", 10), "s/2")
	if took := time.Since(begun); !errors.Is(err, journal.ErrStore) || !strings.Contains(err.Error(), "most members of the cluster are not reached") || took > soon {
		t.Errorf("after %s: %v", took, err)
	}
	begun = time.Now()
	if _, err = j.Append(inTime(t), filled("c", "x", 10), "s/3"); !errors.Is(err, journal.ErrStore) || time.Since(begun) > soon {
		t.Errorf("after %s: %v", time.Since(begun), err)
	}
	begun = time.Now()
	if err := table.Put(inTime(t), "k", nil); !errors.Is(err, journal.ErrStore) || time.Since(begun) > soon {
		t.Errorf("the table, after %s: %v", time.Since(begun), err)
	}
	s.Rejoin(s.Members[1])
	bustest.Until(t, "it writes again", func() bool {
		for _, name := range []string{"s/2", "s/3"} {
			if _, err := j.Append(inTime(t), filled(name, "x", 10), name); err != nil {
				return false
			}
		}
		return true
	})
	if list := readAll(t, j, journal.Query{}); len(list) != 3 {
		t.Errorf("the journal has %v", show(list))
	}
}

// TestAStartKnowsWhatThisMemberHasSentLast: a message that was on its way when two of three members
// were killed is stored by the next election. A start waits for it: a member that has no leader
// yet would answer that the journal ends before it. So it is read, recognised when it is sent
// again, and stays in its place.
func TestAStartKnowsWhatThisMemberHasSentLast(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	writer, dead, alone := s.Members[0], s.Members[1], s.Members[2]
	j := openMember(t, writer)
	leadBy(t, j, writer.Name)
	if _, err := j.Append(inTime(t), filled("first", "x", 10), "s/first"); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(writer.Conn())
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(inTime(t), "EVENTS_"+writer.Name)
	if err != nil {
		t.Fatal(err)
	}
	first, err := stream.GetMsg(inTime(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	dead.Kill(t)
	s.Isolate(t, alone)
	late := &nats.Msg{
		Subject: strings.TrimSuffix(stream.CachedInfo().Config.Subjects[0], ">") + strings.TrimPrefix(first.Subject, "salt."),
		Data:    bytes.Replace(first.Data, []byte("first"), []byte("later"), 1),
		Header:  nats.Header{"Salt-Lot": {"s/later/0/1"}, jetstream.ExpectedLastSeqHeader: {"1"}},
	}
	if err := errors.Join(writer.Conn().PublishMsg(late), writer.Conn().Flush()); err != nil {
		t.Fatal(err)
	}
	bustest.Until(t, "the leader has written it to its log", func() bool { return written(t, writer.Dir, "s/later") })
	writer.Kill(t)
	other, err := jetstream.New(alone.Conn())
	if err != nil {
		t.Fatal(err)
	}
	bustest.Until(t, "a copy without a leader answers", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s, err := other.Stream(ctx, "EVENTS_"+writer.Name)
		return err == nil && s.CachedInfo().Cluster.Leader == "" && s.CachedInfo().State.LastSeq == 1
	})
	s.Rejoin(alone)
	s.Rejoin(writer)
	writer.Start(t)
	j = openMember(t, writer)
	var tags []string
	for _, e := range readAll(t, j, journal.Query{}) {
		tags = append(tags, e.Tag)
	}
	if !slices.Equal(tags, []string{"first", "later"}) {
		t.Errorf("the journal has %v", tags)
	}
	for name, want := range map[string]uint64{"s/later": 2, "s/next": 4} { // behind the mark of the start
		if seq, err := j.Append(inTime(t), filled(name, "x", 10), name); err != nil || seq != want {
			t.Errorf("%s is at %d: %v", name, seq, err)
		}
	}
}

// TestReadersSeeAllWhileAMemberCatchesUp: the server lets any copy answer a reader, and also one
// that has just returned, has nothing yet, and is nevertheless reported as current.
func TestReadersSeeAllWhileAMemberCatchesUp(t *testing.T) {
	t.Parallel()
	const each, rounds = 600, 3
	s := startMembers(t)
	j := openMember(t, s.Members[0])
	table, err := j.Table(inTime(t), "grains")
	if err != nil {
		t.Fatal(err)
	}
	back := s.Members[2]
	stored, entries := 0, 0
	for round := range rounds {
		back.Kill(t)
		if round == 0 { // it gets a snapshot
			if err := os.RemoveAll(back.Dir); err != nil {
				t.Fatal(err)
			}
		}
		for range each {
			stored++
			name := fmt.Sprintf("s/%d", stored)
			if _, err := j.Begin(filled(fmt.Sprint(stored), "x", 1<<10), name); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := j.Append(inTime(t), filled("end", "x", 1), ""); err != nil {
			t.Fatal(err)
		}
		stored++
		for range each / 10 {
			entries++
			if err := table.Put(inTime(t), fmt.Sprint(entries), []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		s.Rejoin(back)
		back.Start(t)
		reads := 0
		bustest.Until(t, "it has caught up", func() bool {
			reads++
			if list := readAll(t, j, journal.Query{}); len(list) != stored {
				t.Errorf("round %d, read %d: %d of %d", round, reads, len(list), stored)
			}
			if keys, err := table.Keys(inTime(t)); err != nil || len(keys) != entries {
				t.Errorf("round %d, read %d: %d of %d entries: %v", round, reads, len(keys), entries, err)
			}
			last := 0
			err := j.Replay(inTime(t), uint64(stored-5), uint64(stored), func(x journal.Text) error { last = int(x.Seq); return nil })
			if err != nil || last != stored {
				t.Errorf("round %d, read %d: the replay ends with %d of %d: %v", round, reads, last, stored, err)
			}
			return t.Failed() || reads > 8 && current(t, s.Members[0].Conn(), "EVENTS_m1", back.Name)
		})
	}
}

// current reports whether the leader of a stream takes a copy for complete.
func current(t *testing.T, nc *nats.Conn, stream, member string) bool {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // nobody answers while there is no leader
	defer cancel()
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(s.CachedInfo().Cluster.Replicas, func(r *jetstream.PeerInfo) bool { return r.Name == member && r.Current && r.Lag == 0 })
}

// written reports whether a file below a directory has this text.
func written(t *testing.T, dir, text string) (found bool) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || found {
			return nil //nolint:nilerr // the server removes files meanwhile
		}
		b, err := os.ReadFile(path)
		found = err == nil && bytes.Contains(b, []byte(text))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestTheFirstEventAfterOpenIsAnswered: the leader changes immediately after Open, and what was
// sent to the old leader gets no answer.
func TestTheFirstEventAfterOpenIsAnswered(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	m := s.Members[0]
	for round := range 12 {
		j := openMember(t, m, func(o *journal.Options) { o.Server = "" })
		stored := j.Stored()
		leads := make(chan struct{})
		go func() {
			defer close(leads)
			_ = j.Lead(inTime(t), s.Members[round%3].Name)
		}()
		for range 5 {
			begun := time.Now()
			seq, err := j.Append(inTime(t), filled("x", "x", 10), "")
			if stored++; err != nil || seq != stored {
				t.Fatalf("round %d: %d after %s, want %d: %v", round, seq, time.Since(begun), stored, err)
			}
		}
		<-leads
		j.Close()
	}
}

// TestACopyThatIsCutOffAnswersNothing: a decision must not be based on the state of a member
// before it was cut off, for example if a key was rejected since then.
func TestACopyThatIsCutOffAnswersNothing(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	var tables []*journal.Table
	for _, m := range s.Members {
		table, err := openMember(t, m).Table(inTime(t), "keys")
		if err != nil {
			t.Fatal(err)
		}
		tables = append(tables, table)
	}
	if err := tables[0].Put(inTime(t), "web1", []byte("accepted")); err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		if b, err := table.Get(inTime(t), "web1"); err != nil || string(b) != "accepted" {
			t.Fatalf("%q, %v", b, err)
		}
	}
	s.Isolate(t, s.Members[2])
	bustest.Until(t, "the others write", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		return tables[0].Put(ctx, "web1", []byte("refused")) == nil
	})
	// Its server may have been the leader of the table: it notices within ten seconds that it
	// has no followers.
	bustest.Until(t, "the member that is cut off does not answer", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := tables[2].Get(ctx, "web1")
		return err != nil
	})
	s.Rejoin(s.Members[2])
	s.Linked(t)
	bustest.Until(t, "it knows of the refusal", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		b, err := tables[2].Get(ctx, "web1")
		if err == nil && string(b) != "refused" {
			t.Errorf("it answers %q", b)
		}
		return err == nil
	})
}
