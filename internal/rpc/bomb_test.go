package rpc_test

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
)

// 63 MiB of small maps would become gigabytes. A handler that decodes them gets an error,
// whatever it decodes into, and no more memory is used than for the message itself.
func TestABombIsNotBuilt(t *testing.T) {
	b := bustest.Start(t)
	var grown atomic.Uint64
	table := check(bus.Own)
	table[0].Body = 64 << 20
	s := rpc.NewServer(b.Conn(), b.Owner, table, slog.New(slog.DiscardHandler))
	s.Handle("echo", func(ctx context.Context, r *rpc.Request) error {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var v any
		err := r.Decode(&v)
		runtime.ReadMemStats(&after)
		grown.Store(after.TotalAlloc - before.TotalAlloc)
		return err
	})
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	c, err := rpc.Dial(b.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	bomb := "[" + strings.Repeat(`{"":0},`, 9<<20) + "0]"
	err = c.Ask(t.Context(), "echo", raw(bomb), nil)
	if rpc.CodeOf(err) != rpc.Usage || !strings.Contains(err.Error(), "too many parts") {
		t.Errorf("a bomb: %v", err)
	}
	if n := grown.Load(); n > 1<<20 {
		t.Errorf("%d bytes were taken for it", n)
	}
}

// The decoded bodies of one identity's requests are limited together, and those of others
// separately.
func TestBombsAtOnce(t *testing.T) {
	b := bustest.Start(t)
	entered, leave := make(chan struct{}, 10), make(chan struct{})
	h := func(ctx context.Context, r *rpc.Request) error {
		var v any
		if err := r.Decode(&v); err != nil {
			return err
		}
		entered <- struct{}{}
		select {
		case <-leave:
		case <-ctx.Done():
		}
		return nil
	}
	b.Server.Handle(bustest.Probe(bus.RoleUser, "wait"), h)
	b.Server.Handle(bustest.Probe(bus.RoleMinion, "wait"), h)
	if err := b.Server.Start(); err != nil {
		t.Fatal(err)
	}
	c, err := rpc.Dial(b.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	client := b.As(t, bus.RoleMinion, "web1")
	large := raw("[" + strings.Repeat(`{},`, 300_000) + "0]") // more than half of the limit
	for _, from := range []*rpc.Conn{c, rpc.NewConn(client.Conn, client.Self)} {
		if _, err := from.Call("wait", large); err != nil {
			t.Fatal(err)
		}
		deadline.Receive(t, entered, "entered")
		if err := from.Ask(t.Context(), "wait", large, nil); rpc.CodeOf(err) != rpc.Busy {
			t.Errorf("a second one at once: %v, want busy", err)
		}
	}
	close(leave)
	if err := c.Ask(t.Context(), "wait", raw("[]"), nil); err != nil {
		t.Errorf("after that: %v", err)
	}
}

// raw is a body that is sent unchanged.
type raw string

func (r raw) MarshalBinary() ([]byte, error) { return []byte(r), nil }
