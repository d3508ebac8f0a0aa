package rpc_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/bustest"
)

// A message with a missing piece is never treated as complete, in either direction.
func TestLostPieces(t *testing.T) {
	t.Parallel()
	b := bustest.Start(t)
	b.Server.Numbers = true
	b.Server.Handle(bustest.Probe(bus.RoleMinion, "echo"), func(ctx context.Context, r *rpc.Request) error { return r.SendRaw(ctx, r.Body) })
	b.Server.Handle(bustest.Probe(bus.RoleMinion, "never"), func(ctx context.Context, r *rpc.Request) error {
		<-ctx.Done()
		return ctx.Err()
	})
	if err := b.Server.Start(); err != nil {
		t.Fatal(err)
	}
	c := b.As(t, bus.RoleMinion, "web1")
	subject, n := bus.RequestSubject(bus.RoleMinion, "web1", "echo"), 0
	ask := func(pieces ...string) string { // each with its number and its text
		t.Helper()
		n++
		reply := c.Self.Inbox() + "." + strings.Repeat("x", n)
		sub, err := c.SubscribeSync(reply)
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Unsubscribe() //nolint:errcheck // at the end
		for _, p := range pieces {
			number, body, _ := strings.Cut(p, " ")
			body, more := strings.CutPrefix(body, "p")
			m := &nats.Msg{Subject: subject, Reply: reply, Data: []byte(body), Header: nats.Header{"Brine-N": {number}}}
			if more {
				m.Header.Set("Salt-Part", "more")
			}
			if err := c.PublishMsg(m); err != nil {
				t.Fatal(err)
			}
		}
		m, err := sub.NextMsg(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return m.Header.Get("Brine-N") + " " + string(m.Data)
	}
	if got := ask("1 pA", "2 pB", "3 C"); got != "1 ABC" {
		t.Errorf("all pieces: %q", got)
	}
	for name, pieces := range map[string][]string{
		"the second is missing": {"1 pA", "3 C"}, "the first is missing": {"2 B"}, "one is there twice": {"1 pA", "1 pA", "2 B"}, "no number": {"1 pA", "x B"},
	} {
		if got := ask(pieces...); !strings.Contains(got, "lost on the way") {
			t.Errorf("%s: %q", name, got)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn := rpc.NewConn(c.Conn, c.Self)
	missing := func(call string, numbers ...string) error {
		s, err := conn.Call("never", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := c.Flush(); err != nil { // from here on it is subscribed
			t.Fatal(err)
		}
		for _, number := range numbers {
			m := &nats.Msg{Subject: conn.Inbox() + "." + call, Data: []byte("x"), Header: nats.Header{"Brine-N": {number}}}
			if err := b.Conn().PublishMsg(m); err != nil {
				t.Fatal(err)
			}
		}
		for range numbers {
			if _, err := s.Next(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	if err := missing("1", "1", "2", "3"); err != nil {
		t.Errorf("a whole answer: %v", err)
	}
	if err := missing("2", "1", "3"); !errors.Is(err, rpc.ErrLost) {
		t.Errorf("an answer with a gap: %v, want ErrLost", err)
	}
}
