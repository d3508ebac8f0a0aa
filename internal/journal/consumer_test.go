package journal_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
)

// TestAReadingOutlivesTheMemberOfItsConsumer: the server places consumers at any member with a copy,
// for a moment also at one that has just died. Readings that have begun go on behind what they have read,
// and new ones end in time.
func TestAReadingOutlivesTheMemberOfItsConsumer(t *testing.T) {
	t.Parallel()
	const stored = 2000
	s := startMembers(t)
	j := openMember(t, s.Members[0])
	for n := range stored {
		if _, err := j.Begin(filled(fmt.Sprint(n), "x", 1<<10), fmt.Sprint("s/", n)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := j.Append(inTime(t), filled("end", "x", 1), ""); err != nil {
		t.Fatal(err)
	}
	leadBy(t, j, "m1")
	dies := s.Members[2]
	bustest.Until(t, "it has all", func() bool { return current(t, s.Members[0].Conn(), "EVENTS_m1", dies.Name) })
	var there []*journal.Cursor
	bustest.Until(t, "consumers are at the member that dies", func() bool {
		c, err := j.Open(inTime(t), journal.Query{})
		if err != nil {
			t.Fatal(err)
		}
		if c.ReadsAt() == dies.Name {
			there = append(there, c)
		}
		return len(there) == 3
	})
	s.Isolate(t, dies)
	var running sync.WaitGroup
	for i, c := range there {
		running.Go(func() {
			next := 0
			err := c.Each(inTime(t), func(e event.Event) error {
				if e.Seq != uint64(next+1) {
					return fmt.Errorf("event %d comes after %d", e.Seq, next)
				}
				next++
				return nil
			})
			if err != nil || next != stored+1 {
				t.Errorf("reading %d: %d of %d: %v", i, next, stored+1, err)
			}
		})
	}
	for i := range 30 {
		running.Go(func() {
			if seq, err := j.SequenceAt(inTime(t), time.Now().Add(-time.Hour)); err != nil || seq != 1 {
				t.Errorf("question %d: %d, %v", i, seq, err)
			}
		})
	}
	running.Wait()
}

// TestFollowersReadAtTheirOwnMember: so the end of another member does not interrupt them.
func TestFollowersReadAtTheirOwnMember(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	j := openMember(t, s.Members[0])
	peers, err := journal.Peers(journal.Starting(inTime(t)), s.Members[1].Conn(), s.Members[1].Name, s.Members[1].Store())
	if err != nil || len(peers) != 1 {
		t.Fatal(peers, err)
	}
	for n := range 8 {
		for at, open := range map[string]func(context.Context, journal.Query) (*journal.Cursor, error){"m1": j.Open, "m2": peers[0].Open} {
			c, err := open(inTime(t), journal.Query{Follow: true})
			if err != nil {
				t.Fatal(err)
			}
			if got := c.ReadsAt(); got != at {
				t.Errorf("follower %d of %s reads at %s", n, at, got)
			}
		}
	}
}

// TestAFollowerGoesOnAfterItsConsumerIsLost: nothing is missing, and nothing comes twice.
func TestAFollowerGoesOnAfterItsConsumerIsLost(t *testing.T) {
	t.Parallel()
	const rounds, each = 5, 20
	j := open(t, startStore(t, t.TempDir()))
	c, err := j.Open(inTime(t), journal.Query{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	var read atomic.Int64
	errAll := errors.New("all")
	done := make(chan error, 1)
	go func() {
		done <- c.Each(inTime(t), func(e event.Event) error {
			got = append(got, e.Tag)
			if read.Add(1) == rounds*each {
				return errAll
			}
			return nil
		})
	}()
	for n := range rounds * each {
		if n%each == each/2 {
			bustest.Until(t, "some are read", func() bool { return read.Load() == int64(n) })
			if err := j.Lose(inTime(t), c); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := j.Append(inTime(t), filled(fmt.Sprint(n), "x", 10), ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; !errors.Is(err, errAll) {
		t.Fatal(err)
	}
	for n, tag := range got {
		if tag != fmt.Sprint(n) {
			t.Fatalf("event %d is %s", n, tag)
		}
	}
}

// TestAReaderDoesNotWaitForACopyThatHasStopped: what the leader has and the copy that is read has not is
// read at the leader, within a few seconds.
func TestAReaderDoesNotWaitForACopyThatHasStopped(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	j := openMember(t, s.Members[0])
	leadBy(t, j, "m1")
	const events = 20
	for n := range events {
		if _, err := j.Append(inTime(t), filled(fmt.Sprint(n), "x", 10), ""); err != nil {
			t.Fatal(err)
		}
	}
	c, err := peer(t, s.Members[1], "m1").Open(inTime(t), journal.Query{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Blind(inTime(t)); err != nil {
		t.Fatal(err)
	}
	next, begun := 0, time.Now()
	err = c.Each(inTime(t), func(event.Event) error { next++; return nil })
	if err != nil || next != events || c.ReadsAt() != "m1" {
		t.Errorf("%d of %d have come, in the end from %s: %v", next, events, c.ReadsAt(), err)
	}
	if took := time.Since(begun); took > 5*time.Second { // what takes a second may take longer on a busy machine
		t.Errorf("the leader was read after %s", took)
	} else {
		t.Logf("the leader was read after %s", took)
	}
}

// TestAFollowerDoesNotWaitForACopyThatLags: what another member has and its own one does not bring, it
// reads there.
func TestAFollowerDoesNotWaitForACopyThatLags(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	j := openMember(t, s.Members[0])
	leadBy(t, j, "m1")
	c, err := peer(t, s.Members[1], "m1").Open(inTime(t), journal.Query{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Pause(inTime(t)); err != nil {
		t.Fatal(err)
	}
	const events = 20
	for n := range events {
		if _, err := j.Append(inTime(t), filled(fmt.Sprint(n), "x", 10), ""); err != nil {
			t.Fatal(err)
		}
	}
	next, all, begun := 0, errors.New("all"), time.Now()
	err = c.Each(inTime(t), func(e event.Event) error {
		if e.Tag != fmt.Sprint(next) {
			t.Errorf("event %d is %s", next, e.Tag)
		}
		if next++; next == events {
			return all
		}
		return nil
	})
	if !errors.Is(err, all) || c.ReadsAt() != "m1" {
		t.Errorf("%d of %d have come, in the end from %s: %v", next, events, c.ReadsAt(), err)
	}
	if took := time.Since(begun); took > 15*time.Second { // two looks, five seconds apart, on a busy machine
		t.Errorf("the leader was read after %s", took)
	} else {
		t.Logf("the leader was read after %s", took)
	}
}

// TestFurtherReadersAskForMany: who has many readers already does not ask for each message by itself.
func TestFurtherReadersAskForMany(t *testing.T) {
	t.Parallel()
	s := startMembers(t)
	j := openMember(t, s.Members[0])
	const events = 3000
	var last *journal.Pending
	for n := range events {
		p, err := j.Begin(filled(fmt.Sprint("a/", n), "x", 10), "")
		if err != nil {
			t.Fatal(err)
		}
		last = p
	}
	if _, err := last.Wait(inTime(t)); err != nil {
		t.Fatal(err)
	}
	following, cancel := context.WithCancel(t.Context())
	var followers sync.WaitGroup
	defer followers.Wait()
	defer cancel()
	for range 4 {
		first := make(chan struct{}, events)
		followers.Go(func() {
			_ = j.For("user:root", nil).Follow(following, 1, func(journal.Text) error { first <- struct{}{}; return nil })
		})
		<-first
	}
	var asked atomic.Int64
	sub, err := s.Members[0].Conn().Subscribe("$JS.API.CONSUMER.MSG.NEXT.EVENTS_m1.>", func(*nats.Msg) { asked.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection ends with the test
	got := 0
	if err := j.For("user:root", nil).Replay(inTime(t), 1, events, func(journal.Text) error { got++; return nil }); err != nil {
		t.Fatal(err)
	}
	if got != events || asked.Load() > events/20 {
		t.Errorf("%d of %d events came, after %d requests", got, events, asked.Load())
	}
}
