package eventbus

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// writable is a store that may say that nothing can be stored.
type writable struct {
	journal.Store
	why atomic.Pointer[error]
}

func (s *writable) Err() error {
	if why := s.why.Load(); why != nil {
		return *why
	}
	return s.Store.Err()
}

// TestAnElectionIsNoReasonToEnd: a journal that stores nothing, for the members have no leader, does not make a
// daemon fail that serves. The store behind it does not know of it. With another reason of the journal it does.
func TestAnElectionIsNoReasonToEnd(t *testing.T) {
	b := bustest.StartStore(t)
	of := &writable{Store: b.Broker.Store()}
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{MaxAge: time.Hour, Store: of})
	if err != nil {
		t.Fatal(err)
	}
	self := New(j, limit, b.Log).Self(b.Socket, b.Broker.Store())
	defer self.Close()
	if err := self.Check(t.Context()); err == nil {
		t.Error("nobody serves")
	}
	say := func(err error) { of.why.Store(&err) }
	say(errors.New("another process has opened the journal"))
	if err := self.Check(t.Context()); err == nil {
		t.Error("nobody serves, and the journal fails for a reason that does not pass")
	}
	say(fmt.Errorf("%w (30s)", salt.WithHint(salt.Unanswered("there is no leader"), "start the others")))
	if err := self.Check(t.Context()); err != nil {
		t.Errorf("without a leader: %v", err)
	}
	if err := self.Healthy(t.Context()); err == nil {
		t.Error("it is healthy without a leader")
	}
}
