package runnerjob

import (
	"cmp"
	"context"

	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/salt"
)

// stalled returns why nothing is recorded now: the store cannot be written, or the members of a cluster have no leader.
func (b *booked) stalled() error { return cmp.Or(b.Host.Journal.StoreErr(), b.AuditLog.Stalled()) }

// needsNoRecord reports whether an operator asks for a runner that says what is wrong with the store, and waits for it.
func (b *booked) needsNoRecord() bool {
	return !b.q.Wheel && !b.q.Async && b.who.Operator() && runner.Unrecorded(b.q.Command.Function)
}

// unrecorded runs a permitted runner that needs no record, and of which nothing can be recorded; why is the reason. It causes no
// events and no entry in the audit log, only a line in the log of the master.
func (b *booked) unrecorded(ctx context.Context, why error) error {
	b.Host.Log.Warn("a runner is not recorded, since the store cannot be written", "user", b.who.Name(), "fun", b.q.Command.Function, "err", why)
	if err := b.r.Send(ctx, protocol.RunStart{JID: b.jid, Tag: "salt/run/" + string(b.jid)}); err != nil {
		return err
	}
	long := b.longRead(b.who)
	defer long.sent()
	body, err := runResult(b.runOne(ctx, b.who, b.jid, b.q, salt.Reach{}, long), false).AppendBinary(nil)
	if err != nil {
		return err
	}
	return long.send(ctx, b.r, body)
}
