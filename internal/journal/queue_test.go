package journal_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"brine/internal/broker"
	"brine/internal/bustest"
	"brine/internal/journal"
)

// limit bounds the waits of a test that fails; prompt is what a queue may take
// that has something to hand out, far below the time after which the store
// believes a message lost.
const (
	limit  = 20 * time.Second
	prompt = 20 * time.Second
)

func openQueue(t *testing.T, b *broker.Broker) *journal.Queue {
	t.Helper()
	q, err := journal.OpenQueue(t.Context(), b.Conn(), "OUTBOX", journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func put(t *testing.T, q *journal.Queue, from, to int) {
	t.Helper()
	for n := from; n < to; n++ {
		if err := q.Put(t.Context(), []byte(strconv.Itoa(n))); err != nil {
			t.Fatal(err)
		}
	}
}

// next takes one message, which must be want.
func next(t *testing.T, q *journal.Queue, want int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), prompt)
	defer cancel()
	var got string
	if err := q.Next(ctx, func(b []byte) error { got = string(b); return nil }); err != nil || got != strconv.Itoa(want) {
		t.Fatalf("next: %q, %v; want %d", got, err, want)
	}
}

func expectLen(t *testing.T, q *journal.Queue, want uint64) {
	t.Helper()
	if n, err := q.Len(t.Context()); err != nil || n != want {
		t.Errorf("length %d, %v; want %d", n, err, want)
	}
}

func TestQueueKeepsOrder(t *testing.T) {
	t.Parallel()
	q := openQueue(t, bustest.StartStore(t).Broker)
	put(t, q, 0, 200)
	for n := range 200 {
		next(t, q, n)
		if n%50 == 0 {
			expectLen(t, q, uint64(199-n))
		}
	}
	expectLen(t, q, 0)
}

// What could not be delivered is the next one again, and at once.
func TestQueueAfterAnError(t *testing.T) {
	t.Parallel()
	q := openQueue(t, bustest.StartStore(t).Broker)
	put(t, q, 0, 10)
	ctx, cancel := context.WithTimeout(t.Context(), prompt)
	defer cancel()
	away := errors.New("the master is away")
	for n := range 10 {
		for range 3 {
			var got string
			err := q.Next(ctx, func(b []byte) error { got = string(b); return away })
			if !errors.Is(err, away) || got != strconv.Itoa(n) {
				t.Fatalf("next: %q, %v; want %d and the error", got, err, n)
			}
		}
		next(t, q, n)
	}
	expectLen(t, q, 0)
}

func TestQueueWaits(t *testing.T) {
	t.Parallel()
	q := openQueue(t, bustest.StartStore(t).Broker)
	gone := errors.New("stopping")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- q.Next(ctx, func([]byte) error { return nil }) }()
	cancel(gone)
	select {
	case err := <-done:
		if !errors.Is(err, gone) {
			t.Errorf("a wait that was ended: %v, want %v", err, gone)
		}
	case <-time.After(limit):
		t.Fatal("the end of the context does not end the wait")
	}
	got := make(chan error, 1)
	go func() {
		got <- q.Next(t.Context(), func(b []byte) error {
			if string(b) != "7" {
				return fmt.Errorf("got %q", b)
			}
			return nil
		})
	}()
	put(t, q, 7, 8)
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(limit):
		t.Fatal("a wait that began before the message does not get it")
	}
	put(t, q, 8, 9) // nothing was handed to the wait that was ended
	next(t, q, 8)
}

// A process that dies with a message in its hand leaves it to its successor, who
// gets it at once and in its place.
func TestQueueOverARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := startStore(t, dir)
	q := openQueue(t, b)
	put(t, q, 0, 5)
	next(t, q, 0)
	err := q.Next(t.Context(), func([]byte) error {
		b.Stop() // in the middle of a delivery
		return nil
	})
	if err == nil {
		t.Error("a message was removed from a store that is closed")
	}
	q = openQueue(t, startStore(t, dir))
	expectLen(t, q, 4)
	put(t, q, 5, 6)
	for n := 1; n < 6; n++ {
		next(t, q, n)
	}
}
