package runnerjob

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/authz"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/semaphore"
)

// Long events are read by one at a time, and whoever does not take the answer keeps nobody
// from reading but themselves.
func TestLongReadsTakeTurns(t *testing.T) {
	s := &Server{longReads: semaphore.New(1), longAnswers: semaphore.New(maxLongAnswers)}
	by := func(name string) *longRead {
		return s.longRead(new(authz.Authorizer).Peer(bus.Identity{Role: bus.RoleUser, Name: name}))
	}
	waits := func(l *longRead) {
		t.Helper()
		short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := l.begin(short, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s reads: %v", l.who, err)
		}
		l.sent()
	}
	begins := func(l *longRead) {
		t.Helper()
		for range 2 { // the second event of the same runner
			if err := l.begin(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	slow := by("1")
	begins(slow)
	waits(by("2")) // while another reads
	slow.read()
	waits(by("1")) // while the first answer is not taken
	other := by("2")
	begins(other)
	other.sent()
	slow.sent()
	begins(by("1"))
}

// A client that asks for long answers and does not read them loses them when others need the
// capacity, however many answers there are, and only then.
func TestUnreadLongAnswersAreEndedForOthers(t *testing.T) {
	s := &Server{longReads: semaphore.New(1), longAnswers: semaphore.New(maxLongAnswers)}
	var slow []context.Context
	for _, name := range []string{"1", "2"} {
		l := s.longRead(new(authz.Authorizer).Peer(bus.Identity{Role: bus.RoleUser, Name: name}))
		l.turn = time.Millisecond
		if err := l.begin(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		l.read()
		within, end := l.giveWay(t.Context())
		defer context.AfterFunc(within, func() {
			end()
			l.sent()
		})()
		t.Cleanup(end)
		slow = append(slow, within)
	}
	select {
	case <-slow[0].Done():
		t.Error("it gave way to nobody")
	case <-time.After(20 * time.Millisecond):
	}
	other := s.longRead(new(authz.Authorizer).Peer(bus.Identity{Role: bus.RoleUser, Name: "3"}))
	within, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := other.begin(within, 1); err != nil {
		t.Fatalf("a third principal waits in vain: %v", err)
	}
	defer other.sent()
	if !errors.Is(context.Cause(slow[0]), errSlow) && !errors.Is(context.Cause(slow[1]), errSlow) {
		t.Error("nobody was told to give way")
	}
}
