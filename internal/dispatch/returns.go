package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// Returned takes what a minion says of a job. The minion is the one of the
// connection; the job must be one that it was sent. The answer to a return comes
// when it is in the journal.
func (d *Dispatcher) Returned(ctx context.Context, r *rpc.Request) error {
	id := salt.MinionID(r.From.Name)
	jid := r.JID
	var rep job.Report
	if err := r.Decode(&rep); err != nil {
		return err
	}
	k, err := d.sentTo(ctx, id, jid)
	if err != nil {
		return err
	}
	if len(rep.Output) > 0 || rep.OutputEnd {
		return d.passOutput(ctx, id, jid, rep)
	}
	if rep.State == job.Unknown {
		if run := d.jobs.running(jid); run != nil {
			run.missed(id, r.From.Key)
		}
		return nil
	}
	if !rep.State.Returned() {
		d.heard(ctx, id, jid, k, rep, nil)
		return nil
	}
	e, err := returnEvent(id, jid, k, rep)
	if err != nil {
		return err
	}
	p, err := d.Journal.Begin(e, returnID(id, jid))
	if err != nil {
		return err
	}
	if _, err := p.Wait(ctx); err != nil {
		return err
	}
	d.heard(ctx, id, jid, k, rep, largeSeqs(ctx, len(r.Body), p))
	return d.Durable()
}

// largeSeqs is where a large return lies; nil for a small one, and for one whose
// pieces were stored before.
func largeSeqs(ctx context.Context, size int, p *journal.Pending) []uint64 {
	if size <= maxInline || p == nil {
		return nil
	}
	seqs, err := p.Sequences(ctx)
	if err != nil {
		return nil // it is passed on as it came
	}
	return seqs
}

// heard tells the run of a job what a minion said. Of a job without a run,
// as after a restart of the master, one is made when it is still running.
func (d *Dispatcher) heard(ctx context.Context, id salt.MinionID, jid salt.JID, k *Job, rep job.Report, seqs []uint64) {
	again := d.jobs.note(k, id, rep.State.Returned())
	if rep.State.Returned() && !again {
		d.clock(jid)
		d.Log.Debug("return", "jid", jid, "minion", id, "state", rep.State)
	}
	run := d.jobs.running(jid)
	if run == nil && !again && (rep.State == job.Running || rep.State == job.Received) {
		run = d.adopt(ctx, jid)
	}
	switch {
	case run != nil:
		run.report(id, rep, seqs)
	case rep.State.Final() && !rep.State.Returned():
		d.recordStates(jid, map[string]any{string(id): job.Standing{State: rep.State, Text: rep.Text}.Data()})
	}
}

// clock tells how long a return took, by the moment that is in the id of its job.
func (d *Dispatcher) clock(jid salt.JID) {
	if d.Latency == nil {
		return
	}
	if began, err := jid.Time(); err == nil {
		d.Latency.Observe(max(0, time.Since(began).Seconds()))
	}
}

// errNobody tells a minion to keep to itself what its commands write.
var errNobody = rpc.Errorf(rpc.NotFound, "nobody follows this job")

// passOutput hands what a command has written to whoever started the job. The
// minion is answered when that has taken it, so a slow reader slows it down.
func (d *Dispatcher) passOutput(ctx context.Context, id salt.MinionID, jid salt.JID, rep job.Report) error {
	run := d.jobs.running(jid)
	if run == nil {
		return errNobody
	}
	run.report(id, job.Report{State: job.Running}, nil)
	followed := false
	for _, send := range run.outputs() {
		if err := send(ctx, job.Update{ID: id, Report: job.Report{State: job.Running, Output: rep.Output, OutputEnd: rep.OutputEnd}}); err == nil {
			followed = true
		}
	}
	if !followed {
		return errNobody
	}
	return nil
}

// ReadReturn reads a return that has waited in an outbox. One of a job that this master
// does not know, since another one has sent it, is kept as what the minion ran by
// itself: it speaks for nobody else, and no job of this master is touched.
func (d *Dispatcher) ReadReturn(ctx context.Context, id salt.MinionID, jid salt.JID, msg outbox.Message) (r outbox.Record, err error) {
	rep, commands, err := readReport(msg)
	if err != nil {
		return r, err
	}
	if _, err := salt.ParseJID(string(jid)); err != nil {
		return r, rpc.Errorf(rpc.Usage, "%v", err)
	}
	k, err := d.Lookup(ctx, jid)
	switch {
	case err != nil:
		return r, err
	case k == nil && len(commands) > 0:
		return d.readForeign(id, jid, rep, commands)
	}
	if k, err = d.sentTo(ctx, id, jid); err != nil {
		return r, err
	}
	if rep.State.Returned() {
		e, err := returnEvent(id, jid, k, rep)
		if err != nil {
			return r, rpc.Errorf(rpc.Usage, "%v", err)
		}
		r.Events = []event.Event{e}
	}
	r.After = func(p *journal.Pending) {
		d.heard(ctx, id, jid, k, rep, largeSeqs(ctx, len(msg.Body), p))
	}
	return r, nil
}

// readReport reads a return, see protocol.Return. What was returned is only passed on,
// and so not decoded; nor is what was run, which a master knows of its own jobs.
func readReport(msg outbox.Message) (rep job.Report, commands []byte, err error) {
	rep, err = job.ReadReport(msg.Body, func(key string, v []byte) error {
		if key == "commands" {
			commands = v
		}
		return nil
	})
	if err != nil {
		return rep, nil, rpc.Errorf(rpc.Usage, "unreadable message %s: %v", msg.Op, err)
	}
	return rep, commands, nil
}

