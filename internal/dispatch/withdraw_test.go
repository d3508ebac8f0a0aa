package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// breaking is a store that cannot be written at times.
type breaking struct {
	journal.Store
	mu     sync.Mutex
	err    error
	failed chan struct{}
	asked  int // how often it was asked since it broke
}

func (b *breaking) Failed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed
}

func (b *breaking) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	return b.err
}

// breaks makes it fail, mend ends that.
func (b *breaking) breaks() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err, b.asked = errors.New("no leader"), 0
	close(b.failed)
}

func (b *breaking) mend() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err, b.failed = nil, make(chan struct{})
}

func (b *breaking) wasAsked() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked
}

// storedOn returns a dispatcher with a lease, over a store that may break.
func storedOn(t *testing.T) (*Dispatcher, *breaking) {
	t.Helper()
	b := bustest.StartStore(t)
	disk := &breaking{Store: b.Store(), failed: make(chan struct{})}
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{Store: disk})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	ctx, cancel := context.WithCancel(t.Context())
	d, err := Open(ctx, Options{Journal: j, Events: written{j}, Name: "m1", Fleet: nobody{}, Keys: anyKeys{}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); d.Wait() })
	return d, disk
}

// queuedPlan returns the plan of a new job that waits for its minion, and so is carried on whenever it is found.
func (d *Dispatcher) queuedPlan() plan {
	jid := d.NextJID()
	return plan{
		Start: job.Start{JID: jid, Minions: []salt.MinionID{"web1"}, Missing: []salt.MinionID{"web2"}}, Began: time.Now(), Until: time.Now().Add(time.Hour),
		Keys: map[salt.MinionID]string{"web1": "a key"}, Envelope: job.Envelope{JID: jid, User: "root", Commands: []job.Command{{Function: "test.ping"}}},
	}
}

func direct(store func() error) error { return store() }

// isWithdrawn waits until a job is withdrawn, and checks that nobody carries it on.
func (d *Dispatcher) isWithdrawn(t *testing.T, finder *takeover, jid salt.JID) {
	t.Helper()
	bustest.Until(t, "it is withdrawn", func() bool {
		_ = finder.take(within(t), jid)
		if d.jobs.running(jid) != nil {
			t.Fatal("a job is carried on whose caller was told that it has failed")
		}
		e, err := d.plans.find(within(t), jid, "")
		return err == nil && e.Value == nil && !d.jobs.isOurs(jid)
	})
	h, err := d.history(within(t), jid)
	if err != nil || h.standing("web1").State != job.Cancelled || h.standing("web2").State != job.Cancelled || !strings.Contains(h.standing("web1").Text, "not started") {
		t.Errorf("the journal says %v, %v", h.states, err)
	}
}

// TestAStartThatHasFailedIsWithdrawn: the start of a job is stored, and the member does not learn that before
// nothing can be stored any more. The caller is told that it has failed. The job is not carried on when
// things can be stored again, under another lease, nor by who takes over a plan that a kill has left.
func TestAStartThatHasFailedIsWithdrawn(t *testing.T) {
	t.Parallel()
	d, disk := storedOn(t)
	end := d.leaseAnew(t)
	finder := &takeover{relay: relay{d}, unread: map[salt.JID]plan{}, unsure: map[salt.JID]bool{}}
	d.Events = lapsing{written: written{d.Journal}, before: func() {}, after: sync.OnceFunc(disk.breaks)}
	p := d.queuedPlan()
	jid := p.Start.JID
	_, err := p.start(within(t), d, nil, time.Now(), func(store func() error) error {
		_ = store()
		return errors.New("no answer")
	})
	if !rpc.Unsure(err) || rpc.CodeOf(err) != rpc.Unavailable || !strings.Contains(err.Error(), string(jid)) {
		t.Errorf("the caller is told %v", err)
	}
	d.Events = written{d.Journal}
	disk.mend()
	end()
	d.leaseAnew(t)
	d.isWithdrawn(t, finder, jid)

	left := d.queuedPlan()
	_, err = left.start(within(t), d, nil, time.Now(), func(store func() error) error {
		_ = store()
		return errAtWork
	})
	if !errors.Is(err, errAtWork) || rpc.Unsure(err) {
		t.Errorf("one that is withdrawn at once: %v", err)
	}
	d.isWithdrawn(t, finder, left.Start.JID)
	if left.revision = 0; d.storePlan(within(t), &left, nil) != nil { // as if it was not deleted before a kill
		t.Fatal("the plan is not stored")
	}
	if err := d.carryOn(within(t), left); err != nil || d.jobs.running(left.Start.JID) != nil {
		t.Errorf("it is carried on: %v", err)
	}
}

