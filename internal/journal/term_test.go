package journal_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
)

// peer opens the journal of of at a member.
func peer(t *testing.T, m *bustest.Member, of string) *journal.Mirror {
	t.Helper()
	peers, err := journal.Peers(journal.Starting(inTime(t)), m.Conn(), m.Name, m.Store())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range peers {
		if p.Name == of {
			return p
		}
	}
	t.Fatalf("%s sees no journal of %s", m.Name, of)
	return nil
}

// endTerms makes two members end the terms of a third one, until the journal has begun so many.
func endTerms(t *testing.T, s *bustest.System, j *journal.Journal, terms uint64) {
	t.Helper()
	var running sync.WaitGroup
	for _, m := range s.Members[1:] {
		p := peer(t, m, s.Members[0].Name)
		running.Go(func() {
			for ended := (journal.Ended{}); j.Term() < terms; {
				ctx, cancel := context.WithTimeout(journal.Starting(context.Background()), time.Minute)
				now, err := p.EndTerm(ctx, ended)
				cancel()
				if err == nil { // it fails where another one begins or ends a term at that moment
					ended = now
				}
			}
		})
	}
	running.Wait()
}

// boundTo is an event that may be stored in one term only.
func boundTo(term uint64, name string) journal.Batch {
	e := filled(name, "x", 100)
	return journal.Batch{Name: name, Term: term, Count: 1, Drafts: func(yield func(journal.Draft) bool) {
		yield(journal.Draft{Tag: e.Tag, Text: e.Text()})
	}}
}

// TestTermsEndUnderLoad: while other members end its terms, a member stores each event once, in order.
func TestTermsEndUnderLoad(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	j := openMember(t, s.Members[0])
	l := startLoad(t, j)
	l.grows()
	endTerms(t, s, j, 12)
	l.grows()
	l.check(j)
}

