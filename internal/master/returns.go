package master

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// maxKnown is how many jobs are remembered in memory, so that a return need not
// be looked up in the journal.
const maxKnown = 4096

// known is what the master must know of a job to take a return for it.
type known struct {
	minions  map[salt.MinionID]bool
	fun      any
	args     any
	user     string
	backend  string // by which the user was authenticated; "" for one of this machine
	metadata any
	returned map[salt.MinionID]bool // guarded by jobs; what came before a restart is not in it
}

func knownOf(p *plan) *known {
	e := &p.Envelope
	k := &known{minions: make(map[salt.MinionID]bool, len(p.Start.Minions)), fun: e.Fun(), args: eventArgs(e), user: e.User, backend: p.Backend, metadata: p.Metadata}
	for _, id := range p.Start.Minions {
		k.minions[id] = true
	}
	return k
}

// jobs are the jobs that the master has in memory.
type jobs struct {
	adopting sync.Mutex // one job at a time is made anew from the journal

	mu      sync.Mutex
	running map[salt.JID]*course
	known   map[salt.JID]*known
	order   []salt.JID
}

func newJobs() *jobs {
	return &jobs{running: map[salt.JID]*course{}, known: map[salt.JID]*known{}}
}

func (j *jobs) add(c *course) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.running[c.plan.Start.JID] = c
	j.remember(c.plan.Start.JID, c.known)
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

// forget drops a job of which nothing more is expected. Returns are still taken.
func (j *jobs) forget(c *course) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.running, c.plan.Start.JID)
}

// course returns the course of a job, nil where nothing more is expected of it.
func (j *jobs) course(jid salt.JID) *course {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.running[jid]
}

// all returns the courses, the oldest first.
func (j *jobs) all() []*course {
	j.mu.Lock()
	defer j.mu.Unlock()
	list := slices.Collect(maps.Values(j.running))
	slices.SortFunc(list, func(a, b *course) int { return strings.Compare(string(a.plan.Start.JID), string(b.plan.Start.JID)) })
	return list
}

// waiting is how many jobs may wait for minions that are away.
func (j *jobs) waiting() (n int) {
	for _, c := range j.all() {
		if !c.plan.Until.IsZero() {
			n++
		}
	}
	return n
}

// lost tells every job of a minion that its connection has ended.
func (j *jobs) lost(id salt.MinionID) {
	for _, c := range j.all() {
		if c.known.minions[id] {
			c.lost(id)
		}
	}
}

// open returns the jobs that a minion was sent and of which something is expected.
func (j *jobs) open(id salt.MinionID) (list []salt.JID) {
	for _, c := range j.all() {
		if c.known.minions[id] && c.open(id) {
			list = append(list, c.plan.Start.JID)
		}
	}
	return list
}

// back tells every job that waits for a minion that it is there.
func (j *jobs) back(id salt.MinionID, key string) {
	for _, c := range j.all() {
		if !c.plan.Until.IsZero() {
			c.back(id, key)
		}
	}
}

// note notes that a minion has returned; again says that it had before.
func (j *jobs) note(k *known, id salt.MinionID, returned bool) (again bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if again = k.returned[id]; returned && !again {
		if k.returned == nil {
			k.returned = map[salt.MinionID]bool{}
		}
		k.returned[id] = true
	}
	return again
}

func (j *jobs) find(jid salt.JID) *known {
	j.mu.Lock()
	defer j.mu.Unlock()
	if c := j.running[jid]; c != nil {
		return c.known
	}
	return j.known[jid]
}

// returned takes what a minion says of a job. The minion is the one of the
// connection; the job must be one that it was sent. The answer to a return comes
// when it is in the journal.
func (m *Master) returned(ctx context.Context, r *rpc.Request) error {
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
	if len(rep.Output) > 0 || rep.OutputEnd {
		return m.passOutput(ctx, id, jid, rep)
	}
	if rep.State == job.Unknown {
		if c := m.jobs.course(jid); c != nil {
			c.missed(id, r.From.Key)
		}
		return nil
	}
	if !rep.State.Returned() {
		m.heard(ctx, id, jid, k, rep, nil)
		return nil
	}
	e, err := returnEvent(id, jid, k, rep)
	if err != nil {
		return err
	}
	p, err := m.journal.Begin(e, returnID(id, jid))
	if err != nil {
		return err
	}
	if _, err := p.Wait(ctx); err != nil {
		return err
	}
	m.heard(ctx, id, jid, k, rep, largePlaces(ctx, len(r.Body), p))
	return m.durable()
}

// largePlaces is where a large return lies; nil for a small one, and for one whose
// pieces were stored before.
func largePlaces(ctx context.Context, size int, p *journal.Pending) []uint64 {
	if size <= maxInline || p == nil {
		return nil
	}
	places, err := p.Places(ctx)
	if err != nil {
		return nil // it is passed on as it came
	}
	return places
}

// heard tells the course of a job what a minion said. Of a job without a course,
// as after a restart of the master, one is made when it is still running.
func (m *Master) heard(ctx context.Context, id salt.MinionID, jid salt.JID, k *known, rep job.Report, places []uint64) {
	again := m.jobs.note(k, id, rep.State.Returned())
	c := m.jobs.course(jid)
	if c == nil && !again && (rep.State == job.Running || rep.State == job.Received) {
		c = m.adopt(ctx, jid)
	}
	switch {
	case c != nil:
		c.report(id, rep, places)
	case rep.State.Final() && !rep.State.Returned():
		m.recordStates(jid, map[string]any{string(id): job.Standing{State: rep.State, Text: rep.Text}.Data()})
	}
}