// inherit gives the plan of a job to another member.
func (p *plan) inherit(t *testing.T, d *Dispatcher, member string) stalePlan {
	t.Helper()
	theirs := *p
	theirs.Holder.Member = member
	b, err := theirs.encode(nil)
	if err == nil {
		theirs.revision, err = d.plans.update(within(t), p.table, p.Start.JID, b, p.revision)
	}
	if err != nil {
		t.Error(err)
	}
	return theirs.stale()
}

// finish is what another member does that takes a job over and finishes it.
func (p *plan) finish(t *testing.T, d *Dispatcher) {
	t.Helper()
	theirs := p.inherit(t, d, "m2")
	jid := string(p.Start.JID)
	_, err := written{d.Journal}.Store(within(t), "salt/job/"+jid+"/ret/web1", map[string]any{"jid": jid, "id": "web1", "return": true, "success": true}, "")
	if err := errors.Join(err, d.plans.remove(within(t), theirs)); err != nil {
		t.Error(err)
	}
}

// TestAStartBehindATakeover: the lease of a member lapses while it stores the start of a job, and another
// member has deleted the plan, written itself into it, or finished the job, before the start is confirmed. The
// caller is not told that the job is started: nobody might carry it on, or the other one does. Nor that it is
// not, since only that one knows. Its job gets no end: it may have begun it.
func TestAStartBehindATakeover(t *testing.T) {
	t.Parallel()
	d, _ := storedOn(t)
	finder := &takeover{relay: relay{d}, unread: map[salt.JID]plan{}, unsure: map[salt.JID]bool{}}
	nothing := func(*plan) {}
	for _, c := range []struct {
		name          string
		before, after func(p *plan) // of the storing of the start
		told          string
	}{
		{"deleted", func(p *plan) {
			if err := d.plans.remove(within(t), p.inherit(t, d, "m2")); err != nil {
				t.Error(err)
			}
		}, nothing, "is withdrawn, unless another member has run it"},
		{"taken over", func(p *plan) { p.inherit(t, d, "m2") }, nothing, "m2 carries the job on"},
		{"finished", nothing, func(p *plan) { p.finish(t, d) }, "another member runs the job, or has finished it"},
	} {
		end := d.leaseAnew(t)
		p := d.queuedPlan()
		d.Events = lapsing{written: written{d.Journal}, before: sync.OnceFunc(func() { end(); c.before(&p) }), after: sync.OnceFunc(func() {
			c.after(&p)
			end = d.leaseAnew(t)
		})}
		if r, err := p.start(within(t), d, nil, time.Now(), direct); err == nil || r != nil || !rpc.Unsure(err) || !strings.Contains(err.Error(), c.told) {
			t.Errorf("a job whose plan is %s: %v, %v", c.name, r, err)
		}
		if jid := p.Start.JID; c.name == "deleted" {
			d.isWithdrawn(t, finder, jid)
		} else if h, err := d.history(within(t), jid); err != nil || len(h.states) > 0 || d.jobs.isOurs(jid) {
			t.Errorf("the member that has a job that is %s finds %v, %v; it counts as one of this member: %t", c.name, h.states, err, d.jobs.isOurs(jid))
		}
		end()
	}
}

