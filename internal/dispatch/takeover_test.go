package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/lease"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/clustertest"
)

// crew are minions that run jobs: each job once, until they are told to finish it.
type crew struct {
	mu      sync.Mutex
	workers map[string]*worker
	ran     map[string]int // how often each has begun the job
	busy    map[string]bool
	most    int // how many were busy at a time
}

// worker is one of them.
type worker struct {
	id      string
	crew    *crew
	finish  chan struct{}
	ended   sync.WaitGroup
	listens sync.WaitGroup

	mu   sync.Mutex
	at   *minion
	seen map[salt.JID]bool
}

func newCrew() *crew {
	return &crew{workers: map[string]*worker{}, ran: map[string]int{}, busy: map[string]bool{}}
}

// hire connects a minion to a member.
func (c *crew) hire(t *testing.T, n *node, ids ...string) {
	t.Helper()
	for _, id := range ids {
		w := &worker{id: id, crew: c, finish: make(chan struct{}, 1), seen: map[salt.JID]bool{}}
		c.workers[id] = w
		t.Cleanup(w.ended.Wait)
		t.Cleanup(func() { close(w.finish) })
		t.Cleanup(w.listens.Wait) // what it begins would be waited for already
		w.connect(t, n)
	}
}

// connect connects it, in place of an earlier connection, and answers what it is asked.
func (w *worker) connect(t *testing.T, n *node) {
	t.Helper()
	m := n.arrive(t, w.id)
	w.mu.Lock()
	if w.at != nil {
		w.at.Close()
	}
	w.at = m
	w.mu.Unlock()
	for _, jid := range m.asks {
		if !w.again(t, jid) {
			_ = m.says(t, jid, job.Report{State: job.Unknown})
		}
	}
	w.listens.Go(func() {
		for {
			select {
			case e := <-m.jobs:
				if !w.again(t, e.JID) {
					w.begin(t, e.JID)
				}
			case <-t.Context().Done():
				return
			}
		}
	})
}

// again answers for a job that has come before.
func (w *worker) again(t *testing.T, jid salt.JID) bool {
	w.mu.Lock()
	m, seen := w.at, w.seen[jid]
	w.mu.Unlock()
	if seen {
		state := job.Received
		if w.crew.isBusy(w.id) {
			state = job.Running
		}
		_ = m.says(t, jid, job.Report{State: state, Text: "it came before"})
	}
	return seen
}

func (w *worker) begin(t *testing.T, jid salt.JID) {
	w.mu.Lock()
	w.seen[jid] = true
	w.mu.Unlock()
	c := w.crew
	c.mu.Lock()
	c.ran[w.id]++
	c.busy[w.id] = true
	c.most = max(c.most, len(c.busy))
	c.mu.Unlock()
	w.ended.Go(func() {
		heartbeat := time.NewTicker(2 * time.Second) // it says that it runs, as a minion does
		defer heartbeat.Stop()
		for sent := false; ; sent = true {
			if m := w.there(); !sent || m != nil {
				_ = m.says(t, jid, job.Report{State: job.Running})
			}
			select {
			case <-heartbeat.C:
				continue
			case <-w.finish:
			}
			break
		}
		c.mu.Lock()
		delete(c.busy, w.id)
		c.mu.Unlock()
		w.deliver(t, jid)
	})
}

func (w *worker) there() *minion {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at
}

// deliver returns the job, again and again until it is stored, as an outbox does.
func (w *worker) deliver(t *testing.T, jid salt.JID) {
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline) && t.Context().Err() == nil; time.Sleep(50 * time.Millisecond) { // as a minion waits
		err := w.there().says(t, jid, done("by "+w.id))
		if err == nil {
			return
		}
		if code := rpc.CodeOf(err); code == rpc.Denied || code == rpc.Usage || code == rpc.NotFound {
			t.Errorf("the return of %s is refused: %v", w.id, err)
			return
		}
	}
}

func (c *crew) isBusy(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.busy[id]
}