// maxForeign is how many returns of one minion are in the log in a minute that nobody here has asked for.
const maxForeign = 20

func (d *Dispatcher) readForeign(id salt.MinionID, jid salt.JID, rep job.Report, ran []byte) (r outbox.Record, err error) {
	if err := rpc.CheckBuilt(ran); err != nil {
		return r, err
	}
	var commands []job.Command
	if err := json.Unmarshal(ran, &commands); err != nil || len(commands) == 0 {
		return r, rpc.Errorf(rpc.Usage, "unreadable commands of a return: %v", err)
	}
	if !rep.State.Returned() {
		return r, nil // a refusal, say, which is for the one who has sent the job
	}
	e, err := ownReturn(id, jid, commands, rep, "")
	if err != nil {
		return r, rpc.Errorf(rpc.Usage, "%v", err)
	}
	d.throttle.Log(d.Log, slog.LevelInfo, "foreign "+string(id), maxForeign, "return of a job that another master has sent", "minion", id, "jid", jid)
	r.Events = []event.Event{e}
	return r, nil
}

// sentTo returns what is known of a job that the minion was sent; for every other
// job it is refused.
func (d *Dispatcher) sentTo(ctx context.Context, id salt.MinionID, jid salt.JID) (*Job, error) {
	if _, err := salt.ParseJID(string(jid)); err != nil {
		return nil, rpc.Errorf(rpc.Usage, "%v", err)
	}
	k, err := d.Lookup(ctx, jid)
	if err != nil {
		return nil, err
	}
	if k == nil || !k.minions[id] {
		err := rpc.Errorf(rpc.Denied, "job %s was not sent to %s", jid, id)
		if d.Audit.NoteReturn(id, jid, err.Text) {
			d.Log.Warn("return refused: the minion was not sent this job", "minion", id, "jid", jid)
		}
		return nil, err
	}
	return k, nil
}

// returnID names a return in the journal.
func returnID(id salt.MinionID, jid salt.JID) string {
	return event.Escape(string(id)) + "/ret:" + string(jid) // no name that a minion gives has a colon
}

func returnTag(id salt.MinionID, jid salt.JID) string {
	return "salt/job/" + string(jid) + "/ret/" + string(id)
}

// returnEvent is a return in the shape of Salt's salt/job/<jid>/ret/<id>.
func returnEvent(id salt.MinionID, jid salt.JID, k *Job, rep job.Report) (event.Event, error) {
	data := map[string]any{
		"cmd": "_return", "id": string(id), "jid": string(jid), "fun": k.fun, "fun_args": k.args, "user": k.User,
		"return": rep.Return, "retcode": rep.Retcode, "success": rep.Success,
	}
	addManner(data, rep)
	if k.metadata != nil {
		data["metadata"] = k.metadata
	}
	return newReturn(returnTag(id, jid), data, rep)
}

// newReturn is newEvent for data that holds a return, which may be long: it is copied once.
func newReturn(tag string, data map[string]any, rep job.Report) (event.Event, error) {
	const beside = 1 << 10 // what it has beside, mostly
	returned, _ := rep.Return.V.(value.Raw)
	e, err := event.NewLong(tag, "", time.Now(), len(returned)+beside, func(b []byte) ([]byte, error) { return value.Append(b, data) })
	if err != nil {
		return e, fmt.Errorf("event %q: %w", tag, err)
	}
	return e, nil
}

// addManner adds how a return is shown, and who ended what returned it.
func addManner(data map[string]any, rep job.Report) {
	if rep.Out != "" {
		data["out"] = rep.Out
	}
	if rep.State == job.Killed {
		data["killed"] = rep.Text
	}
}

// LocalReturn takes what salt-call ran on a minion by itself.
func (d *Dispatcher) LocalReturn(ctx context.Context, r *rpc.Request) error {
	var q protocol.LocalReturn
	if err := r.Decode(&q); err != nil {
		return err
	}
	id := salt.MinionID(r.From.Name)
	e, err := d.LocalReturnEvent(ctx, id, q)
	if err != nil {
		return err
	}
	_, err = d.Journal.Append(ctx, e, returnID(id, q.JID))
	return err
}

// LocalReturnEvent is the event of such a return.
func (d *Dispatcher) LocalReturnEvent(ctx context.Context, id salt.MinionID, q protocol.LocalReturn) (event.Event, error) {
	jid, err := salt.ParseJID(string(q.JID))
	if err != nil {
		return event.Event{}, rpc.Errorf(rpc.Usage, "%v", err)
	}
	if k, err := d.Lookup(ctx, jid); err != nil || k != nil {
		if err != nil {
			return event.Event{}, err
		}
		return event.Event{}, rpc.Errorf(rpc.Denied, "job %s was started by the master", jid)
	}
	return ownReturn(id, jid, []job.Command{q.Command}, q.Report, q.Schedule)
}

// ownReturn is a return of what a minion ran without this master. Schedule names the
// scheduled job that it was, "" for none.
func ownReturn(id salt.MinionID, jid salt.JID, commands []job.Command, r job.Report, schedule string) (event.Event, error) {
	e := &job.Envelope{Commands: commands}
	data := map[string]any{
		"cmd": "_return", "id": string(id), "jid": string(jid), "fun": e.Fun(), "fun_args": e.Arguments(), "arg": e.Arguments(),
		"tgt": string(id), "tgt_type": "glob", "return": r.Return, "retcode": r.Retcode, "success": r.Success,
	}
	addManner(data, r)
	if schedule != "" {
		data["schedule"] = schedule
	}
	return newReturn(returnTag(id, jid), data, r)
}
