package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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

// Returned handles a minion's message about a job. The minion is that of the connection; the
// job must have been sent to it. A return is answered when it is in the journal.
func (d *Dispatcher) Returned(ctx context.Context, r *rpc.Request) error {
	id := salt.MinionID(r.From.Name)
	jid := r.JID
	var rep job.Report
	if err := r.Decode(&rep); err != nil {
		return err
	}
	return relay{d}.said(ctx, said{Minion: id, Key: r.From.Key, JID: jid, Report: r.Body}, rep)
}

// said is a minion's message about a job, also as one member of a cluster passes it to another.
type said struct {
	Minion salt.MinionID   `json:"minion"`
	Key    string          `json:"key"` // the token of the key of its connection
	JID    salt.JID        `json:"jid"`
	Report json.RawMessage `json:"report"`

	term uint64 // of the journal in which it may be stored here; 0 for any
}

// said handles a minion's message about a job, whichever member it is connected to.
func (d relay) said(ctx context.Context, s said, rep job.Report) error {
	id, jid := s.Minion, s.JID
	k, err := d.sentTo(ctx, id, jid)
	if err != nil {
		return err
	}
	if rep.Live {
		return spooling(d).showSaid(s, rep)
	}
	if d.jobs.ownerOf(k) != "" {
		return d.passOn(ctx, k, s, rep)
	}
	if len(rep.Output) > 0 || rep.OutputEnd {
		return d.passOutput(ctx, id, jid, rep)
	}
	if rep.State == job.Unknown {
		if run := d.jobs.running(jid); run != nil {
			run.missed(id, s.Key)
		}
		return nil
	}
	return d.keepSaid(ctx, k, s, rep)
}

// keepSaid handles a minion's message about a job that this master follows, or whose return it
// stores for a member that is gone.
func (d relay) keepSaid(ctx context.Context, k *Job, s said, rep job.Report) error {
	id, jid := s.Minion, s.JID
	if !rep.State.Returned() {
		d.heard(ctx, id, jid, k, rep, nil)
		return nil
	}
	e, err := returnEvent(id, jid, k, rep)
	if err != nil {
		return err
	}
	if run := d.jobs.running(jid); run != nil {
		defer suspend(run, id)()
	}
	p, err := d.Journal.BeginAll(journal.Single(e, returnID(id, jid), s.term))
	if err != nil {
		return err
	}
	if _, err := p.Wait(ctx); err != nil {
		return err
	}
	d.heard(ctx, id, jid, k, rep, largeSeqs(ctx, len(s.Report), p))
	return d.Durable()
}

// largeSeqs returns the sequences of a large return; nil for a small one, and for one that was
// stored before.
func largeSeqs(ctx context.Context, size int, p *journal.Pending) []uint64 {
	if size <= maxInline || p == nil {
		return nil
	}
	seqs, err := p.Sequences(ctx)
	if err != nil {
		return nil // it is passed on as received
	}
	return seqs
}

// heard passes a minion's message to the run of the job. If there is none, for example after a
// restart, one is made if the job is still running.
func (d *Dispatcher) heard(ctx context.Context, id salt.MinionID, jid salt.JID, k *Job, rep job.Report, seqs []uint64) {
	again := d.jobs.note(k, id, rep.State.Returned())
	if rep.State.Returned() && !again {
		clock(d, jid)
		d.Log.Debug("return", "jid", jid, "minion", id, "state", rep.State)
	}
	run := d.jobs.running(jid)
	if run == nil && !again && !(spooling{d}).has(jid) && (rep.State == job.Running || rep.State == job.Received) {
		run = d.adopt(ctx, jid)
	}
	switch {
	case run != nil:
		run.report(id, rep, seqs)
	case rep.State.Final() && !rep.State.Returned():
		_ = d.recordStates(jid, map[string]any{string(id): job.Standing{State: rep.State, Text: rep.Text}.Data()})
	}
}

// clock measures the latency of a return, from the time in its job id.
func clock(d *Dispatcher, jid salt.JID) {
	if d.Latency == nil {
		return
	}
	if began, err := jid.Time(); err == nil {
		d.Latency.Observe(max(0, time.Since(began).Seconds()))
	}
}

// errNobody tells a minion not to send the output of commands.
var errNobody = rpc.Errorf(rpc.NotFound, "nobody follows this job")

// passOutput passes the output of a command to the user who started the job. The minion is
// answered when they have read it, so a slow reader slows it down.
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

