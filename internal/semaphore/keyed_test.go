package semaphore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/brinebus/brine/test/deadline"
)

// What one key asks for waits for itself, and that of another does not wait for it.
func TestKeysTakeTurns(t *testing.T) {
	e := New(2)
	end, err := e.Acquire(t.Context(), "user:1")
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	for range 50 { // none of them takes a slot
		go func() {
			if end, err := e.Acquire(t.Context(), "user:1"); err == nil {
				end()
			}
		}()
	}
	if _, err := e.Acquire(short, "user:1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second one of the same user: %v", err)
	}
	other, err := e.Acquire(t.Context(), "user:2")
	if err != nil {
		t.Fatal(err)
	}
	other()
	end()
	end, err = e.Acquire(t.Context(), "user:1") // behind the fifty
	if err != nil {
		t.Fatal(err)
	}
	end()
	deadline.Until(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.of) == 0 && len(e.slots) == 0
	}, "no lock and no slot is left")
}

// A slot that has been held for some time is released when another key waits for one, and not
// before.
func TestASlotIsReleasedForAnotherKey(t *testing.T) {
	e := New(1)
	end, err := e.Acquire(t.Context(), "user:1")
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	stop := e.GiveWay(time.Millisecond, func() { close(gone) })
	defer stop()
	own, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := e.Acquire(own, "user:1"); err == nil {
		t.Error("a second one of the same user")
	}
	select {
	case <-gone:
		t.Error("it gave way to its own")
	default:
	}
	go func() {
		<-gone
		end()
	}()
	within, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	other, err := e.Acquire(within, "user:2")
	if err != nil {
		t.Fatalf("another key waits in vain: %v", err)
	}
	defer other()
	stop = e.GiveWay(0, func() { t.Error("it gave way to nobody") })
	stop()
}

// Who does not wait gets what is free, and leaves nothing behind if it is not.
func TestTryDoesNotWait(t *testing.T) {
	e := New(2)
	first, ok := e.Try("user:1")
	if !ok {
		t.Fatal("the lock of a key is free, and was not taken")
	}
	if _, ok := e.Try("user:1"); ok {
		t.Error("a key is held twice")
	}
	second, ok := e.Try("user:2")
	if !ok {
		t.Fatal("a slot is free, and was not taken")
	}
	if _, ok := e.Try("user:3"); ok {
		t.Error("more keys are held than there are slots")
	}
	first()
	second()
	if e.Held() != 0 || len(e.of) != 0 {
		t.Errorf("%d slots and %d keys are held by nobody", e.Held(), len(e.of))
	}
}
