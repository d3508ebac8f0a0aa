package master

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
	m := &Master{longReads: semaphore.New(1), longAnswers: semaphore.New(maxLongAnswers)}
	by := func(name string) *longRead {
		return m.longRead(new(authz.Authorizer).Peer(bus.Identity{Role: bus.RoleUser, Name: name}))
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
