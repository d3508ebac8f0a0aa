package master

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Dear targets of one asker wait for each other, those of another do not wait for them.
func TestEvaluationsAreShared(t *testing.T) {
	e := newEvaluations()
	e.slots = make(chan struct{}, 2)
	end, err := e.begin(t.Context(), "user:1")
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	for range 50 { // none of them takes a slot
		go func() {
			if end, err := e.begin(t.Context(), "user:1"); err == nil {
				end()
			}
		}()
	}
	if _, err := e.begin(short, "user:1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second one of the same user: %v", err)
	}
	other, err := e.begin(t.Context(), "user:2")
	if err != nil {
		t.Fatal(err)
	}
	other()
	end()
	end, err = e.begin(t.Context(), "user:1") // behind the fifty
	if err != nil {
		t.Fatal(err)
	}
	end()
	deadline := time.After(10 * time.Second)
	for {
		e.mu.Lock()
		left := len(e.of)
		e.mu.Unlock()
		if left == 0 && len(e.slots) == 0 {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%d turns and %d slots are left", left, len(e.slots))
		case <-time.After(time.Millisecond):
		}
	}
}