// TestWhatIsBoundToATerm: an event that is bound to a term is stored in it, or its sender gets an error
// and it is not stored at all.
func TestWhatIsBoundToATerm(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	j := openMember(t, s.Members[0])
	var stop atomic.Bool
	var running sync.WaitGroup
	var mu sync.Mutex
	acked := map[string]bool{}
	for i := range senders {
		running.Go(func() {
			for n := 0; !stop.Load(); n++ {
				name := fmt.Sprintf("s%d/%d", i, n)
				p, err := j.BeginAll(boundTo(j.Term(), name))
				if err == nil {
					_, err = p.Wait(inTime(t))
				}
				if err != nil && !errors.Is(err, journal.ErrStore) {
					t.Errorf("%s: %v", name, err)
				}
				mu.Lock()
				acked[name] = err == nil
				mu.Unlock()
				time.Sleep(breath)
			}
		})
	}
	endTerms(t, s, j, 12)
	stop.Store(true)
	running.Wait()
	stored := map[string]int{}
	if err := j.Names(inTime(t), 1, 0, func(_ uint64, name string, _ int) { stored[name]++ }); err != nil {
		t.Fatal(err)
	}
	refused := 0
	for name, ok := range acked {
		if want := map[bool]int{true: 1}[ok]; stored[name] != want {
			t.Errorf("%s, acknowledged: %t, is stored %d times", name, ok, stored[name])
		}
		if !ok {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no term ended while something was under way")
	}
	if n := j.UnderWay(); n != 0 { // what counts for ever would at last leave no room for anything
		t.Errorf("%d bytes are under way, after everything was stored or refused", n)
	}
	t.Logf("%d stored, %d refused", len(acked)-refused, refused)
}

// TestNothingComesAfterTheEnd: a member that was cut off while it stored something stores it when it is
// back, unless it is bound to the term that was ended meanwhile. A start begins a new term.
func TestNothingComesAfterTheEnd(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	j := openMember(t, s.Members[0])
	if _, err := j.Append(inTime(t), filled("a", "x", 1), "web1/1"); err != nil {
		t.Fatal(err)
	}
	p := peer(t, s.Members[1], s.Members[0].Name)
	s.Isolate(t, s.Members[0])
	term := j.Term()
	bound, err := j.BeginAll(boundTo(term, "web1/2"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.Begin(filled("c", "x", 1), "web1/3"); err != nil {
		t.Fatal(err)
	}
	var ended journal.Ended
	bustest.Until(t, "the others have a leader and end the term", func() bool {
		ended, err = p.EndTerm(journal.Starting(inTime(t)), journal.Ended{})
		return err == nil
	})
	if last, err := p.Last(inTime(t)); err != nil || last != ended.Mark {
		t.Errorf("the journal ends with %d, not with the mark at %d: %v", last, ended.Mark, err)
	}
	s.Rejoin(s.Members[0])
	if _, err := bound.Wait(inTime(t)); !errors.Is(err, journal.ErrStore) {
		t.Errorf("what was bound to the ended term: %v", err)
	}
	count := map[string]int{}
	bustest.Until(t, "the rest is stored", func() bool {
		clear(count)
		err := p.Names(inTime(t), 1, 0, func(_ uint64, name string, _ int) { count[name]++ })
		return err == nil && count["web1/3"] > 0
	})
	if p, err := j.BeginAll(boundTo(term, "web1/5")); !errors.Is(err, journal.ErrStore) {
		t.Errorf("a term has ended, and what is bound to it was begun: %v, %v", p, err)
	}
	if count["web1/1"] != 1 || count["web1/2"] != 0 || count["web1/3"] != 1 {
		t.Errorf("stored are %v", count)
	}
	if _, err := p.EndTerm(journal.Starting(inTime(t)), journal.Ended{}); err != nil {
		t.Fatal(err)
	}
	later := openMember(t, s.Members[0])
	if seq, err := later.Append(inTime(t), filled("a", "x", 1), "web1/1"); err != nil || seq != 1 {
		t.Errorf("a repetition got %d: %v", seq, err)
	}
	if _, err := later.Append(inTime(t), filled("d", "x", 1), "web1/4"); err != nil {
		t.Error(err)
	}
}

// TestAMemberCatchesUpOverTerms: a member that was away while terms began has the same subjects as the
// others for what was stored meanwhile, also of earlier terms.
func TestAMemberCatchesUpOverTerms(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	j := openMember(t, s.Members[0])
	away := s.Members[2]
	bustest.Until(t, "all have the journal", func() bool { return current(t, s.Members[0].Conn(), "EVENTS_m1", away.Name) })
	away.Kill(t)
	const each, terms = 20, 3
	var tags []string
	for term := range terms {
		for n := range each {
			tags = append(tags, fmt.Sprintf("caught/%d-%d", term, n))
			if _, err := j.Append(inTime(t), filled(tags[len(tags)-1], "x", 20), tags[len(tags)-1]); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := peer(t, s.Members[1], "m1").EndTerm(inTime(t), journal.Ended{}); err != nil {
			t.Fatal(err)
		}
	}
	s.Rejoin(away)
	away.Start(t)
	bustest.Until(t, "it has caught up", func() bool { return current(t, s.Members[0].Conn(), "EVENTS_m1", away.Name) })
	leadBy(t, j, away.Name) // its index of subjects answers
	for _, tag := range tags {
		if e, ok, err := j.First(inTime(t), event.Subject(tag)); err != nil || !ok || e.Tag != tag {
			t.Errorf("%s is not found by its subject: %v, %v", tag, ok, err)
		}
	}
	if whole := readAll(t, j, journal.Query{}); len(whole) != len(tags) {
		t.Errorf("%d of %d events are there", len(whole), len(tags))
	}
}

// TestAMarkIsAheadOfTheSettings: the settings of a stream may reach its leader later than the mark of
// the term that they begin. An ended term does not go on there, neither in a member that runs nor in
// one that starts.
func TestAMarkIsAheadOfTheSettings(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	j := openMember(t, s.Members[0])
	if _, err := j.Append(inTime(t), filled("a", "x", 1), "web1/1"); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(s.Members[1].Conn())
	if err != nil {
		t.Fatal(err)
	}
	settings := func() jetstream.StreamConfig {
		t.Helper()
		stream, err := js.Stream(inTime(t), "EVENTS_m1")
		if err != nil {
			t.Fatal(err)
		}
		return stream.CachedInfo().Config
	}
	old, p := settings(), peer(t, s.Members[1], "m1")
	endAs := func() { // at a leader with the former settings
		t.Helper()
		if _, err := p.EndTerm(inTime(t), journal.Ended{}); err != nil {
			t.Fatal(err)
		}
		if _, err := js.UpdateStream(inTime(t), old); err != nil {
			t.Fatal(err)
		}
	}
	endAs()
	bound, err := j.BeginAll(boundTo(j.Term(), "web1/2"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bound.Wait(inTime(t)); !errors.Is(err, journal.ErrStore) {
		t.Errorf("what is bound to the ended term: %v", err)
	}
	if _, err := j.Append(inTime(t), filled("c", "x", 1), "web1/3"); err != nil {
		t.Error(err)
	}
	if now := settings(); now.Subjects[0] == old.Subjects[0] {
		t.Errorf("the term %s goes on", now.Subjects[0])
	}
	j.Close()
	old = settings()
	endAs()
	openMember(t, s.Members[0])
	if now := settings(); now.Subjects[0] == old.Subjects[0] {
		t.Errorf("the term %s goes on after a start", now.Subjects[0])
	}
}
