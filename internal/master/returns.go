package master

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"brine/internal/bus"
	"brine/internal/event"
	"brine/internal/job"
	"brine/internal/protocol"
	"brine/internal/salt"
	"brine/internal/value"
)

// maxKnown is how many jobs are remembered in memory, so that a return need not
// be looked up in the journal.
const maxKnown = 4096

// known is what the master must know of a job to take a return for it.
type known struct {
	minions map[salt.MinionID]bool
	fun     any
	args    any
	user    string
}

// jobs are the jobs that the master has in memory.
type jobs struct {
	mu      sync.Mutex
	running map[salt.JID]*running
	known   map[salt.JID]*known
	order   []salt.JID
}

func newJobs() *jobs {
	return &jobs{running: map[salt.JID]*running{}, known: map[salt.JID]*known{}}
}

func (j *jobs) add(e *job.Envelope, start job.Start, timeout time.Duration, now time.Time) *running {
	ids := append(append([]salt.MinionID{}, start.Minions...), start.Missing...)
	r := &running{start: start, tracker: job.NewTracker(ids, timeout, now), wake: make(chan struct{}, 1)}
	k := &known{minions: make(map[salt.MinionID]bool, len(start.Minions)), fun: e.Fun(), args: eventArgs(e), user: e.User}
	for _, id := range start.Minions {
		k.minions[id] = true
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.running[e.JID] = r
	j.remember(e.JID, k)
	return r
}

func (j *jobs) remember(jid salt.JID, k *known) {
	if j.known[jid] == nil {
		j.order = append(j.order, jid)
	}
	j.known[jid] = k
	for len(j.order) > maxKnown {
		delete(j.known, j.order[0])
		j.order = j.order[1:]
	}
}

// forget ends the interest in a job's course. Returns are still taken.
func (j *jobs) forget(r *running) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.running, r.start.JID)
}

func (j *jobs) feed(jid salt.JID, in input) {
	j.mu.Lock()
	r := j.running[jid]
	j.mu.Unlock()
	if r != nil {
		r.feed(in)
	}
}

// lost tells every job that a minion's connection has ended.
func (j *jobs) lost(id salt.MinionID) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for jid, r := range j.running {
		if k := j.known[jid]; k == nil || k.minions[id] {
			r.feed(input{id: id, lost: true})
		}
	}
}

func (j *jobs) find(jid salt.JID) *known {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.known[jid]
}

// returned takes what a minion says of a job. The minion is the one of the
// connection; the job must be one that it was sent. The answer to a return comes
// when it is in the journal.
func (m *Master) returned(ctx context.Context, r *bus.Request) error {
	id := salt.MinionID(r.From.Name)
	jid := r.JID
	var rep job.Report
	if err := r.Decode(&rep); err != nil {
		return err
	}
	k, err := m.sentTo(ctx, id, jid)
	if err != nil {
		return err
	}
	if rep.State.Returned() {
		e, err := returnEvent(id, jid, k, rep)
		if err != nil {
			return err
		}
		if _, err := m.journal.Append(ctx, e, returnID(id, jid)); err != nil {
			return err
		}
	}
	m.jobs.feed(jid, input{id: id, report: &rep})
	return nil
}

// readReturn reads a return that comes as a letter.
func (m *Master) readReturn(ctx context.Context, id salt.MinionID, jid salt.JID, l protocol.Letter, p *post) error {
	var rep job.Report
	if err := decode(l, &rep); err != nil {
		return err
	}
	k, err := m.sentTo(ctx, id, jid)
	if err != nil {
		return err
	}
	if rep.State.Returned() {
		e, err := returnEvent(id, jid, k, rep)
		if err != nil {
			return bus.Errorf(bus.Usage, "%v", err)
		}
		p.events = []event.Event{e}
	}
	p.after = func() { m.jobs.feed(jid, input{id: id, report: &rep}) }
	return nil
}

// sentTo returns what is known of a job that the minion was sent; for every other
// job it is refused.
func (m *Master) sentTo(ctx context.Context, id salt.MinionID, jid salt.JID) (*known, error) {
	if _, err := salt.ParseJID(string(jid)); err != nil {
		return nil, bus.Errorf(bus.Usage, "%v", err)
	}
	k, err := m.lookup(ctx, jid)
	if err != nil {
		return nil, err
	}
	if k == nil || !k.minions[id] {
		m.log.Warn("return refused: the minion was not sent this job", "minion", id, "jid", jid)
		return nil, bus.Errorf(bus.Denied, "job %s was not sent to %s", jid, id)
	}
	return k, nil
}

