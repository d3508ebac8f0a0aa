package rpc

import (
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
)

// However small the messages are, those under way must fit into the queue of the receiver,
// which drops the rest.
func TestWindowBoundsTheNumberOfMessages(t *testing.T) {
	for _, size := range []int{0, 1, 100, minCost, MaxPart} {
		o := &answerer{acked: make(chan struct{}, 1), limit: stallTimeout}
		count := 0
		for range 3 * QueueLen {
			if o.reserve(size) {
				count++
			}
		}
		if closing := 2; count+closing > QueueLen {
			t.Errorf("%d messages of %d bytes are sent ahead, and the queue holds %d", count, size, QueueLen)
		}
		if int64(count*size) > Window+MaxPart {
			t.Errorf("%d messages of %d bytes are sent ahead, beyond the window of %d bytes", count, size, Window)
		}
	}
}

// A client cannot acknowledge an answer to another client, which would then be sent on until
// that client is disconnected as a slow consumer; and it cannot acknowledge more than was sent.
func TestAClientCannotAcknowledgeForAnother(t *testing.T) {
	s := NewServer(nil, func(string) (bus.Identity, bool) { return bus.Identity{}, false }, bus.MasterEndpoints, slog.New(slog.DiscardHandler))
	out := &answerer{sent: 10, acked: make(chan struct{}, 1)}
	out.from, out.reply = bus.Identity{Role: bus.RoleClient, Name: "dash"}, "_INBOX.a.b.1"
	s.enter(out)
	ack := func(role bus.Role, name string, sent int64) string {
		return bus.AckSubject(role, name, out.number, sent)
	}
	for _, c := range []struct {
		subject string
		taken   int64
	}{
		{ack(bus.RoleClient, "broken", 5), 0}, {ack(bus.RoleMinion, "dash", 5), 0}, {ack(bus.RoleClient, "dash", 11), 0},
		{ack(bus.RoleClient, "dash", -1), 0}, {bus.AckSubject(bus.RoleClient, "dash", out.number+1, 5), 0}, {"salt.client.dash.ack.z", 0},
		{ack(bus.RoleClient, "dash", 5), 5}, {ack(bus.RoleClient, "dash", 4), 5},
	} {
		if s.confirmed(&nats.Msg{Subject: c.subject}); out.taken != c.taken {
			t.Errorf("after %s %d are taken, want %d", c.subject, out.taken, c.taken)
		}
	}
}