// ReadReturn reads a return from an outbox. If another master has sent the job, it is stored as
// a job that the minion ran by itself: it claims no user, and does not affect jobs of this
// master.
func (d *Dispatcher) ReadReturn(ctx context.Context, id salt.MinionID, jid salt.JID, msg outbox.Message) (r outbox.Record, err error) {
	rep, commands, err := readReport(msg)
	if err != nil {
		return r, err
	}
	if _, err := salt.ParseJID(string(jid)); err != nil {
		return r, rpc.Errorf(rpc.Usage, "%v", err)
	}
	k, err := relay{d}.lookupFor(ctx, id, jid)
	switch {
	case err != nil:
		return r, err
	case k == nil && len(commands) > 0:
		return d.readForeign(id, jid, rep, commands)
	}
	if k, err = d.sentTo(ctx, id, jid); err != nil {
		return r, err
	}
	if d.jobs.ownerOf(k) != "" {
		return relay{d}.readElsewhere(ctx, k, said{Minion: id, JID: jid, Report: msg.Body}, rep)
	}
	if rep.State.Returned() {
		if d.Members != nil {
			if d.jobs.hasReturned(k, id) { // it came early, or by another member, which was lost before it has said so
				return r, nil
			}
			r.Also = returnID(id, jid)
		}
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

// StoreEarly implements outbox.Returns.
func (d *Dispatcher) StoreEarly(ctx context.Context, id salt.MinionID, jid salt.JID, msg outbox.Message, term uint64) error {
	rep, _, err := readReport(msg)
	if err == nil && !rep.State.Returned() {
		err = rpc.Errorf(rpc.Usage, "a message without a return")
	}
	if err != nil {
		return err
	}
	k, err := d.sentTo(ctx, id, jid)
	if err != nil {
		return err
	}
	s := said{Minion: id, JID: jid, Report: msg.Body, term: term}
	switch {
	case d.jobs.ownerOf(k) != "":
		if err = (relay{d}).tell(ctx, k, s, rep); errors.Is(err, errHere) {
			err = errUnconfirmed // it has just been taken over
		}
		return err
	case d.jobs.hasReturned(k, id):
		return nil
	}
	return relay{d}.keepSaid(ctx, k, s, rep)
}

// Awaits implements outbox.Returns.
func (d *Dispatcher) Awaits(ctx context.Context, id salt.MinionID, jid salt.JID, ask bool) (awaits, here bool) {
	if d.Members == nil {
		return false, false
	}
	if _, err := salt.ParseJID(string(jid)); err != nil {
		return false, false
	}
	k := d.jobs.find(jid)
	if ask {
		var err error
		// What is not found here may be a job of a member that is gone, so it does not count as invented.
		if k, err = (relay{d}).lookupRunning(ctx, id, jid, "awaits "+string(id)); err != nil {
			return false, false
		}
	}
	if k == nil || !d.jobs.isFor(k, id) {
		return false, false
	}
	if owner := d.jobs.ownerOf(k); owner != "" {
		return slices.Contains(d.Members.Others(), owner), false
	}
	run := d.jobs.running(jid)
	here = run != nil && run.holds() || d.jobs.hasReturned(k, id)
	return here, here
}

// readReport reads a return, see protocol.Return. The returned data is only passed on and not
// decoded, nor are the commands, which a master knows of its own jobs.
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

// maxForeign is how many returns of one minion for jobs of other masters are logged in a
// minute.
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
		return r, nil // for example a refusal, which is for the sender of the job
	}
	e, err := ownReturn(id, jid, commands, rep, "")
	if err != nil {
		return r, rpc.Errorf(rpc.Usage, "%v", err)
	}
	d.throttle.Log(d.Log, slog.LevelInfo, "foreign "+string(id), maxForeign, "return of a job that another master has sent", "minion", id, "jid", jid)
	r.Events = []event.Event{e}
	return r, nil
}

// sentTo returns the job if the minion was sent it, otherwise a refusal.
func (d *Dispatcher) sentTo(ctx context.Context, id salt.MinionID, jid salt.JID) (*Job, error) {
	if _, err := salt.ParseJID(string(jid)); err != nil {
		return nil, rpc.Errorf(rpc.Usage, "%v", err)
	}
	k, err := relay{d}.lookupFor(ctx, id, jid)
	if err != nil {
		return nil, err
	}
	if k != nil && d.jobs.isFor(k, id) && d.jobs.ownerOf(k) == "" {
		return k, relay{d}.confirmed(ctx, k, jid)
	}
	if k == nil || !d.jobs.isFor(k, id) {
		err := rpc.Errorf(rpc.Denied, "job %s was not sent to %s", jid, id)
		if d.Audit.NoteReturn(id, jid, err.Text) {
			d.Log.Warn("return refused: the minion was not sent this job", "minion", id, "jid", jid)
		}
		return nil, err
	}
	return k, nil
}

// returnID is the message id of a return in the journal.
func returnID(id salt.MinionID, jid salt.JID) string {
	return event.Escape(string(id)) + "/ret:" + string(jid) // minions cannot choose names with a colon
}

func returnTag(id salt.MinionID, jid salt.JID) string {
	return "salt/job/" + string(jid) + "/ret/" + string(id)
}

// returnEvent is a return in the form of Salt's salt/job/<jid>/ret/<id>.
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

// newReturn is newEvent for data with a return, which may be long: it is copied only once.
func newReturn(tag string, data map[string]any, rep job.Report) (event.Event, error) {
	const beside = 1 << 10 // size of the other fields, in most cases
	returned, _ := rep.Return.V.(value.Raw)
	e, err := event.NewLong(tag, "", time.Now(), len(returned)+beside, func(b []byte) ([]byte, error) { return value.Append(b, data) })
	if err != nil {
		return e, fmt.Errorf("event %q: %w", tag, err)
	}
	return e, nil
}

// addManner adds how a return is shown, and who ended the job.
func addManner(data map[string]any, rep job.Report) {
	if rep.Out != "" {
		data["out"] = rep.Out
	}
	if rep.State == job.Killed {
		data["killed"] = rep.Text
	}
}

// LocalReturn stores the return of what salt-call ran on a minion.
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
	name := returnID(id, q.JID)
	r.Body, q = nil, protocol.LocalReturn{} // these may be long, and the event has a copy
	_, err = d.Journal.Append(ctx, e, name)
	return err
}

// LocalReturnEvent is the event for such a return.
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

// ownReturn is a return of what a minion ran without this master. Schedule is the name of the
// scheduled job, "" for none.
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
