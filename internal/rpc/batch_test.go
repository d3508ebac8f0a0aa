package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
)

// inBatches is a bus that answers "echo" in batches: bodies that begin with "alone" are left to
// the handler, which says so, those that begin with "bad" are refused, and "panic" makes the
// batch handler panic. sizes receives the sizes of the batches; each batch waits for begin.
func inBatches(t *testing.T) (b *bustest.Bus, sizes chan int, begin chan struct{}) {
	t.Helper()
	b = bustest.Start(t)
	sizes, begin = make(chan int, 1000), make(chan struct{}, 1000)
	b.Server.Handle(bustest.Probe(bus.RoleUser, "echo"), func(ctx context.Context, r *rpc.Request) error { return r.Last(ctx, "alone: "+string(r.Body)) })
	b.Server.HandleBatches(bustest.Probe(bus.RoleUser, "echo"), func(ctx context.Context, batch []*rpc.Request) []error {
		<-begin
		sizes <- len(batch)
		errs := make([]error, len(batch))
		for i, r := range batch {
			switch body := string(r.Body); {
			case strings.HasPrefix(body, `"alone`):
				errs[i] = rpc.ErrAlone
			case strings.HasPrefix(body, `"bad`):
				errs[i] = rpc.Errorf(rpc.Denied, "no")
			case body == `"panic"`:
				panic("on purpose")
			default:
				errs[i] = r.Last(ctx, body)
			}
		}
		return errs
	})
	if err := b.Server.Start(); err != nil {
		t.Fatal(err)
	}
	return b, sizes, begin
}

func dial(t *testing.T, b *bustest.Bus) *rpc.Conn {
	t.Helper()
	c, err := rpc.Dial(b.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	c.AsksOften()
	return c
}

// Requests that arrive while a batch is handled form the next batch, and each gets its own
// answer.
func TestBatches(t *testing.T) {
	b, sizes, begin := inBatches(t)
	c := dial(t, b)
	ask := func(body string) (answer string, err error) { return answer, c.Ask(t.Context(), "echo", body, &answer) }
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			body := fmt.Sprint(i)
			if got, err := ask(body); err != nil || got != `"`+body+`"` {
				t.Errorf("request %s is answered %q, %v", body, got, err)
			}
			if got, err := ask("alone" + body); err != nil || got != `alone: "alone`+body+`"` {
				t.Errorf("request alone%s is answered %q, %v", body, got, err)
			}
			if _, err := ask("bad" + body); rpc.CodeOf(err) != rpc.Denied {
				t.Errorf("request bad%s: %v, want a refusal", body, err)
			}
		})
	}
	close(begin)
	deadline.Call(t, wg.Wait, "wg")
	total := 0
	for len(sizes) > 0 {
		total += <-sizes
	}
	if total != 300 {
		t.Errorf("the batches have %d requests, want 300", total)
	}
}

// A large request is not in a batch; the requests of a batch that panics get an error, and the
// next batch is served.
func TestNotEverythingIsInBatches(t *testing.T) {
	b, _, begin := inBatches(t)
	close(begin)
	c := dial(t, b)
	var got string
	if err := c.Ask(t.Context(), "echo", strings.Repeat("x", 100<<10), &got); err != nil || !strings.HasPrefix(got, "alone: ") {
		t.Errorf("a large request is answered %.20q, %v", got, err)
	}
	if err := c.Ask(t.Context(), "echo", "panic", nil); rpc.CodeOf(err) != rpc.Internal {
		t.Errorf("a request that panics: %v, want an internal error", err)
	}
	if err := c.Ask(t.Context(), "echo", "1", &got); err != nil || got != `"1"` {
		t.Errorf("a request after that is answered %q, %v", got, err)
	}
}

// Stop waits for the current batch, and for requests that wait after it.
func TestStopEndsBatches(t *testing.T) {
	b, sizes, begin := inBatches(t)
	c := dial(t, b)
	call := func() *rpc.Stream {
		t.Helper()
		s, err := c.Call("echo", "1")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := call()
	begin <- struct{}{}
	deadline.Receive(t, sizes, "sizes")
	for range 10 {
		call()
	}
	if err := c.NC.Flush(); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	go func() { b.Server.Stop(); close(stopped) }()
	close(begin)
	deadline.Receive(t, stopped, "stopped")
	if _, err := first.Next(t.Context()); !errors.Is(err, io.EOF) && rpc.CodeOf(err) != rpc.Unavailable {
		t.Errorf("the first request: %v, want its answer or that the daemon is stopping", err)
	}
}