// errNobody tells a minion to keep to itself what its commands write.
var errNobody = rpc.Errorf(rpc.NotFound, "nobody follows this job")

// passOutput hands what a command has written to whoever started the job. The
// minion is answered when that has taken it, so a slow reader slows it down.
func (m *Master) passOutput(ctx context.Context, id salt.MinionID, jid salt.JID, rep job.Report) error {
	c := m.jobs.course(jid)
	if c == nil {
		return errNobody
	}
	c.report(id, job.Report{State: job.Running}, nil)
	followed := false
	for _, send := range c.outputs() {
		if err := send(ctx, job.Update{ID: id, Report: job.Report{State: job.Running, Output: rep.Output, OutputEnd: rep.OutputEnd}}); err == nil {
			followed = true
		}
	}
	if !followed {
		return errNobody
	}
	return nil
}

// readReturn reads a return that has waited in an outbox. One of a job that this master
// does not know, since another one has sent it, is kept as what the minion ran by
// itself: it speaks for nobody else, and no job of this master is touched.
func (m *Master) readReturn(ctx context.Context, id salt.MinionID, jid salt.JID, msg outbox.Message) (r outbox.Record, err error) {
	rep, commands, err := readReport(msg)
	if err != nil {
		return r, err
	}
	if _, err := salt.ParseJID(string(jid)); err != nil {
		return r, rpc.Errorf(rpc.Usage, "%v", err)
	}
	k, err := m.lookup(ctx, jid)
	switch {
	case err != nil:
		return r, err
	case k == nil && len(commands) > 0:
		return m.readForeign(id, jid, rep, commands)
	}
	if k, err = m.sentTo(ctx, id, jid); err != nil {
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
		m.heard(ctx, id, jid, k, rep, largePlaces(ctx, len(msg.Body), p))
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
		return rep, nil, unreadable(msg, err)
	}
	return rep, commands, nil
}

func (m *Master) readForeign(id salt.MinionID, jid salt.JID, rep job.Report, ran []byte) (r outbox.Record, err error) {
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
	m.log.Info("return of a job that another master has sent", "minion", id, "jid", jid)
	r.Events = []event.Event{e}
	return r, nil
}

// sentTo returns what is known of a job that the minion was sent; for every other
// job it is refused.
func (m *Master) sentTo(ctx context.Context, id salt.MinionID, jid salt.JID) (*known, error) {
	if _, err := salt.ParseJID(string(jid)); err != nil {
		return nil, rpc.Errorf(rpc.Usage, "%v", err)
	}
	k, err := m.lookup(ctx, jid)
	if err != nil {
		return nil, err
	}
	if k == nil || !k.minions[id] {
		err := rpc.Errorf(rpc.Denied, "job %s was not sent to %s", jid, id)
		if m.trail.Note(audit.Entry{Kind: audit.Return, Who: audit.Who{Minion: string(id)}, JID: jid, Reason: err.Text}) {
			m.log.Warn("return refused: the minion was not sent this job", "minion", id, "jid", jid)
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
func returnEvent(id salt.MinionID, jid salt.JID, k *known, rep job.Report) (event.Event, error) {
	data := map[string]any{
		"cmd": "_return", "id": string(id), "jid": string(jid), "fun": k.fun, "fun_args": k.args, "user": k.user,
		"return": rep.Return, "retcode": rep.Retcode, "success": rep.Success,
	}
	addManner(data, rep)
	if k.metadata != nil {
		data["metadata"] = k.metadata
	}
	return newEvent(returnTag(id, jid), data, "")
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
		Backend string          `json:"eauth"`
		Meta    value.Value     `json:"metadata"`
	}
	if err := json.Unmarshal(e.Data, &load); err != nil {
		return nil, err
	}
	k := &known{minions: make(map[salt.MinionID]bool, len(load.Minions)), fun: load.Fun, args: load.Arg, user: load.User, backend: load.Backend, metadata: load.Meta.V}
	for _, id := range load.Minions {
		k.minions[id] = true
	}
	m.jobs.mu.Lock()
	defer m.jobs.mu.Unlock()
	m.jobs.remember(jid, k)
	return k, nil
}

// localReturn takes what salt-call ran on a minion by itself.
func (m *Master) localReturn(ctx context.Context, r *rpc.Request) error {
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
		return event.Event{}, rpc.Errorf(rpc.Usage, "%v", err)
	}
	if k, err := m.lookup(ctx, jid); err != nil || k != nil {
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
		"cmd": "_return", "id": string(id), "jid": string(jid), "fun": e.Fun(), "fun_args": eventArgs(e), "arg": eventArgs(e),
		"tgt": string(id), "tgt_type": "glob", "return": r.Return, "retcode": r.Retcode, "success": r.Success,
	}
	addManner(data, r)
	if schedule != "" {
		data["schedule"] = schedule
	}
	return newEvent(returnTag(id, jid), data, "")
}
