package journal_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
)

// openTurn opens the one journal of a system over the connection of a member.
func openTurn(t testing.TB, m *bustest.Member, alone func(context.Context) error) (*journal.Journal, <-chan error) {
	t.Helper()
	lost := make(chan error, 1)
	turn := journal.NewTurn(alone, func(err error) { lost <- err })
	return openMember(t, m, func(o *journal.Options) { o.Name, o.Server, o.Names, o.Turn = "one", "", "", turn }), lost
}

// TestTheLastToOpenWrites: of two processes that open the same journal, one after the other while the
// first one writes, the second one has everything that was acknowledged to the first, and the first
// stores nothing any more, in the journal or in a queue.
func TestTheLastToOpenWrites(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	first, lost := openTurn(t, s.Members[0], nil)
	queue, err := first.Queue(inTime(t), "WORK", s.Members[0].Store())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := queue.Put(inTime(t), []byte("by the first")); err != nil {
		t.Fatal(err)
	}
	var acked atomic.Int64
	ended := make(chan error, 1)
	go func() {
		for n := 0; ; n++ {
			tag := fmt.Sprintf("first/%06d", n)
			if _, err := first.Append(inTime(t), filled(tag, "f", 20), tag); err != nil {
				ended <- err
				return
			}
			acked.Store(int64(n + 1))
		}
	}()
	bustest.Until(t, "events of the first", func() bool { return acked.Load() > 200 })
	before := int64(0)
	second, _ := openTurn(t, s.Members[1], func(context.Context) error { before = acked.Load(); return nil })
	if before == 0 {
		t.Error("the second was not told that it is alone")
	}
	select {
	case err := <-ended:
		if !errors.Is(err, journal.ErrStore) || !errors.Is(err, journal.ErrTaken) {
			t.Errorf("the first one gets %v, want ErrTaken", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the first one goes on")
	}
	select {
	case err := <-lost:
		if !errors.Is(err, journal.ErrTaken) {
			t.Errorf("it is told %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the first one is not told")
	}
	if err := first.Held(inTime(t)); !errors.Is(err, journal.ErrTaken) {
		t.Errorf("the first one holds the journal: %v", err)
	}
	if err := second.Held(inTime(t)); err != nil {
		t.Errorf("the second one does not hold it: %v", err)
	}
	for n := range 50 {
		tag := fmt.Sprintf("second/%06d", n)
		if _, err := second.Append(inTime(t), filled(tag, "s", 20), tag); err != nil {
			t.Fatal(err)
		}
	}
	other, err := second.Queue(inTime(t), "WORK", s.Members[1].Store())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Put(inTime(t), []byte("by the second")); err != nil {
		t.Fatal(err)
	}
	if _, err := queue.Put(inTime(t), []byte("by the first again")); !errors.Is(err, journal.ErrTaken) {
		t.Errorf("the queue takes what the first one sends: %v", err)
	}
	inOrder(t, second, int(acked.Load()), int(acked.Load())+1)
}

// TestTheLastToOpenWritesAmongMany: as before, while the first one has many messages under way: none of
// them is stored after one that was refused.
func TestTheLastToOpenWritesAmongMany(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	first, _ := openTurn(t, s.Members[0], nil)
	var begun atomic.Int64
	ended := make(chan error, 1)
	go func() {
		for n := 0; ; n++ {
			tag := fmt.Sprintf("first/%06d", n)
			if _, err := first.Begin(filled(tag, "f", 20), tag); err != nil {
				ended <- err
				return
			}
			begun.Store(int64(n + 1))
		}
	}()
	bustest.Until(t, "many events of the first", func() bool { return begun.Load() > 20_000 })
	second, _ := openTurn(t, s.Members[1], nil)
	for n := range 50 {
		tag := fmt.Sprintf("second/%06d", n)
		if _, err := second.Append(inTime(t), filled(tag, "s", 20), tag); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-ended; !errors.Is(err, journal.ErrTaken) {
		t.Errorf("the first one gets %v, want ErrTaken", err)
	}
	inOrder(t, second, 0, int(begun.Load()))
}

// inOrder checks the journal: what the first one has stored, from least to most, without gaps, then
// what the second one has.
func inOrder(t *testing.T, j *journal.Journal, least, most int) {
	t.Helper()
	var tags []string
	if err := j.Read(inTime(t), journal.Query{}, func(e event.Event) error { tags = append(tags, e.Tag); return nil }); err != nil {
		t.Fatal(err)
	}
	opened, first, second := 0, 0, 0
	for _, tag := range tags {
		switch {
		case tag == "salt/journal/opened":
			opened++
		case strings.HasPrefix(tag, "first/"):
			if want := fmt.Sprintf("first/%06d", first); tag != want || opened != 1 {
				t.Fatalf("%s is there after %d openings, want %s", tag, opened, want)
			}
			first++
		default:
			if want := fmt.Sprintf("second/%06d", second); tag != want || opened != 2 {
				t.Fatalf("%s is there after %d openings, want %s", tag, opened, want)
			}
			second++
		}
	}
	if first < least || first > most || second != 50 {
		t.Errorf("%d of the first and %d of the second, want %d to %d and 50", first, second, least, most)
	}
}

// TestATurnThatIsNotTakenGoesOn: the elections of leaders, and a member that dies, are no other
// process.
func TestATurnThatIsNotTakenGoesOn(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	j, lost := openTurn(t, s.Members[0], nil)
	for n := range 20 {
		if n == 10 {
			leader, err := j.Leader(inTime(t))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range s.Members[1:] {
				if m.Name == leader || leader == s.Members[0].Name {
					m.Kill(t)
					break
				}
			}
		}
		if _, err := j.Append(inTime(t), filled(fmt.Sprintf("n/%d", n), "x", 20), fmt.Sprintf("n/%d", n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Held(inTime(t)); err != nil {
		t.Errorf("it does not hold the journal: %v", err)
	}
	select {
	case err := <-lost:
		t.Errorf("it is told %v", err)
	default:
	}
}

// TestALeaderWithOlderSettings: a server that has just begun to lead may have the settings of an
// earlier term behind the messages of this one. That is no other process: what was sent meanwhile is
// stored when it has the current ones. Settings that stay are those of a process that was killed before
// it has stored anything.
func TestALeaderWithOlderSettings(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	js, err := jetstream.New(s.Members[1].Conn())
	if err != nil {
		t.Fatal(err)
	}
	settings := func() jetstream.StreamConfig {
		t.Helper()
		stream, err := js.Stream(inTime(t), "EVENTS_one")
		if err != nil {
			t.Fatal(err)
		}
		return stream.CachedInfo().Config
	}
	put := func(c jetstream.StreamConfig) {
		t.Helper()
		if _, err := js.UpdateStream(inTime(t), c); err != nil {
			t.Fatal(err)
		}
	}
	first, _ := openTurn(t, s.Members[0], nil)
	older := settings()
	first.Close()
	j, lost := openTurn(t, s.Members[0], nil)
	current := settings()
	put(older)
	if err := j.Held(inTime(t)); err == nil || errors.Is(err, journal.ErrTaken) {
		t.Errorf("with older settings: %v", err)
	}
	p, err := j.Begin(filled("a", "x", 1), "web1/1")
	if err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 3*time.Second) // it is sent again meanwhile
	defer cancel()
	if _, err := p.Wait(soon); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stored with older settings: %v", err)
	}
	put(current)
	if _, err := p.Wait(inTime(t)); err != nil {
		t.Error(err)
	}
	if err := j.Held(inTime(t)); err != nil {
		t.Errorf("with the current settings: %v", err)
	}
	select {
	case err := <-lost:
		t.Fatalf("it is told %v", err)
	default:
	}
	put(older)
	bustest.Until(t, "it is told", func() bool { return errors.Is(j.Held(inTime(t)), journal.ErrTaken) })
}
