package rpc_test

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
)

// The bodies of one principal's requests being handled are limited together: one beyond the
// limit is refused as Busy, while small ones and those of others are accepted.
func TestLargeBodiesAtOnce(t *testing.T) {
	b := bustest.Start(t)
	entered, leave := make(chan int, 10), make(chan struct{})
	wait := func(ctx context.Context, r *rpc.Request) error {
		entered <- len(r.Body)
		select {
		case <-leave:
		case <-ctx.Done():
		}
		return nil
	}
	b.Server.Handle(bustest.Probe(bus.RoleMinion, "wait"), wait)
	b.Server.Handle(bustest.Probe(bus.RoleUser, "wait"), wait)
	if err := b.Server.Start(); err != nil {
		t.Fatal(err)
	}
	client := b.As(t, bus.RoleMinion, "web1")
	web1 := rpc.NewConn(client.Conn, client.Self)
	local, err := rpc.Dial(b.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	large, small := strings.Repeat("x", 40<<20), "x"
	call := func(c *rpc.Conn, body string) *rpc.Stream {
		t.Helper()
		s, err := c.Call("wait", body)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := call(web1, large)
	deadline.Receive(t, entered, "entered")
	if _, err := call(web1, large).Next(t.Context()); rpc.CodeOf(err) != rpc.Busy || !strings.Contains(err.Error(), "hold") {
		t.Errorf("a second large request of one principal: %v, want busy", err)
	}
	call(web1, small)
	if n := deadline.Receive(t, entered, "entered"); n != len(small)+2 {
		t.Errorf("a request of %d bytes was taken, want the small one", n)
	}
	call(local, large)
	if n := deadline.Receive(t, entered, "entered"); n != len(large)+2 {
		t.Errorf("a request of %d bytes was taken, want the large one of somebody else", n)
	}
	close(leave)
	if _, err := first.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	for err = error(nil); ; { // the limit is free again shortly after the answer
		s := call(web1, large)
		if _, err = s.Next(t.Context()); rpc.CodeOf(err) != rpc.Busy {
			break
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("after the first has ended: %v", err)
	}
}

// A long body is assembled after memory was freed for it; one that its handler has released
// counts until the end of the request and no longer.
func TestBodiesThatAreGivenUp(t *testing.T) {
	const size = 2 << 20
	b := bustest.Start(t)
	rooms, sizes := make(chan int, 10), make(chan int, 10)
	b.Server.Room = func(n int) { rooms <- n }
	b.Server.Handle(bustest.Probe(bus.RoleMinion, "wait"), func(ctx context.Context, r *rpc.Request) error {
		sizes <- len(r.Body)
		if r.Body = nil; b.Server.UnderWay() == 0 {
			t.Error("a request that is handled holds nothing")
		}
		return nil
	})
	if err := b.Server.Start(); err != nil {
		t.Fatal(err)
	}
	client := b.As(t, bus.RoleMinion, "web1")
	web1 := rpc.NewConn(client.Conn, client.Self)
	if err := web1.Ask(t.Context(), "wait", "x", nil); err != nil || len(rooms) > 0 || deadline.Receive(t, sizes, "sizes") != len(`"x"`) {
		t.Errorf("a short request: %v, memory made %d times", err, len(rooms))
	}
	if err := web1.Ask(t.Context(), "wait", strings.Repeat("x", size), nil); err != nil {
		t.Fatal(err)
	}
	if room, got := deadline.Receive(t, rooms, "rooms"), deadline.Receive(t, sizes, "sizes"); room != size+2 || got != size+2 {
		t.Errorf("memory was made for %d bytes, and %d were there, want %d", room, got, size+2)
	}
	if n := b.Server.UnderWay(); n != 0 {
		t.Errorf("%d bytes are under way after the last request", n)
	}
}

// A machine that sends too many requests is first refused as Busy, then its connection is
// ended; others are not affected.
func TestFloodEndsItsConnection(t *testing.T) {
	b := bustest.Start(t)
	cut := make(chan string, 100)
	b.Server.Cut, b.Server.Pace = func(inbox string) { cut <- inbox }, 20
	b.Server.Handle(bustest.Probe(bus.RoleMinion, "ok"), func(ctx context.Context, r *rpc.Request) error { return r.Send(ctx, true) })
	if err := b.Server.Start(); err != nil {
		t.Fatal(err)
	}
	flood, other := b.As(t, bus.RoleMinion, "web1"), b.As(t, bus.RoleMinion, "web2")
	subject, inbox := bus.RequestSubject(bus.RoleMinion, "web1", "ok"), flood.Self.Inbox()
	for n := range 400 {
		if err := flood.PublishRequest(subject, inbox+"."+strconv.Itoa(n), []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case got := <-cut:
		if got != inbox {
			t.Errorf("cut %s, want %s", got, inbox)
		}
	case <-t.Context().Done():
		t.Error("it was not cut")
	}
	if err := rpc.NewConn(other.Conn, other.Self).Ask(t.Context(), "ok", nil, nil); err != nil {
		t.Errorf("another minion: %v", err)
	}
}
