package rpc

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
)

// FuzzRequest passes a server any message of a minion that the broker lets through. If the
// server handles it as a request, it is one of that minion, and the answer goes to the minion's
// own inbox.
func FuzzRequest(f *testing.F) {
	owner := bus.Identity{Role: bus.RoleMinion, Name: "evil", Key: strings.Repeat("a", 64), Nonce: strings.Repeat("n", 20)}
	inbox := owner.Inbox()
	f.Add("salt.minion.evil.req.publish", inbox+".1", []byte(`{"tgt":"*"}`))
	f.Add("salt.minion.evil.ret.20260101000000000000", inbox+".2", []byte("p{"))
	f.Add("salt.minion.evil.ack.1.100", "", []byte{})
	f.Add("salt.minion.evil.fire", inbox+".1.2", []byte{})
	f.Add("salt.minion.web1.req.publish", "_INBOX.master.x.1", []byte("{}"))
	f.Add("salt.minion.evil.credit", inbox+".1", []byte(inbox+".1 100"))
	f.Fuzz(func(t *testing.T, subject, reply string, body []byte) {
		s := NewServer(&nats.Conn{}, func(prefix string) (bus.Identity, bool) { return owner, prefix == inbox }, bus.MasterEndpoints, slog.New(slog.DiscardHandler))
		from, _, ok := bus.Sender(subject)
		if !ok {
			return
		}
		if _, own := s.ownInbox(from, reply); own && (from.Name != "evil" || from.Role != bus.RoleMinion || !strings.HasPrefix(reply, inbox+".") || strings.ContainsAny(reply, "*> ")) {
			t.Fatalf("a request on %q may be answered on %q", subject, reply)
		}
		m := &nats.Msg{Subject: subject, Reply: reply, Data: bytes.Clone(body)}
		s.widenFramed(m)
		s.confirmed(m)
	})
}

// FuzzErrors reads any text as an error of a daemon: the result is always an error with a code.
func FuzzErrors(f *testing.F) {
	f.Add(Errorf(Denied, "no rule allows it").encode())
	f.Add([]byte(`{"code":5}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := decodeError(b); err == nil || CodeOf(err) == "" {
			t.Errorf("%q is the error %v", b, err)
		}
	})
}