// TestAJobIsTakenOverWhileItIsWithdrawn: another member takes a job over, or has finished it, before its start is
// confirmed, or while the end is stored. The caller of an error is told that the job may run.
func TestAJobIsTakenOverWhileItIsWithdrawn(t *testing.T) {
	t.Parallel()
	d, _ := storedOn(t)
	d.leaseAnew(t)
	for _, c := range []struct {
		name   string
		first  func(p *plan) // before the plan is looked for
		second func(p *plan) // before the end is stored
		told   string
	}{
		{name: "taken over at first", first: func(p *plan) { p.inherit(t, d, "m2") }, told: "m2 then carries it on"},
		{name: "taken over", second: func(p *plan) { p.inherit(t, d, "m2") }, told: "m2 then carries it on"},
		{name: "finished at first", first: func(p *plan) { p.finish(t, d) }, told: "another member runs the job, or has finished it"},
		{name: "finished", second: func(p *plan) { p.finish(t, d) }, told: "another member runs the job, or has finished it"},
	} {
		d.Events = written{d.Journal}
		p := d.queuedPlan()
		_, err := p.start(within(t), d, nil, time.Now(), func(store func() error) error {
			if err := store(); err != nil {
				t.Error(err)
			}
			if c.first != nil {
				c.first(&p)
			} else {
				d.Events = lapsing{written: written{d.Journal}, after: func() {}, before: sync.OnceFunc(func() { c.second(&p) })}
			}
			return errAtWork
		})
		if !rpc.Unsure(err) || !strings.Contains(err.Error(), c.told) {
			t.Errorf("a job that was %s: %v", c.name, err)
		}
		if h, err := d.history(within(t), p.Start.JID); err != nil || c.first != nil && len(h.states) > 0 {
			t.Errorf("a job that was %s has the states %v, %v", c.name, h.states, err)
		}
	}
}

// unanswered are events of which one is not stored.
type unanswered struct {
	written
	mu        sync.Mutex
	meanwhile func() // called instead, unless nil
}

func (u *unanswered) Store(ctx context.Context, tag string, data any, id string) (uint64, error) {
	u.mu.Lock()
	meanwhile := u.meanwhile
	u.meanwhile = nil
	u.mu.Unlock()
	if meanwhile == nil {
		return u.written.Store(ctx, tag, data, id)
	}
	meanwhile()
	return 0, errors.New("no answer")
}

// TestAStartThatNoHeirHasFound: another member has taken a job over and finds no start, so that it deletes the
// plan. The start is stored then. Its member stores an end behind it, but not while the other one may have the
// job; it leaves a job alone that the other one has begun.
func TestAStartThatNoHeirHasFound(t *testing.T) {
	t.Parallel()
	d, _ := storedOn(t)
	d.leaseAnew(t)
	events := &unanswered{written: written{d.Journal}}
	d.Events = events
	start := func() (p plan, theirs stalePlan) {
		t.Helper()
		p = d.queuedPlan()
		events.mu.Lock()
		events.meanwhile = func() { theirs = p.inherit(t, d, "m2") }
		events.mu.Unlock()
		if _, err := p.start(within(t), d, nil, time.Now(), direct); !rpc.Unsure(err) || !strings.Contains(err.Error(), "m2 then carries it on") {
			t.Errorf("the caller is told %v", err)
		}
		if d.jobs.isOurs(p.Start.JID) {
			t.Error("this member cannot take it over if m2 is lost")
		}
		return p, theirs
	}
	p, theirs := start()
	w := p.withdrawal(d)
	if how := w.try(); how.done || how.heir != "m2" {
		t.Errorf("while m2 may find the start: %+v", how)
	}
	p.revision = theirs.revision
	p.inherit(t, d, d.Name)
	if how := w.try(); how.done || how.heir != d.Name {
		t.Errorf("after m2 was lost, and this member has taken it over: %+v", how)
	}
	if err := errors.Join(d.record(within(t), &p), d.plans.remove(within(t), stalePlan{theirs.jid, theirs.table, 0})); err != nil {
		t.Fatal(err)
	}
	bustest.Until(t, "the end is stored", func() bool {
		h, err := d.history(within(t), p.Start.JID)
		return err == nil && h.standing("web1").State == job.Cancelled && h.standing("web2").State == job.Cancelled
	})

	p, _ = start()
	jid := p.Start.JID
	err := errors.Join(d.record(within(t), &p), d.recordStates(jid, map[string]any{"web1": job.Standing{State: job.Running}.Data()}))
	if how := p.withdrawal(d).try(); err != nil || !how.done || !how.ran || how.heir != "m2" {
		t.Errorf("when m2 has begun it: %+v, %v", how, err)
	}
	if h, err := d.history(within(t), jid); err != nil || h.standing("web1").State != job.Running {
		t.Errorf("its states are %v, %v", h.states, err)
	}
}

