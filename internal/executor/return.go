package executor

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/returner"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/internal/value"
)

// compound runs the commands of a job with several functions; the return is one dictionary by
// function.
func compound(ctx context.Context, commands []job.Command, run func(job.Command) function.Result) job.Report {
	returns, retcodes, success := map[string]any{}, map[string]any{}, map[string]any{}
	state := job.Done
	var text string
	for _, c := range commands {
		res := run(c)
		one := report(ctx, res)
		name := string(c.Function)
		returns[name], retcodes[name], success[name] = res.Return, res.Retcode, res.Success
		if one.State != job.Done {
			state, text = one.State, one.Text
		}
	}
	return job.Report{State: state, Text: text, Return: value.Value{V: returns}, Retcode: value.Value{V: retcodes}, Success: value.Value{V: success}}
}

// report converts the result of one function.
func report(ctx context.Context, res function.Result) job.Report {
	r := job.Report{State: job.Done, Return: value.Value{V: res.Return}, Retcode: value.Value{V: res.Retcode}, Success: value.Value{V: res.Success}, Out: res.Out}
	if !res.Success {
		r.State = job.Failed
	}
	var k *killed
	if errors.As(context.Cause(ctx), &k) {
		r.State, r.Text = job.Killed, k.Error()
	} else if errors.Is(context.Cause(ctx), ErrStopping) {
		r.State, r.Text = job.Killed, ErrStopping.Error()
	}
	return r
}

// options are the returner settings of a job's caller.
func options(e *job.Envelope) returner.Options {
	settings, _ := e.ReturnKwargs.V.(map[string]any)
	return returner.Options{Tag: e.ReturnTag, Config: e.ReturnConfig, Settings: settings}
}

// giveBack passes the return to the master and to the returners, even if the job was ended.
// Delivered is closed when no master is waited for any more.
func (x *Executor) giveBack(e *job.Envelope, r job.Report, back returner.Set) (delivered <-chan struct{}) {
	ctx := context.WithoutCancel(x.ctx)
	ret := x.asReturn(e, r)
	back.Early(ctx, ret)
	delivered = x.finish(e, r)
	back.Late(ctx, ret)
	return delivered
}

func (x *Executor) asReturn(e *job.Envelope, r job.Report) returner.Return {
	return returner.Return{
		ID: x.ID, JID: e.JID, Fun: e.Fun(), Args: e.Arguments(), Return: r.Return.V, Retcode: r.Retcode.V, Success: r.Success.V,
	}
}

// finish puts the return into the outbox of each system whose masters have sent the job. It returns after
// the outboxes have had a short time to deliver it; delivered is closed when they have, or
// their masters are gone.
func (x *Executor) finish(e *job.Envelope, r job.Report) (delivered <-chan struct{}) {
	var wg sync.WaitGroup
	var left atomic.Bool
	got := map[outbox.Destination]bool{}
	for _, w := range x.origins.End(e.JID) {
		box := x.Boxes.Since(w.Up.Number, w.Generation)
		first := !got[box] // a job that was taken over was sent by two members of a cluster
		got[box] = true
		wg.Go(func() {
			if first && !x.deliver(box, e, r) {
				left.Store(true)
			}
			if e.Live {
				x.show(w, e.JID, r)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if wg.Wait(); !left.Load() {
			x.reserves.Drop(e.JID)
		}
	}()
	timer := time.NewTimer(outbox.Patience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
	return done
}

// deliver puts a return into an outbox. If the master is gone by then, the next
// master gets it, together with what the minion ran. While the outbox cannot
// store it, it stays in its reserved space; false means that it still does when the daemon
// ends.
func (x *Executor) deliver(box outbox.Destination, e *job.Envelope, r job.Report) bool {
	ctx := context.WithoutCancel(x.ctx)
	ret := asSent(e.Commands, r)
	out := outbox.Outgoing{Op: "ret." + string(e.JID), Body: ret, ID: returnName(e.JID)}
	send := func() error { _, err := box.SendWhole(ctx, out); return err }
	if e.Live { // it may stay there for long
		send = func() error { return box.Put(ctx, out) }
	}
	stored, err := x.insist(e.JID, ret, send)
	if err == nil {
		return stored
	}
	x.Log.Error("return not delivered", "jid", e.JID, "err", err)
	// For example, the return is too large: the caller shall not wait for it.
	ret = asSent(e.Commands, report(ctx, function.Result{Return: "ERROR: the return was not delivered: " + err.Error(), Retcode: 1}))
	out.Body, out.ID = ret, out.ID+"/error" // the other name may be that of the return that was refused
	stored, err = x.insist(e.JID, ret, func() error { _, err := box.Send(ctx, out); return err })
	if err != nil {
		x.Log.Error("that error was not delivered either", "jid", e.JID, "err", err)
		return true
	}
	return stored
}

// insist calls send until the outbox has stored a return or refuses it, which is an error. Meanwhile the
// return is kept in its reserved space. stored is false if the daemon ends before. Whatever the
// outbox could not store in time it may have stored nevertheless: sent again under the same name it is
// there once.
func (x *Executor) insist(jid salt.JID, ret protocol.Return, send func() error) (stored bool, err error) {
	for kept := false; ; {
		err := send()
		if err == nil {
			return true, nil
		}
		if isRefused(ret, err) {
			return false, err
		}
		if !kept {
			x.Log.Error("the return of a job waits for space, or for the disk", "jid", jid, "err", err)
			if err := x.reserves.Keep(jid, ret); err != nil {
				x.Log.Error("the return of a job is not kept", "jid", jid, "err", err)
			}
			kept = true
		}
		if !backoff.Sleep(x.ctx, outbox.RetryPause) {
			return false, nil
		}
	}
}

// isRefused reports whether the outbox or the master would refuse a return again.
func isRefused(ret protocol.Return, err error) bool {
	var refused *rpc.Error
	if errors.As(err, &refused) {
		return refused.Code != rpc.Unavailable
	}
	_, wrong := protocol.Encode(ret)
	return wrong != nil
}

// maxLive is the longest return, in bytes, that is told besides. A longer one is shown when the outbox
// sends it.
const maxLive = 64 << 10

// show tells the master a return that it cannot store now, so that it is shown to whoever waits for
// it: those before it in the outbox may be too many to be sent again with it.
func (x *Executor) show(to upstream.Sender, jid salt.JID, r job.Report) {
	s := to.Session()
	if s == nil {
		return
	}
	r.Live = true
	if b, err := json.Marshal(r); err == nil && len(b) <= maxLive {
		x.tell(s, jid, r)
	}
}

// maxSentArguments limits the job's arguments in a return: a master that knows the job has
// them.
const maxSentArguments = 16 << 10

// asSent is a return with the commands. Arguments that are too large are left out.
func asSent(commands []job.Command, r job.Report) protocol.Return {
	if b, err := json.Marshal(commands); err != nil || len(b) > maxSentArguments {
		names := make([]job.Command, len(commands))
		for i, c := range commands {
			names[i].Function = c.Function
		}
		commands = names
	}
	return protocol.Return{Report: r, Commands: commands}
}

// returnName is the id of a job's return in the outbox: after a kill it is not put there twice.
func returnName(jid salt.JID) string { return "job/" + string(jid) }
