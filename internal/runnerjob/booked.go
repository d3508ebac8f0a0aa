package runnerjob

import (
	"context"
	"errors"

	"github.com/brinebus/brine/internal/authz"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/salt"
)

// booked is a permitted runner with its entry in the audit log and its events.
type booked struct {
	*Server
	r    *rpc.Request
	q    protocol.Run
	who  authz.Principal
	jid  salt.JID
	p    authz.Permission
	tag  string         // of its events, without their last word
	data map[string]any // of its events
}

// begin records the runner and tells its caller that it starts; begun is false if it does not. Then
// its end is stored if its start was, for example when its caller has gone meanwhile: whoever waits
// for that event would wait for ever.
func (b *booked) begin(ctx context.Context) (begun bool, err error) {
	if why := b.stalled(); why != nil && b.needsNoRecord() { // it does not wait until the members have a leader
		return false, b.unrecorded(ctx, why)
	}
	stored, err := b.record(ctx)
	if err != nil {
		if stored {
			b.tellEnd(ctx, function.Result{}, "the runner is not recorded: "+err.Error())
		}
		if why := b.stalled(); why != nil && b.needsNoRecord() {
			return false, b.unrecorded(ctx, why)
		}
		return false, err
	}
	if err := b.r.Send(ctx, protocol.RunStart{JID: b.jid, Tag: b.tag}); err != nil {
		b.tellEnd(ctx, function.Result{}, "the runner was not started, since nobody could be told its job id: "+err.Error())
		return false, err
	}
	return true, nil
}

// record writes the entry of the runner and stores the event of its start. It reports whether the
// event was stored, also beside an error. A caller who goes does not interrupt that, since then nobody would know.
func (b *booked) record(ctx context.Context) (stored bool, err error) {
	store := func() error {
		_, err := b.Events.Store(context.WithoutCancel(ctx), b.tag+"/new", b.data, "")
		stored = err == nil
		return err
	}
	if !b.q.Wheel && b.q.Command.Function == "audit.repair" && b.AuditLog.Damaged() {
		err = b.Authz.Unwritten(store()) // its own entry, with the user, must be the first
	} else {
		err = b.Authz.Book(ctx, b.p, b.jid, store)
	}
	return stored, err
}

// run runs it and sends its answer to the caller.
func (b *booked) run(ctx context.Context) error {
	long := b.longRead(b.who)
	defer long.sent()
	res := b.runOne(ctx, b.who, b.jid, b.q, b.p.Reach(), long)
	body, err := runResult(res, b.q.Wheel).AppendBinary(nil)
	shown := runner.Shown(b.q.Command.Function, res.Return)
	if int64(len(body)) > b.MaxEventSize {
		// The caller of the runner has it. In the journal, repeated reads of large data would
		// fill it, and delay everybody. The return of a runner that nobody waits for is only
		// there, so it is stored whole.
		shown = job.Trimmed
	}
	b.tellEnd(ctx, res, shown)
	if err != nil {
		return err
	}
	return long.send(ctx, b.r, body)
}

// runUnwatched runs it without a caller who waits for it.
func (b *booked) runUnwatched(ctx context.Context) {
	long := b.longRead(b.who)
	defer long.sent()
	res := b.runOne(ctx, b.who, b.jid, b.q, b.p.Reach(), long)
	b.tellEnd(ctx, res, runner.Shown(b.q.Command.Function, res.Return))
}

// tellEnd stores the event of its end.
func (b *booked) tellEnd(ctx context.Context, res function.Result, shown any) {
	b.data["return"], b.data["success"] = shown, res.Success
	if _, err := b.Events.Store(context.WithoutCancel(ctx), b.tag+"/ret", b.data, ""); err != nil && !errors.Is(err, context.Canceled) {
		b.Host.Log.Error("runner's return not stored", "tag", b.tag, "fun", b.data["fun"], "err", err)
	}
}