// returnID names a return in the journal.
func returnID(id salt.MinionID, jid salt.JID) string {
	return "ret/" + event.Escape(string(id)) + "/" + string(jid)
}

func returnTag(id salt.MinionID, jid salt.JID) string {
	return "salt/job/" + string(jid) + "/ret/" + string(id)
}

// returnEvent is a return in the shape of Salt's salt/job/<jid>/ret/<id>.
func returnEvent(id salt.MinionID, jid salt.JID, k *known, rep job.Report) (event.Event, error) {
	data := map[string]any{
		"cmd": "_return", "id": string(id), "jid": string(jid), "fun": k.fun, "fun_args": k.args, "user": k.user,
		"return": rep.Return, "retcode": rep.Retcode, "success": rep.Success,
	}
	if rep.Out != "" {
		data["out"] = rep.Out
	}
	if rep.State == job.Killed {
		data["killed"] = rep.Text
	}
	return newEvent(returnTag(id, jid), data, "")
}

// newEvent makes an event of the master itself, or of a verified sender.
func newEvent(tag string, data any, from string) (event.Event, error) {
	raw, err := value.Encode(data)
	if err != nil {
		return event.Event{}, fmt.Errorf("event %q: %w", tag, err)
	}
	return event.New(tag, raw, from, time.Now())
}

// lookup returns what is known of a job, from memory or the journal; nil for a
// job that there is not.
func (m *Master) lookup(ctx context.Context, jid salt.JID) (*known, error) {
	if k := m.jobs.find(jid); k != nil {
		return k, nil
	}
	e, ok, err := m.journal.First(ctx, event.JobSubject(jid, "new"))
	if err != nil || !ok {
		return nil, err
	}
	var load struct {
		Minions []salt.MinionID `json:"minions"`
		Fun     any             `json:"fun"`
		Arg     json.RawMessage `json:"arg"`
		User    string          `json:"user"`
	}
	if err := json.Unmarshal(e.Data, &load); err != nil {
		return nil, err
	}
	k := &known{minions: make(map[salt.MinionID]bool, len(load.Minions)), fun: load.Fun, args: load.Arg, user: load.User}
	for _, id := range load.Minions {
		k.minions[id] = true
	}
	m.jobs.mu.Lock()
	defer m.jobs.mu.Unlock()
	m.jobs.remember(jid, k)
	return k, nil
}

// localReturn takes what salt-call ran on a minion by itself.
func (m *Master) localReturn(ctx context.Context, r *bus.Request) error {
	var q protocol.LocalReturn
	if err := r.Decode(&q); err != nil {
		return err
	}
	id := salt.MinionID(r.From.Name)
	e, err := m.localReturnEvent(ctx, id, q)
	if err != nil {
		return err
	}
	_, err = m.journal.Append(ctx, e, returnID(id, q.JID))
	return err
}

func (m *Master) localReturnEvent(ctx context.Context, id salt.MinionID, q protocol.LocalReturn) (event.Event, error) {
	jid, err := salt.ParseJID(string(q.JID))
	if err != nil {
		return event.Event{}, bus.Errorf(bus.Usage, "%v", err)
	}
	if k, err := m.lookup(ctx, jid); err != nil || k != nil {
		if err != nil {
			return event.Event{}, err
		}
		return event.Event{}, bus.Errorf(bus.Denied, "job %s was started by the master", jid)
	}
	e := &job.Envelope{Commands: []job.Command{q.Command}}
	data := map[string]any{
		"cmd": "_return", "id": string(id), "jid": string(jid), "fun": e.Fun(), "fun_args": eventArgs(e), "arg": eventArgs(e),
		"tgt": string(id), "tgt_type": "glob", "return": q.Return, "retcode": q.Retcode, "success": q.Success,
	}
	if q.Schedule != "" {
		data["schedule"] = q.Schedule
	}
	return newEvent(returnTag(id, jid), data, "")
}
