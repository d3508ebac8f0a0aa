package rpc

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/brinebus/brine/test/deadline"
)

// The memory of all requests together is limited: large requests of many senders wait, small
// ones of others do not, and nothing stays reserved.
func TestMemoryOfAllRequestsIsBounded(t *testing.T) {
	s := &Server{built: newEstimates()}
	book := func(principal string, cost int) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		return s.reserve(ctx, principal, cost)
	}
	for _, principal := range []string{"evil1", "evil2"} {
		if err := book(principal, maxBuilt/2+1<<20); err != nil {
			t.Fatal(err)
		}
	}
	if err := book("evil1", maxBuilt/2); CodeOf(err) != Busy {
		t.Errorf("more than one may have: %v", err)
	}
	if err := book("evil3", maxBuilt/2); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a third large one: %v", err)
	}
	for n := range 100 {
		if err := book("web"+string(rune('a'+n)), modestPart); err != nil {
			t.Fatalf("a small one: %v", err)
		}
	}
	done := make(chan error)
	go func() { done <- s.reserve(t.Context(), "web1", maxBuilt/4) }()
	for n := range 100 {
		s.unreserve("web"+string(rune('a'+n)), modestPart)
	}
	s.unreserve("evil1", maxBuilt/2+1<<20)
	if err := deadline.Receive(t, done, "done"); err != nil {
		t.Errorf("who waited: %v", err)
	}
	s.unreserve("web1", maxBuilt/4)
	s.unreserve("evil2", maxBuilt/2+1<<20)
	if s.built.all != 0 || len(s.built.of) != 0 {
		t.Errorf("%d bytes of %v are left", s.built.all, s.built.of)
	}
}
