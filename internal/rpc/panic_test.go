package rpc_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/bustest"
)

// TestPanicsDoNotFillTheLog: whoever finds a request whose handler panics causes a few lines, however often
// it is sent.
func TestPanicsDoNotFillTheLog(t *testing.T) {
	var mu sync.Mutex
	var text bytes.Buffer
	b := bustest.Start(t)
	s := rpc.NewServer(b.Conn(), b.Owner, check(bus.Own), slog.New(slog.NewTextHandler(writer(func(line []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return text.Write(line)
	}), nil)))
	s.Handle("echo", func(context.Context, *rpc.Request) error { panic("on purpose") })
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	c := dial(t, b)
	for range 20 {
		if err := c.Ask(t.Context(), "echo", 1, nil); rpc.CodeOf(err) != rpc.Internal {
			t.Fatalf("the answer is %v", err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if n := bytes.Count(text.Bytes(), []byte("on purpose")); n == 0 || n > 5 {
		t.Errorf("%d lines:\n%s", n, text.Bytes())
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }
