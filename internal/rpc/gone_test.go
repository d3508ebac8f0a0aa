package rpc_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
)

// TestARequestWhoseConnectionEndsMeanwhile: a connection that ends between the lookup of its request and the
// registration leaves neither an answer that never ends, nor pieces that stay in memory.
func TestARequestWhoseConnectionEndsMeanwhile(t *testing.T) {
	b := bustest.Start(t)
	var s *rpc.Server
	var ended atomic.Bool
	looked := make(chan struct{}, 10)
	owner := func(inbox string) (i bus.Identity, lives bool) {
		if i, lives = b.Owner(inbox); ended.Swap(true) {
			lives = false
		} else {
			s.Gone(inbox) // it ends after it was looked up
		}
		looked <- struct{}{}
		return i, lives
	}
	s = rpc.NewServer(b.Conn(), owner, check(bus.Own), slog.New(slog.DiscardHandler))
	s.Handle("echo", func(ctx context.Context, r *rpc.Request) error {
		<-ctx.Done()
		return ctx.Err()
	})
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	c := b.As(t, bus.RoleUser, "web1")
	for name, header := range map[string]nats.Header{"whole": nil, "a piece": {"Salt-Part": {"1"}}} {
		ended.Store(false)
		m := &nats.Msg{Subject: bus.RequestSubject(bus.RoleUser, c.Self.Name, "echo"), Reply: c.Self.Inbox() + "." + name[:1], Header: header, Data: []byte("1")}
		if err := c.Conn.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			deadline.Receive(t, looked, "the connection is looked up before and after the request is registered: "+name)
		}
	}
	bustest.Until(t, "no answer and no piece is left", func() bool { return s.Registered() == 0 })
}
