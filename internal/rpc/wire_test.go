package rpc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/bustest"
)

// wired returns a bus that answers with the requested length, and a connection for each role.
func wired(t *testing.T) (*bustest.Bus, map[bus.Role]*rpc.Conn) {
	b := bustest.Start(t)
	echo := func(ctx context.Context, r *rpc.Request) error {
		var q struct {
			Text  string
			Count int
		}
		if err := json.Unmarshal(r.Body, &q); err != nil {
			return rpc.Errorf(rpc.Usage, "unreadable").WithHint("write JSON")
		}
		for range q.Count {
			if err := r.Send(ctx, q.Text); err != nil {
				return err
			}
		}
		return r.Last(ctx, q.Text)
	}
	roles := []bus.Role{bus.RoleMinion, bus.RoleUser, bus.RoleClient}
	for _, role := range roles {
		b.Server.Handle(bustest.Probe(role, "echo"), echo)
	}
	if err := b.Server.Start(); err != nil {
		t.Fatal(err)
	}
	conns := map[bus.Role]*rpc.Conn{}
	for _, role := range roles {
		c := b.As(t, role, "web1")
		conns[role] = rpc.NewConn(c.Conn, c.Self)
	}
	return b, conns
}

type question struct {
	Text  string
	Count int
}

// exchange requests count messages, and a last one.
func exchange(t *testing.T, c *rpc.Conn, q question) {
	t.Helper()
	s, err := c.Call("echo", q)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got := 0
	for {
		m, err := s.Next(t.Context())
		var text string
		if m != nil {
			if got++; json.Unmarshal(m, &text) != nil || text != q.Text {
				t.Fatalf("message %d has %d bytes: %.50s", got, len(m), m)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if got != q.Count+1 {
		t.Errorf("%d messages, want %d", got, q.Count+1)
	}
}

// TestTheWireIsReadable subscribes to everything: all bodies are JSON, in pieces where a header
// says so, and any NATS tool can show them. Our own programs and those of others use the same
// form.
func TestTheWireIsReadable(t *testing.T) {
	b, conns := wired(t)
	for role, c := range conns {
		t.Run(string(role), func(t *testing.T) {
			heard, err := b.Conn().SubscribeSync(">")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = heard.Unsubscribe() }()
			exchange(t, c, question{"short", 0})
			exchange(t, c, question{"several", 3})
			exchange(t, c, question{strings.Repeat("long ", rpc.MaxPart/4), 1})
			if err := c.Ask(t.Context(), "echo", "no question", nil); rpc.CodeOf(err) != rpc.Usage {
				t.Errorf("a refusal: %v", err)
			}
			if err := b.Conn().PublishMsg(nats.NewMsg("test.end")); err != nil {
				t.Fatal(err)
			}
			pieces, seen := map[string][]byte{}, 0
			for {
				m, err := heard.NextMsgWithContext(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if m.Subject == "test.end" {
					break
				}
				pieces[m.Subject] = append(pieces[m.Subject], m.Data...)
				if m.Header.Get("Salt-Part") != "" {
					continue
				}
				seen++
				whole := pieces[m.Subject]
				delete(pieces, m.Subject)
				if empty := m.Header.Get("Salt-End") != "" || strings.Contains(m.Subject, ".ack."); len(whole) == 0 && empty {
					continue
				}
				if !json.Valid(whole) {
					t.Errorf("on %s: %.60q", m.Subject, whole)
				}
				if refusal := m.Header.Get("Nats-Service-Error"); bytes.Contains(whole, []byte(`"code"`)) != (refusal == "unreadable") {
					t.Errorf("%.60q has the error %q in its headers", whole, refusal)
				}
			}
			if seen < 8 || len(pieces) > 0 {
				t.Errorf("%d messages were heard, %d not whole", seen, len(pieces))
			}
		})
	}
}

// TestConfirmations: an answer of many times the window arrives completely, with both
// protocols, and the sender stops if nothing is acknowledged.
func TestConfirmations(t *testing.T) {
	_, conns := wired(t)
	for role, c := range conns {
		for _, framed := range []bool{false, true} {
			if framed && role == bus.RoleClient {
				continue // these never used protocol 1
			}
			t.Run(fmt.Sprint(role, " protocol 1 ", framed), func(t *testing.T) {
				if framed {
					c.UseFrames()
				}
				exchange(t, c, question{strings.Repeat("x", 30<<10), 4 * rpc.Window / (30 << 10)})
				exchange(t, c, question{"x", 3 * rpc.QueueLen})
				exchange(t, c, question{strings.Repeat("long ", rpc.MaxPart/4), 3 * rpc.Window / rpc.MaxPart})
				if err := c.Ask(t.Context(), "echo", "no question", nil); rpc.CodeOf(err) != rpc.Usage || err.Error() != "unreadable" {
					t.Errorf("a refusal: %v", err)
				}
			})
		}
	}
}

// TestPiecesThatLookLikeFrames: the last piece of a long request may begin with any byte. It
// has the form of the first piece.
func TestPiecesThatLookLikeFrames(t *testing.T) {
	_, conns := wired(t)
	for _, fill := range []string{"i", "p", "e", "x"} {
		exchange(t, conns[bus.RoleMinion], question{strings.Repeat(fill, 2*rpc.MaxPart), 0})
	}
}

// TestAnOlderDaemon: a program that was upgraded before its daemon was restarted reports that.
func TestAnOlderDaemon(t *testing.T) {
	b := bustest.Start(t)
	if _, err := b.Conn().Subscribe("salt.user.*.req.echo", func(m *nats.Msg) {
		_ = m.Respond([]byte(`x{"code":"usage","text":"request echo: message of the unknown kind '\"'"}`))
	}); err != nil {
		t.Fatal(err)
	}
	if err := b.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	c, err := rpc.Dial(b.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Ask(t.Context(), "echo", "x", nil); rpc.CodeOf(err) != rpc.Unavailable || !strings.Contains(err.Error(), "older version") {
		t.Errorf("an older daemon: %v", err)
	}
}
