package rpc_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/authz/authztest"
	"github.com/brinebus/brine/internal/authz/decision"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
)

// check returns a table with one request, which has this check.
func check(c bus.Check) bus.Endpoints {
	return bus.Endpoints{{Op: "echo", Roles: []bus.Role{bus.RoleUser}, Check: c, Body: 1 << 10, Handler: "echo", Why: "a test"}}
}

// ask serves a table with one handler, and returns the answer to a user who may publish the
// request.
func ask(t *testing.T, table bus.Endpoints, authorize func(context.Context, *rpc.Request, bus.Check) decision.Decision, h rpc.Handler) error {
	t.Helper()
	b := bustest.Start(t)
	s := rpc.NewServer(b.Conn(), b.Owner, table, slog.New(slog.DiscardHandler))
	s.Authorize = authorize
	s.Handle("echo", h)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	c, err := rpc.Dial(b.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answer, err := c.Call("echo", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Close()
	var last error
	for sent := []byte(nil); last == nil; sent, last = answer.Next(t.Context()) {
		if strings.Contains(string(sent), "secret") {
			t.Errorf("the user gets %s", sent)
		}
	}
	if errors.Is(last, io.EOF) {
		return nil
	}
	return last
}

// A handler that does not decide cannot answer, in whatever way it tries.
func TestNothingIsAnsweredWithoutADecision(t *testing.T) {
	for name, h := range map[string]rpc.Handler{
		"a message":      func(ctx context.Context, r *rpc.Request) error { return r.Send(ctx, "secret") },
		"the last":       func(ctx context.Context, r *rpc.Request) error { return r.Last(ctx, "secret") },
		"bytes":          func(ctx context.Context, r *rpc.Request) error { return r.SendRaw(ctx, []byte("secret")) },
		"nothing at all": func(context.Context, *rpc.Request) error { return nil },
		"a refusal": func(ctx context.Context, r *rpc.Request) error {
			_ = r.Decide(authztest.Refuse(rpc.Errorf(rpc.Denied, "no")))
			return r.Send(ctx, "secret")
		},
		"the zero value": func(ctx context.Context, r *rpc.Request) error {
			_ = r.Decide(decision.Decision{})
			return r.Send(ctx, "secret")
		},
		"what another check allows": func(ctx context.Context, r *rpc.Request) error {
			_ = r.Decide(authztest.Allow(string(bus.EventGrant)))
			return r.Send(ctx, "secret")
		},
		"one's own": func(ctx context.Context, r *rpc.Request) error {
			_ = r.Decide(decision.Own())
			return r.Send(ctx, "secret")
		},
	} {
		if err := ask(t, check(bus.Published), nil, h); rpc.CodeOf(err) != rpc.Internal {
			t.Errorf("%s: %v, want a fault of the daemon", name, err)
		}
	}
	err := ask(t, check(bus.Published), nil, func(ctx context.Context, r *rpc.Request) error {
		if err := r.Decide(authztest.Allow(string(bus.Published))); err != nil {
			return err
		}
		return r.Send(ctx, 1)
	})
	if err != nil {
		t.Errorf("decided: %v", err)
	}
}

// Decisions for which only the sender matters are made before the handler is called.
func TestEarlyChecks(t *testing.T) {
	called := false
	h := func(ctx context.Context, r *rpc.Request) error { called = true; return r.Send(ctx, 1) }
	refuse := func(context.Context, *rpc.Request, bus.Check) decision.Decision {
		return authztest.Refuse(rpc.Errorf(rpc.Denied, "not you"))
	}
	for name, authorize := range map[string]func(context.Context, *rpc.Request, bus.Check) decision.Decision{"refused": refuse, "nobody to ask": nil} {
		if err := ask(t, check(bus.Operator), authorize, h); rpc.CodeOf(err) != rpc.Denied || called {
			t.Errorf("%s: %v, called %v", name, err, called)
		}
	}
	allow := func(_ context.Context, _ *rpc.Request, c bus.Check) decision.Decision {
		if c != bus.Operator {
			t.Errorf("asked for the check %s", c)
		}
		return authztest.Allow(string(c))
	}
	if err := ask(t, check(bus.Operator), allow, h); err != nil || !called {
		t.Errorf("allowed: %v, called %v", err, called)
	}
}

func TestOnlyDeclaredHandlersCanBeRegistered(t *testing.T) {
	b := bustest.Start(t)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a handler that no endpoint names was registered")
			}
		}()
		b.Server.Handle("nosuch", func(context.Context, *rpc.Request) error { return nil })
	}()
	s := rpc.NewServer(b.Conn(), b.Owner, check(""), slog.New(slog.DiscardHandler))
	if err := s.Start(); err == nil || !strings.Contains(err.Error(), "no known check") {
		t.Errorf("a server starts with an endpoint without a check: %v", err)
	}
}

// salt-call uses the subjects of its minion and has fewer rights: requests that only the daemon
// may send do not reach a handler.
func TestACallerIsNoMinion(t *testing.T) {
	b := bustest.Start(t)
	served := make(chan bus.Identity, 10)
	b.Server.Handle("hello", func(ctx context.Context, r *rpc.Request) error { served <- r.From; return r.Send(ctx, 1) })
	b.Server.Handle("pillar", func(ctx context.Context, r *rpc.Request) error { served <- r.From; return r.Send(ctx, 1) })
	if err := b.Server.Start(); err != nil {
		t.Fatal(err)
	}
	client := b.As(t, bus.RoleCaller, "web1")
	c := rpc.NewConn(client.Conn, client.Self)
	if err := c.Tell("hello", 1); err != nil {
		t.Fatal(err)
	}
	if err := c.Ask(t.Context(), "pillar", nil, nil); err != nil {
		t.Fatal(err)
	}
	if from := deadline.Receive(t, served, "served"); from.Role != bus.RoleCaller || len(served) > 0 {
		t.Errorf("%d requests were served, the first of %s %s", len(served)+1, from.Role, from)
	}
	if err := deadline.Receive(t, client.Violations, "Violations"); !strings.Contains(err.Error(), "salt.minion.web1.req.hello") {
		t.Errorf("complaint: %v", err)
	}
}

// The size of a request is limited by the table for its operation, in one message or in pieces.
// Clients send one message, which could hold much more than most operations permit.
func TestSizesOfRequests(t *testing.T) {
	called := false
	h := func(ctx context.Context, r *rpc.Request) error { called = true; return r.Send(ctx, 1) }
	for _, c := range []struct {
		name  string
		role  bus.Role
		limit int
	}{{"whole", bus.RoleUser, 1}, {"in pieces", bus.RoleUser, 1 << 20}, {"of a client", bus.RoleClient, 1 << 10}} {
		table := check(bus.Own)
		table[0].Op, table[0].Roles, table[0].Body = "place", []bus.Role{c.role}, c.limit
		b := bustest.Start(t)
		s := rpc.NewServer(b.Conn(), b.Owner, table, slog.New(slog.DiscardHandler))
		s.Handle(table[0].Handler, h)
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		client := b.As(t, c.role, "dash")
		err := rpc.NewConn(client.Conn, client.Self).Ask(t.Context(), "place", strings.Repeat("x", c.limit), nil)
		if rpc.CodeOf(err) != rpc.Usage || !strings.Contains(err.Error(), "too large") || called {
			t.Errorf("%s: %v, called %v", c.name, err, called)
		}
	}
}
