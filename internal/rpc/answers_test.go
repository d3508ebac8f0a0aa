package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
)

// principal returns a connection that sends many requests, to a bus that answers "echo" with
// the body of the request, "long" with that many bytes, and "never" not at all.
func principal(t *testing.T) (*bustest.Bus, *rpc.Conn) {
	t.Helper()
	b := bustest.Start(t)
	b.Server.Handle(bustest.Probe(bus.RoleUser, "echo"), func(ctx context.Context, r *rpc.Request) error { return r.SendRaw(ctx, r.Body) })
	b.Server.Handle(bustest.Probe(bus.RoleUser, "last"), func(ctx context.Context, r *rpc.Request) error { return r.Last(ctx, string(r.Body)) })
	b.Server.Handle(bustest.Probe(bus.RoleUser, "long"), func(ctx context.Context, r *rpc.Request) error {
		var n int
		if err := r.Decode(&n); err != nil {
			return err
		}
		return r.Send(ctx, strings.Repeat("x", n))
	})
	b.Server.Handle(bustest.Probe(bus.RoleUser, "refused"), func(context.Context, *rpc.Request) error { return rpc.Errorf(rpc.Denied, "no") })
	b.Server.Handle(bustest.Probe(bus.RoleUser, "never"), func(ctx context.Context, _ *rpc.Request) error { <-ctx.Done(); return ctx.Err() })
	if err := b.Server.Start(); err != nil {
		t.Fatal(err)
	}
	c, err := rpc.Dial(b.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	c.AsksOften()
	return b, c
}

// Many requests at once over one subscription: each gets its own answer.
func TestAsksOften(t *testing.T) {
	_, c := principal(t)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			var got int
			if err := c.Ask(t.Context(), "echo", i, &got); err != nil || got != i {
				t.Errorf("question %d is answered %d, %v", i, got, err)
			}
			var text string
			if err := c.Ask(t.Context(), "last", i, &text); err != nil || text != fmt.Sprint(i) {
				t.Errorf("question %d is answered %q, %v", i, text, err)
			}
			if err := c.Ask(t.Context(), "refused", i, nil); rpc.CodeOf(err) != rpc.Denied {
				t.Errorf("question %d: %v, want a refusal", i, err)
			}
		})
	}
	deadline.Call(t, wg.Wait, "wg")
	if n := c.NC.NumSubscriptions(); n != 1 {
		t.Errorf("there are %d subscriptions, want 1", n)
	}
}

// A principal that has as many requests under way as permitted, and sends a new one for each
// that has ended, is never refused.
func TestAsksAgainAtOnce(t *testing.T) {
	_, c := principal(t)
	var wg sync.WaitGroup
	for range 128 {
		wg.Go(func() {
			for i := range 20 {
				if err := c.Ask(t.Context(), "last", i, nil); err != nil {
					t.Errorf("question %d: %v", i, err)
					return
				}
			}
		})
	}
	deadline.Call(t, wg.Wait, "wg")
}

// An answer larger than the window arrives complete.
func TestAskedForMuch(t *testing.T) {
	_, c := principal(t)
	var got string
	if err := c.Ask(t.Context(), "long", 3*rpc.Window, &got); err != nil || len(got) != 3*rpc.Window {
		t.Errorf("%d bytes came, %v", len(got), err)
	}
}

// If the connection is lost, waiting callers get an error at once, and so do later callers; a
// caller whose context ends does not wait any longer.
func TestAskedInVain(t *testing.T) {
	b, c := principal(t)
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := c.Ask(short, "never", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without patience: %v", err)
	}
	lost := make(chan error, 1)
	go func() { lost <- c.Ask(t.Context(), "never", nil, nil) }()
	if err := c.Ask(t.Context(), "echo", 1, nil); err != nil { // the other request is under way
		t.Fatal(err)
	}
	b.Connections(func(_ bus.Identity, cut func()) { cut() })
	if err := deadline.Receive(t, lost, "lost"); !errors.Is(err, rpc.ErrLost) {
		t.Errorf("the connection was cut: %v, want ErrLost", err)
	}
	if err := c.Ask(t.Context(), "echo", 1, nil); !errors.Is(err, rpc.ErrLost) {
		t.Errorf("asked over the lost connection: %v, want ErrLost", err)
	}
}
