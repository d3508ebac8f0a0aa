package rpc_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/bustest"
)

// A long answer of small messages, more than the window holds, arrives completely and in order.
func TestManySmallMessages(t *testing.T) {
	const count = 5 * rpc.QueueLen
	b := bustest.Start(t)
	b.Server.Handle(bustest.Probe(bus.RoleUser, "count"), func(ctx context.Context, r *rpc.Request) error {
		for i := range count {
			if err := r.Send(ctx, i); err != nil {
				return err
			}
		}
		return nil
	})
	if err := b.Server.Start(); err != nil {
		t.Fatal(err)
	}
	c, err := rpc.Dial(b.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.Call("count", nil)
	if err != nil {
		t.Fatal(err)
	}
	for want := range count {
		var got int
		if err := s.Decode(t.Context(), &got); err != nil || got != want {
			t.Fatalf("message %d is %d, %v", want, got, err)
		}
	}
	if _, err := s.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("after the last message came %v", err)
	}
}
