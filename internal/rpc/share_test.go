package rpc_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/bustest"
)

// However many answers a principal does not read, they cost the daemon a few flow-control
// windows, and other principals are served. When those answers end, the next ones are sent.
func TestUnreadAnswersOfOnePrincipalAreBounded(t *testing.T) {
	const answers, windows = 20, 4
	b := bustest.Start(t)
	piece := make([]byte, rpc.MaxPart)
	var sent atomic.Int64
	b.Server.Handle(bustest.Probe(bus.RoleMinion, "long"), func(ctx context.Context, r *rpc.Request) error {
		for range 2 * rpc.Window / rpc.MaxPart { // more than may be ahead, so it is never sent completely
			if err := r.SendRaw(ctx, piece); err != nil {
				return err
			}
			if r.From.Name == "deaf" {
				sent.Add(rpc.MaxPart)
			}
		}
		return nil
	})
	if err := b.Server.Start(); err != nil {
		t.Fatal(err)
	}
	for round := range 2 { // what the first round had under way is released with its connection
		sent.Store(0)
		deaf := b.As(t, bus.RoleMinion, "deaf")
		if _, err := deaf.SubscribeSync(deaf.Self.Inbox() + ".>"); err != nil {
			t.Fatal(err)
		}
		for range answers {
			if err := deaf.PublishRequest(bus.RequestSubject(bus.RoleMinion, "deaf", "long"), deaf.NewInbox(), []byte("{}")); err != nil {
				t.Fatal(err)
			}
		}
		for end := time.Now().Add(time.Minute); sent.Load() < windows*rpc.Window-answers*rpc.MaxPart; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("round %d: %d bytes were sent, want %d windows", round, sent.Load(), windows)
			}
		}
		hears(t, b)
		if n := sent.Load(); n > windows*rpc.Window+rpc.MaxPart {
			t.Errorf("round %d: %d bytes are under way to a reader that takes nothing, want at most %d windows", round, n, windows)
		}
		deaf.Close()
		awaitGone(t, b)
	}
}

// A program such as salt-api sends requests for several users: a user who does not read their
// answers does not delay others.
func TestUsersOfOneProgramHaveTheirOwnLimits(t *testing.T) {
	b := bustest.Start(t)
	piece := make([]byte, rpc.MaxPart)
	var sent atomic.Int64
	var holders sync.Map // by nonce
	b.Server.Quota = func(i bus.Identity) string {
		name, _ := holders.Load(i.Nonce)
		return name.(string)
	}
	b.Server.Handle(bustest.Probe(bus.RoleMinion, "long"), func(ctx context.Context, r *rpc.Request) error {
		for range 2 * rpc.Window / rpc.MaxPart {
			if err := r.SendRaw(ctx, piece); err != nil {
				return err
			}
			sent.Add(rpc.MaxPart)
		}
		return nil
	})
	if err := b.Server.Start(); err != nil {
		t.Fatal(err)
	}
	silent, reading := b.As(t, bus.RoleMinion, "api"), b.As(t, bus.RoleMinion, "api")
	holders.Store(silent.Self.Nonce, "eve")
	holders.Store(reading.Self.Nonce, "ada")
	if _, err := silent.SubscribeSync(silent.Self.Inbox() + ".>"); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if err := silent.PublishRequest(bus.RequestSubject(bus.RoleMinion, "api", "long"), silent.NewInbox(), []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(time.Minute); sent.Load() < 4*rpc.Window-5*rpc.MaxPart; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes were sent, want four windows", sent.Load())
		}
	}
	takesAll(t, reading)
}

// hears fails unless another principal gets a complete answer.
func hears(t *testing.T, b *bustest.Bus) {
	t.Helper()
	c := b.As(t, bus.RoleMinion, "web1")
	takesAll(t, c)
	c.Close()
	awaitGone(t, b)
}

// takesAll fails unless a long answer arrives completely.
func takesAll(t *testing.T, c *bustest.Client) {
	t.Helper()
	s, err := rpc.NewConn(c.Conn, c.Self).Call("long", nil)
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for {
		part, err := s.Next(t.Context())
		if size += len(part); err != nil {
			break
		}
	}
	if size != 2*rpc.Window {
		t.Errorf("another principal got %d bytes of %d", size, 2*rpc.Window)
	}
}

func awaitGone(t *testing.T, b *bustest.Bus) {
	t.Helper()
	select {
	case <-b.Gone:
	case <-time.After(time.Minute):
		t.Fatal("nobody was told of the end of a connection")
	}
}