// TestAnHeirWaitsForAStart: a job is taken over whose start is not there. While its member may still store it, and
// behind it that the caller was told of a failure, as it does if it has looked at the plan before, the job is not
// carried on, though the start is found.
func TestAnHeirWaitsForAStart(t *testing.T) {
	t.Parallel()
	d, _ := storedOn(t)
	d.leaseAnew(t)
	finder := &takeover{relay: relay{d}, unread: map[salt.JID]plan{}, unsure: map[salt.JID]bool{}}
	p := d.queuedPlan()
	jid := p.Start.JID
	p.Holder.Member = d.Name
	b, err := p.encode(nil)
	if err == nil {
		_, err = d.plans.update(within(t), d.plans.name, jid, b, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	finder.unsure[jid] = true // as if the answer was lost when it took the job over
	if err := finder.take(within(t), jid); rpc.CodeOf(err) != rpc.NotFound {
		t.Fatalf("a job without a start: %v", err)
	}
	again := func() {
		t.Helper()
		for jid, p := range finder.unread {
			finder.again(within(t), jid, p)
		}
	}
	if err := d.record(within(t), &p); err != nil {
		t.Fatal(err)
	}
	if again(); d.jobs.running(jid) != nil {
		t.Fatal("it is carried on before the member could say that it has failed")
	}
	if err := p.withdrawal(d).record(); err != nil {
		t.Fatal(err)
	}
	old := finder.unread[jid]
	old.absent = false // as if the time was over
	finder.unread[jid] = old
	again()
	if e, err := d.plans.find(within(t), jid, ""); err != nil || e.Value != nil || d.jobs.running(jid) != nil || len(finder.unread) > 0 {
		t.Errorf("the job is carried on: %s, %v", e.Value, err)
	}
}

// TestAPlanThatCannotBeDeletedIsDeletedLater: that of a job that has ended.
func TestAPlanThatCannotBeDeletedIsDeletedLater(t *testing.T) {
	t.Parallel()
	d, disk := storedOn(t)
	const first, second = "20260101000000000001", "20260101000000000002"
	d.planOf(t, first)
	d.planOf(t, second)
	disk.breaks()
	d.dropSoon(stalePlan{first, d.plans.name, 0})
	bustest.Until(t, "it is tried", func() bool { return disk.wasAsked() > 0 })
	d.dropSoon(stalePlan{second, d.plans.name, 0})
	disk.mend()
	bustest.Until(t, "both are deleted", func() bool { return slices.Equal(d.planned(t), nil) })
	e := newEnded()
	if e.putBack(nil) || !e.putBack(make([]stalePlan, maxEnded)) || e.putBack(make([]stalePlan, 1)) || len(e.full) > 0 || len(e.take()) != maxEnded+1 {
		t.Error("those that are put back are deleted by nobody, by two, or at once")
	}
}
