package client

import (
	"context"
	"errors"
	"testing"

	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/bustest"
)

// TestAPurgeOfAnotherJournalAtAnOlderVersion: a daemon that does not know that other journals can be named removes nothing, since
// no event is before the first one, and the caller learns why.
func TestAPurgeOfAnotherJournalAtAnOlderVersion(t *testing.T) {
	b := bustest.Start(t)
	rules := eventacl.New(func(string, any) {}, b.Log)
	b.Server.Handle("userPurge", func(ctx context.Context, r *rpc.Request) error {
		var q protocol.Purge
		if err := r.Decode(&q); err != nil || q.Before != 1 || q.JournalBefore != 7 {
			t.Errorf("asked for %+v, %v", q, err)
		}
		if err := r.Decide(rules.Purge(ctx, rules.User(0, "root", true), "")); err != nil {
			return err
		}
		return r.Send(ctx, protocol.Purged{})
	})
	if err := b.Server.Start(); err != nil {
		t.Fatal(err)
	}
	user := b.As(t, bus.RoleUser, "")
	c := &Conn{rpc: rpc.NewConn(user.Conn, user.Self)}
	if n, err := c.Purge(t.Context(), PurgeOptions{Journal: "m3", Before: 7}); n != 0 || !errors.Is(err, ErrUsage) {
		t.Errorf("purged %d, %v", n, err)
	}
}