// working returns the busy ones, in order.
func (c *crew) working() (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.busy {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// await waits until exactly these are busy.
func (c *crew) await(t *testing.T, ids ...string) {
	t.Helper()
	bustest.Until(t, fmt.Sprint("busy are ", ids, ", and not ", c.working()), func() bool { return slices.Equal(c.working(), ids) })
}

func (c *crew) finishes(id string) { c.workers[id].finish <- struct{}{} }

// onlyOnce checks that each of them ran the job once, and no more than most at a time.
func (c *crew) onlyOnce(t *testing.T, most int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.workers {
		if c.ran[id] != 1 {
			t.Errorf("%s ran the job %d times", id, c.ran[id])
		}
	}
	if c.most != most {
		t.Errorf("%d ran at a time, want %d", c.most, most)
	}
}

// hasEnded waits until a job has ended, and checks that all members agree on it: it is not listed
// any more, has no plan, and each minion has one return.
func hasEnded(t *testing.T, all []*node, jid salt.JID, ids []salt.MinionID) {
	t.Helper()
	for _, n := range all {
		bustest.Until(t, n.bus.Name+" lists no job", func() bool {
			return len(All{n.Dispatcher}.Runs(within(t), "", func(*Job) bool { return true })) == 0
		})
		bustest.Until(t, "the plan is gone", func() bool {
			e, err := n.plans.find(within(t), jid, "")
			return err == nil && e.Value == nil
		})
		h, err := n.history(within(t), jid)
		if err != nil {
			t.Fatal(n.bus.Name, err)
		}
		sent := n.replayed(t, jid)
		for _, id := range ids {
			if s := h.standing(id); s.State != job.Done || sent[id] != 1 {
				t.Errorf("%s says of %s: %q, with %d returns", n.bus.Name, id, s.State, sent[id])
			}
		}
	}
}

// returned waits until a return is stored at one of the members.
func returned(t *testing.T, n *node, jid salt.JID, id salt.MinionID) {
	t.Helper()
	bustest.Until(t, "the return of "+string(id)+" is stored", func() bool {
		h, err := n.history(within(t), jid)
		return err == nil && h.returned[id] == job.Done
	})
}

// TestABatchGoesOnAtAnotherMember: the owner of a batch is killed in the middle of it. One minion
// returns before another member has taken the batch over, one returns later, one was connected to
// the killed member. All run once, never more than two at a time, and the end is the same
// everywhere. A queued job is taken over, too.
func TestABatchGoesOnAtAnotherMember(t *testing.T) {
	t.Parallel()
	_, all := startCluster(t)
	c := newCrew()
	c.hire(t, all[1], "w1", "w4")
	c.hire(t, all[2], "w2", "w5")
	c.hire(t, all[0], "w3", "w6")
	ids := []salt.MinionID{"w1", "w2", "w3", "w4", "w5", "w6"}
	all[0].know(t, ids...)
	run, _ := all[0].begin(t, protocol.Publish{Batch: job.BatchOptions{Size: "2"}}, ids...)
	key := bustest.Key(t)
	all[0].tokens = map[salt.MinionID]string{"late": bus.KeyToken(key.Public().Key())}
	queued, _ := all[0].begin(t, protocol.Publish{Queue: 3600}, "late")
	jid := run.plan.Start.JID
	c.await(t, "w1", "w2")
	c.finishes("w1")
	c.await(t, "w2", "w3")
	bustest.Until(t, "that is recorded", func() bool {
		h, err := all[1].history(within(t), jid)
		return err == nil && h.states["w3"].State == job.Running
	})
	all[0].die(t)
	c.workers["w3"].connect(t, all[1])
	c.workers["w6"].connect(t, all[2])
	c.finishes("w2")
	returned(t, all[1], jid, "w2")
	if list := (All{all[2].Dispatcher}).Runs(within(t), "", func(*Job) bool { return true }); len(list) != 2 || list[0].JID != jid || list[0].Standings["w3"].State != job.Running {
		t.Errorf("the jobs of the killed member are listed as %+v", list)
	}
	_, gone := (All{all[2].Dispatcher}).watchJob(within(t), "user:0", jid)
	if rpc.CodeOf(gone) != rpc.Unavailable || !hasMoved(gone) {
		t.Errorf("a job that nobody carries on is followed: %v", gone)
	}
	taken := make(chan error, 1)
	go func() { // whoever follows it waits for that
		w, err := (All{all[2].Dispatcher}).watchTaken(within(t), "user:0", jid, gone)
		if err == nil && w == nil {
			err = errors.New("it is taken for finished")
		}
		if w != nil {
			w.close()
		}
		taken <- err
	}()
	c.await(t, "w3", "w4")
	if err := <-taken; err != nil {
		t.Errorf("who followed it before another member carried it on: %v", err)
	}
	if all[1].jobs.running(jid) == nil || all[2].jobs.running(jid) != nil {
		t.Error("it is not the first member that carries the job on")
	}
	f := all[2].follows(t, jid)
	c.finishes("w4")
	c.await(t, "w3", "w5")
	c.finishes("w3")
	c.await(t, "w5", "w6")
	c.finishes("w5")
	c.finishes("w6")
	if err := <-f.end; err != nil || !f.has("w6=done(5)") {
		t.Errorf("who follows it sees %v, %v", f.list, err)
	}
	late := all[2].arriveWith(t, "late", key)
	if e := late.got(t); e.JID != queued.plan.Start.JID {
		t.Errorf("the queued job is %s", e.JID)
	}
	if err := late.says(t, queued.plan.Start.JID, done("late")); err != nil {
		t.Error(err)
	}
	hasEnded(t, all[1:], jid, ids)
	c.onlyOnce(t, 2)
}

// TestAMemberThatComesBackDoesNotGoOn: the owner of a batch is cut off, and another member takes
// the batch over. The owner sends nothing more; when it is back it tells those who watched the
// job, passes on what it hears of it, and does not list it. New jobs are its own.
func TestAMemberThatComesBackDoesNotGoOn(t *testing.T) {
	t.Parallel()
	s, all := startCluster(t)
	c := newCrew()
	c.hire(t, all[1], "w1", "w3")
	c.hire(t, all[2], "w2", "w4")
	c.hire(t, all[0], "w5", "w6")
	ids := []salt.MinionID{"w1", "w2", "w5", "w3", "w4", "w6"}
	all[0].know(t, ids...)
	run, w := all[0].begin(t, protocol.Publish{Batch: job.BatchOptions{Size: "2"}}, ids...)
	jid := run.plan.Start.JID
	c.await(t, "w1", "w2")
	bustest.Until(t, "that is recorded", func() bool {
		h, err := all[1].history(within(t), jid)
		return err == nil && h.states["w1"].State == job.Running && h.states["w2"].State == job.Running
	})
	s.Isolate(t, all[0].bus)
	bustest.Until(t, "the job is taken over", func() bool { return all[1].jobs.running(jid) != nil })
	if run.holds() {
		t.Error("two members have the job")
	}
	if err := run.d.waitReturn(t, run, "w1"); rpc.CodeOf(err) != rpc.Unavailable {
		t.Errorf("a member that does not know whether it has the job takes a return: %v", err)
	}
	run.send([]salt.MinionID{"w5", "w6"}) // as if their turn had come
	c.workers["w5"].connect(t, all[1])
	c.finishes("w1")
	c.await(t, "w2", "w5")
	s.Rejoin(all[0].bus)
	taken := w.batches(within(t), func([]update) error { return nil })
	if rpc.CodeOf(taken) != rpc.Unavailable || !strings.Contains(taken.Error(), "m2 carries the job on") {
		t.Errorf("those who watch it at the owner hear %v", taken)
	}
	s.Linked(t)
	c.workers["w6"].connect(t, all[0]) // messages of its minions go to the one that has the job
	bustest.Until(t, "m2 knows where w6 is", func() bool { there, _ := all[1].fleet.Connected("w6"); return there })
	for _, id := range []string{"w2", "w5"} {
		c.finishes(id)
	}
	c.await(t, "w3", "w4")
	c.finishes("w3")
	c.await(t, "w4", "w6")
	c.finishes("w4")
	c.finishes("w6")
	hasEnded(t, all, jid, ids)
	c.onlyOnce(t, 2)
	if all[0].returns(t, jid)["w6"] != 0 {
		t.Error("the former owner has stored a return")
	}
	next, _ := all[0].begin(t, protocol.Publish{}, "w6")
	if got, err := all[2].holderName(t, next.plan.Start.JID); got != "m1" || err != nil {
		t.Errorf("a new job is that of %q, %v", got, err)
	}
	c.finishes("w6")
}

// holderName returns the holder of a job.
func (n *node) holderName(t *testing.T, jid salt.JID) (string, error) {
	return relay{n.Dispatcher}.holder(within(t), jid)
}

// waitReturn stores a return as if it came from a minion of this member.
func (d *Dispatcher) waitReturn(t *testing.T, r *Run, id salt.MinionID) error {
	return relay{d}.said(within(t), said{Minion: id, JID: r.plan.Start.JID}, done("early"))
}

// TestAMemberThatIsStartedAgainGoesOn: a member that is killed and started again carries its jobs
// on by itself, if it is quick, and no other member does.
func TestAMemberThatIsStartedAgainGoesOn(t *testing.T) {
	t.Parallel()
	s, all := startCluster(t)
	c := newCrew()
	c.hire(t, all[1], "w1", "w3")
	c.hire(t, all[2], "w2", "w4")
	ids := []salt.MinionID{"w1", "w2", "w3", "w4"}
	all[0].know(t, ids...)
	run, _ := all[0].begin(t, protocol.Publish{Batch: job.BatchOptions{Size: "2"}}, ids...)
	jid := run.plan.Start.JID
	c.await(t, "w1", "w2")
	m := all[0].bus
	all[1].takeNone() // on a slow machine a start takes longer than they wait
	all[2].takeNone()
	all[0].die(t)
	c.finishes("w1")
	returned(t, all[1], jid, "w1")
	s.Rejoin(m)
	m.Start(t)
	s.Linked(t)
	s.Leader(t)
	j := clustertest.Journal(t, m)
	all[0] = startNodeOver(t, m, 0, j, allJournals(t, m, j))
	c.await(t, "w2", "w3")
	name, err := all[2].holderName(t, jid)
	if err != nil || name != "m1" {
		t.Errorf("%q carries the job on, %v", name, err)
	}
	for _, id := range []string{"w2", "w3"} {
		c.finishes(id)
	}
	c.await(t, "w4")
	c.finishes("w4")
	hasEnded(t, all, jid, ids)
	c.onlyOnce(t, 2)
}

// TestAJobIsCarriedOnThoughTheAnswerWasLost: a member has taken a job over, and did not hear that its name
// is in the plan: it carries the job on nevertheless.
func TestAJobIsCarriedOnThoughTheAnswerWasLost(t *testing.T) {
	t.Parallel()
	_, all := startCluster(t)
	web1 := all[1].arrive(t, "web1")
	all[0].know(t, "web1")
	run, _ := all[0].begin(t, protocol.Publish{}, "web1")
	jid := run.plan.Start.JID
	web1.got(t)
	all[0].die(t)
	p := run.plan
	bustest.Until(t, "the plan names m3", func() bool {
		e, err := all[2].plans.find(within(t), jid, "")
		if p.revision = e.Revision; err == nil {
			err = relay{all[2].Dispatcher}.hold(within(t), &p, nil)
		}
		return err == nil
	})
	heir := takeover{relay: relay{all[2].Dispatcher}, unread: map[salt.JID]plan{}, unsure: map[salt.JID]bool{}}
	if err := heir.take(within(t), jid); !errors.Is(err, errAtWork) {
		t.Errorf("a job that it may have at work: %v", err)
	}
	heir.unsure[jid] = true
	if err := heir.take(within(t), jid); err != nil || all[2].jobs.running(jid) == nil || heir.unsure[jid] {
		t.Errorf("the job is not carried on: %v", err)
	}
	if e := web1.got(t); e.JID != jid { // it may not have got the job, and knows by itself whether it has
		t.Errorf("the minion is sent %s, want %s once more", e.JID, jid)
	}
}

// TestJobsOfALivingMemberAreItsOwn: no member takes over the jobs of one that runs, nor does any
// other member believe that it has.
func TestJobsOfALivingMemberAreItsOwn(t *testing.T) {
	t.Parallel()
	_, all := startCluster(t)
	web0, web1 := all[0].arrive(t, "web0"), all[1].arrive(t, "web1")
	all[0].know(t, "web0", "web1")
	run, w := all[0].begin(t, protocol.Publish{}, "web0", "web1")
	jid := run.plan.Start.JID
	web0.got(t)
	web1.got(t)
	thief := takeover{relay: relay{all[2].Dispatcher}, unread: map[salt.JID]plan{}, unsure: map[salt.JID]bool{}}
	if err := thief.take(within(t), jid); !errors.Is(err, errAtWork) || all[2].jobs.running(jid) != nil {
		t.Errorf("m3 takes a job of m1 over: %v", err)
	}
	for member, id := range map[string]salt.MinionID{"m1": "web0", "m2": "web1"} {
		if err := all[2].exchange.Ask(within(t), member, kindJob, handed{Envelope: run.plan.Envelope, Minions: []salt.MinionID{id}}, nil); rpc.CodeOf(err) != rpc.Denied {
			t.Errorf("%s believes m3: %v", member, err)
		}
	}
	if all[0].jobs.running(jid) == nil {
		t.Error("m1 has left its job to m3")
	}
	for _, m := range []*minion{web0, web1} {
		if err := m.says(t, jid, done("ok")); err != nil {
			t.Error(err)
		}
	}
	if got := states(t, w); got != "web0=done(ok) web1=done(ok)" {
		t.Errorf("%s", got)
	}
}

// lapsing are events during whose storing something else happens.
type lapsing struct {
	written
	before, after func()
}

func (l lapsing) Store(ctx context.Context, tag string, data any, id string) (uint64, error) {
	l.before()
	defer l.after()
	return l.written.Store(ctx, tag, data, id)
}

// nobody is a fleet without minions.
type nobody struct{}

func (nobody) Connected(salt.MinionID) (bool, time.Time) { return false, time.Time{} }
func (nobody) SeenAt(salt.MinionID) string               { return "" }
func (nobody) Here(salt.MinionID) bool                   { return false }
func (nobody) KeyHere(salt.MinionID) string              { return "" }
func (nobody) Framed(salt.MinionID) bool                 { return false }

// leaseAnew gives a dispatcher a lease, in place of an earlier one, until it is ended.
func (d *Dispatcher) leaseAnew(t *testing.T) (end func()) {
	t.Helper()
	table, err := d.Journal.Table(within(t), "leases")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	m := lease.New(d.Name, table, d.Log)
	ended.Go(func() { m.Run(ctx) })
	end = func() { cancel(); ended.Wait() }
	t.Cleanup(end)
	if _, _, err := m.Holder(within(t)); err != nil {
		t.Fatal(err)
	}
	d.Leases = m
	return end
}

// TestAJobHasOneRun: the lease of a member lapses while it stores a new job, and it looks under its next
// lease for jobs that nobody carries on. The job has one run, that of its start, which goes on under the new
// lease.
func TestAJobHasOneRun(t *testing.T) {
	t.Parallel()
	d, _ := stored(t)
	d.Name, d.Fleet, d.Keys = "m1", nobody{}, anyKeys{}
	end := d.leaseAnew(t)
	finder := takeover{relay: relay{d}, unread: map[salt.JID]plan{}, unsure: map[salt.JID]bool{}}
	jid := d.NextJID()
	find := func() {
		if err := finder.take(within(t), jid); err != nil {
			t.Logf("take: %v", err)
		}
		for jid, p := range finder.unread {
			finder.again(within(t), jid, p)
		}
	}
	events := lapsing{written: written{d.Journal}, after: find, before: func() {
		end()
		d.leaseAnew(t)
		find()
	}}
	d.Events = events
	book := func(store func() error) error { return store() }
	p := plan{Start: job.Start{JID: jid, Minions: []salt.MinionID{"web1"}}, Began: time.Now(), Until: time.Now().Add(time.Hour), Keys: map[salt.MinionID]string{"web1": "a key"}, Envelope: job.Envelope{JID: jid, User: "root", Commands: []job.Command{{Function: "test.ping"}}}}
	r, err := p.start(within(t), d, nil, time.Now(), book)
	if err != nil {
		t.Fatal(err)
	}
	d.Events = events.written
	r.Begin()
	bustest.Until(t, "it goes on under the new lease", r.holds)
	find()
	if d.jobs.running(jid) != r || len(d.jobs.of["web1"]) != 1 {
		t.Errorf("the job has %d runs, and not only that of its start", len(d.jobs.of["web1"]))
	}
	failed := plan{Start: job.Start{JID: d.NextJID(), Minions: []salt.MinionID{"web1"}}, Began: time.Now()}
	if _, err := failed.start(within(t), d, nil, time.Now(), func(func() error) error { return errAtWork }); !errors.Is(err, errAtWork) || d.jobs.isOurs(failed.Start.JID) {
		t.Errorf("a job that cannot be started: %v", err)
	}
	older := newRun(d, p, nil, time.Now())
	d.jobs.passTo(older, "m2")
	d.jobs.forget(older)
	if d.jobs.running(jid) != r || d.jobs.find(jid) != r.job || r.job.owner != "" {
		t.Error("the end of another run takes the job away")
	}
}
