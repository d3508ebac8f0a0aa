package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/clustertest"
	"github.com/brinebus/brine/test/deadline"
)

// startCluster starts three members whose journals have copies at all of them.
func startCluster(t *testing.T) (*bustest.System, []*node) {
	t.Helper()
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	var journals []*journal.Journal
	for _, m := range s.Members {
		journals = append(journals, clustertest.Journal(t, m))
	}
	var all []*node
	for i, m := range s.Members {
		all = append(all, startNodeOver(t, m, i, journals[i], allJournals(t, m, journals[i])))
	}
	for _, n := range all {
		bustest.Until(t, n.bus.Name+" knows the others", func() bool { return len(n.exchange.Others()) == 2 })
	}
	return s, all
}

func allJournals(t *testing.T, m *bustest.Member, own *journal.Journal) journal.All {
	t.Helper()
	peers, err := journal.Peers(clustertest.Starting(t), m.Conn(), m.Name, m.Store())
	if err != nil || len(peers) != 2 {
		t.Fatal(m.Name, peers, err)
	}
	return journal.All{Own: own, Mirrors: func() []*journal.Mirror { return peers }, Log: m.Log}
}

// die ends a member as kill -9 does.
func (n *node) die(t *testing.T) {
	t.Helper()
	n.bus.Kill(t)
	n.stop()
}

// within returns a context for what must not hang.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestEveryMemberKnowsAllJobs: each member finds a job of another one in its journal, with its
// returns, also when that member is killed; returns that come then are found as well, and one
// that was stored by two members counts once. No minion can pretend to have run such a job by
// itself.
func TestEveryMemberKnowsAllJobs(t *testing.T) {
	s, all := startCluster(t)
	web1, web2 := all[1].arrive(t, "web1"), all[2].arrive(t, "web2")
	all[0].know(t, "web1", "web2")
	run, _ := all[0].begin(t, protocol.Publish{}, "web1", "web2")
	jid := run.plan.Start.JID
	web1.got(t)
	web2.got(t)
	if err := web1.says(t, jid, done("one")); err != nil {
		t.Fatal(err)
	}
	for _, n := range all {
		if got := n.known(t, jid); got != "done/" {
			t.Errorf("%s knows %q", n.bus.Name, got)
		}
	}
	all[0].die(t)
	for _, n := range all[1:] {
		bustest.Until(t, "m1 is gone", func() bool { return len(n.exchange.Others()) == 1 })
	}
	s.Leader(t)
	for _, m := range []*minion{web1, web2} {
		if err := m.says(t, jid, done("one")); err != nil {
			t.Error(err)
		}
	}
	for _, n := range all[1:] {
		if got := n.known(t, jid); got != "done/done" {
			t.Errorf("after the kill %s knows %q", n.bus.Name, got)
		}
		if sent := n.replayed(t, jid); sent["web1"] != 1 || sent["web2"] != 1 {
			t.Errorf("%s shows %v", n.bus.Name, sent)
		}
		k, err := n.Lookup(within(t), jid)
		if err != nil || k == nil || k.owner != "m1" || k.User != "root" || len(k.minions) != 2 {
			t.Errorf("%s finds %+v, %v", n.bus.Name, k, err)
		}
		q := protocol.LocalReturn{JID: jid, Command: job.Command{Function: "test.ping"}, Report: done("forged")}
		if _, err := n.LocalReturnEvent(within(t), "web9", q); rpc.CodeOf(err) != rpc.Denied {
			t.Errorf("a forged return at %s: %v", n.bus.Name, err)
		}
	}
	if k, err := all[1].Lookup(within(t), "20200101000000000000"); k != nil || err != nil {
		t.Errorf("a job that no member has sent: %v, %v", k, err)
	}
}

// TestManyJobsOfAKilledMember: a minion has got more of them than it may name unknown ones, and returns
// them to a member that does not know them. That is not limited as invented jobs are, and neither is it if
// that member has looked before whether somebody waits for them.
func TestManyJobsOfAKilledMember(t *testing.T) {
	t.Parallel()
	_, all := startCluster(t)
	web1, n := all[1].arrive(t, "web1"), all[2]
	all[0].know(t, "web1")
	var jids []salt.JID
	for range 2 * maxUnknown {
		run, _ := all[0].begin(t, protocol.Publish{}, "web1")
		jids = append(jids, run.plan.Start.JID)
		web1.got(t)
	}
	all[0].die(t)
	bustest.Until(t, "m1 is gone", func() bool { return len(n.exchange.Others()) == 1 })
	moved := n.arrive(t, "web1")
	bustest.Until(t, "the journals can be read", func() bool {
		h, err := n.history(within(t), jids[0])
		return err == nil && h.load.JID == jids[0]
	})
	for i, jid := range jids {
		n.Awaits(within(t), "web1", jid, true)
		bustest.Until(t, "a return is stored", func() bool {
			err := moved.delivers(t, uint64(i+1), jid, done("late"))
			if code := rpc.CodeOf(err); err != nil && code != rpc.Unavailable { // an election
				t.Fatalf("return %d: %v", i, err)
			}
			return err == nil
		})
	}
	busy := 0
	for i := range 3 * maxUnknown {
		if err := moved.says(t, salt.JID(fmt.Sprintf("202001010000000%05d", i)), done("made up")); rpc.CodeOf(err) == rpc.Busy {
			busy++
		}
	}
	if busy < maxUnknown {
		t.Errorf("%d of %d questions about invented jobs were refused", busy, 3*maxUnknown)
	}
}

// known is what the journals of all members say of a job on web1 and web2.
func (n *node) known(t *testing.T, jid salt.JID) string {
	t.Helper()
	h, err := n.history(within(t), jid)
	if err != nil {
		t.Fatalf("%s: %v", n.bus.Name, err)
	}
	return string(h.standing("web1").State + "/" + h.standing("web2").State)
}

// replayed counts the returns that are shown of a job, by minion.
func (n *node) replayed(t *testing.T, jid salt.JID) map[salt.MinionID]int {
	t.Helper()
	sent := map[salt.MinionID]int{}
	err := relay{n.Dispatcher}.stored(within(t), jid, func(u job.Update) error { sent[u.ID]++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	return sent
}

// TestTheFirstOfSeveralReturnsCounts, of those that two members have stored.
func TestTheFirstOfSeveralReturnsCounts(t *testing.T) {
	t.Parallel()
	d, _ := stored(t)
	const jid = "20260101000000000001"
	d.store(t, "salt/job/"+jid+"/new", map[string]any{"jid": jid, "fun": "test.ping", "minions": []string{"web1"}, "user": "root"})
	for _, text := range []string{"first", "second"} {
		d.store(t, "salt/job/"+jid+"/ret/web1", map[string]any{"jid": jid, "id": "web1", "return": text, "success": true})
	}
	var got []string
	err := relay{d}.stored(t.Context(), jid, func(u job.Update) error {
		raw, _ := u.Return.V.(value.Raw)
		got = append(got, string(raw))
		return nil
	})
	if err != nil || len(got) != 1 || got[0] != `"first"` {
		t.Errorf("shown: %q, %v", got, err)
	}
}

// slowly are journals that answer when they may, and once not at all.
type slowly struct {
	Journals
	begun atomic.Int64
	may   chan struct{}
}

func (s *slowly) Read(ctx context.Context, q journal.Query, f func(event.Event) error) error {
	if s.begun.Add(1) == 1 {
		return errors.New("no leader")
	}
	<-s.may
	return s.Journals.Read(ctx, q, f)
}

// TestTheReturnsOfAJobAreReadOnce: for all minions that return a job of a member that is gone, unless that
// fails; who gives up does not wait.
func TestTheReturnsOfAJobAreReadOnce(t *testing.T) {
	t.Parallel()
	d, _ := stored(t)
	const jid, count = "20260101000000000001", 50
	ids := make([]string, count)
	for i := range ids {
		ids[i] = fmt.Sprint("web", i)
	}
	d.store(t, "salt/job/"+jid+"/new", map[string]any{"jid": jid, "fun": "test.ping", "minions": ids, "user": "root"})
	d.store(t, "salt/job/"+jid+"/ret/web1", map[string]any{"jid": jid, "id": "web1", "return": true, "success": true})
	journals := &slowly{Journals: d.Journals, may: make(chan struct{})}
	d.Journals = journals
	ask := func(ctx context.Context, id string) (bool, error) {
		k, err := d.Lookup(within(t), jid)
		if err != nil || k == nil {
			t.Error(k, err)
			return false, err
		}
		return relay{d}.hasReturn(ctx, k, said{Minion: salt.MinionID(id), JID: jid})
	}
	if _, err := ask(within(t), "web1"); err == nil {
		t.Error("there is no error if the journals cannot be read")
	}
	d.jobs.mu.Lock()
	clear(d.jobs.known) // as after a start
	d.jobs.mu.Unlock()
	var all sync.WaitGroup
	var asked atomic.Int64
	for _, id := range ids {
		all.Go(func() {
			asked.Add(1)
			if found, err := ask(within(t), id); err != nil || found != (id == "web1") {
				t.Errorf("%s: %v, %v", id, found, err)
			}
		})
	}
	bustest.Until(t, "all have asked", func() bool { return asked.Load() == count && journals.begun.Load() > 1 })
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := ask(gone, "web2"); !errors.Is(err, context.Canceled) {
		t.Errorf("who has given up gets %v", err)
	}
	close(journals.may)
	all.Wait()
	if n := journals.begun.Load() - 1; n != 1 {
		t.Errorf("the returns are read %d times", n)
	}
}

// TestReturnsStoredElsewhereAreReadAgain, before the job ends, if the journals cannot be read at once.
func TestReturnsStoredElsewhereAreReadAgain(t *testing.T) {
	t.Parallel()
	d, _ := stored(t)
	const jid = "20260101000000000001"
	d.planOf(t, jid)
	d.store(t, "salt/job/"+jid+"/new", map[string]any{"jid": jid, "fun": "test.ping", "minions": []string{"web1"}, "user": "root"})
	d.store(t, "salt/job/"+jid+"/ret/web1", map[string]any{"jid": jid, "id": "web1", "return": true, "success": true})
	journals := &slowly{Journals: d.Journals, may: make(chan struct{})}
	close(journals.may)
	d.Journals = journals
	r := newRun(d, plan{Start: job.Start{JID: jid, Minions: []salt.MinionID{"web1"}}, table: d.plans.name}, nil, time.Now()) // its time is over at once
	r.unread = true
	d.jobs.add(r)
	w := r.watch()
	deadline.Call(t, r.run, "the run")
	if s := r.standings()["web1"]; s.State != job.Done || journals.begun.Load() != 2 {
		t.Errorf("the minion is %+v after the journals were read %d times", s, journals.begun.Load())
	}
	told, _, _ := w.take()
	for _, u := range told {
		if u.Report.State == job.Silent {
			t.Errorf("who follows the job is told %+v", u.Update)
		}
	}
}

// TestReturnsThatStayUnreadableEndNoJob: where the returns that other members have stored cannot be read at all, a
// job goes on without them after some time, and does not try at each step again. When they can be read, they
// count.
func TestReturnsThatStayUnreadableEndNoJob(t *testing.T) {
	t.Parallel()
	d, _ := stored(t)
	const jid = "20260101000000000001"
	d.store(t, "salt/job/"+jid+"/new", map[string]any{"jid": jid, "fun": "test.ping", "minions": []string{"web1"}, "user": "root"})
	d.store(t, "salt/job/"+jid+"/ret/web1", map[string]any{"jid": jid, "id": "web1", "return": true, "success": true})
	journals := &slowly{Journals: d.Journals, may: make(chan struct{})}
	close(journals.may)
	d.Journals = journals
	r := newRun(d, plan{Start: job.Start{JID: jid, Minions: []salt.MinionID{"web1"}}, table: d.plans.name}, nil, time.Now())
	r.unread = true
	u := reading{since: time.Now().Add(-lastTime)}
	for range 2 {
		if !u.done(r) || journals.begun.Load() != 1 {
			t.Errorf("it waits, or the journals were read %d times", journals.begun.Load())
		}
	}
	u.again = time.Time{}
	if s := r.standings()["web1"]; !u.done(r) || u.without {
		t.Errorf("when the journals can be read again, the minion is %+v", s)
	}
	if s := r.standings()["web1"]; s.State != job.Done {
		t.Errorf("the minion is %+v", s)
	}
}

// TestANoticeOfAReturnIsFollowedAtOnce, also by a job that goes on without returns that could not be read: otherwise
// it would give up the minion that has returned. Each notice is one attempt. The job tries again by itself, though
// it has nothing else to do.
func TestANoticeOfAReturnIsFollowedAtOnce(t *testing.T) {
	t.Parallel()
	d, _ := stored(t)
	const jid = "20260101000000000001"
	d.store(t, "salt/job/"+jid+"/new", map[string]any{"jid": jid, "fun": "test.ping", "minions": []string{"web1", "web2"}, "user": "root"})
	d.store(t, "salt/job/"+jid+"/ret/web1", map[string]any{"jid": jid, "id": "web1", "return": true, "success": true})
	journals := &slowly{Journals: d.Journals, may: make(chan struct{})}
	close(journals.may)
	d.Journals = journals
	until := time.Now().Add(time.Hour)
	r := newRun(d, plan{Start: job.Start{JID: jid, Minions: []salt.MinionID{"web1", "web2"}}, Until: until, Timeout: 3600}, nil, time.Now())
	r.tracker.Park("web2", "it is away", until)
	r.unread = true
	d.jobs.add(r)
	u := reading{since: time.Now().Add(-lastTime), again: time.Now().Add(lastTime), without: true}
	notice := func() {
		t.Helper()
		if _, err := (relay{d}).answerStored(within(t), "m2", []byte(`"`+jid+`"`)); err != nil {
			t.Error(err)
		}
	}
	for i, c := range []struct {
		told  bool
		reads int64
		next  bool // the next attempt is what the job waits for
		state job.State
	}{
		{told: false, reads: 0, next: true, state: job.Sent},
		{told: true, reads: 1, next: true, state: job.Sent}, // that fails
		{told: false, reads: 1, next: true, state: job.Sent},
		{told: true, reads: 2, state: job.Done},
	} {
		if c.told {
			notice()
		}
		_, next, finished := u.step(r)
		if n, s := journals.begun.Load(), r.standings()["web1"].State; finished || n != c.reads || s != c.state || c.next != (u.without && next.Equal(u.again)) {
			t.Errorf("step %d: the journals were read %d times, the minion is %q, the next step is at %s, with %+v", i, n, s, next, u)
		}
	}
}

// passing are journals that call then after each time that they were read.
type passing struct {
	Journals
	then func()
}

func (p passing) Read(ctx context.Context, q journal.Query, f func(event.Event) error) error {
	err := p.Journals.Read(ctx, q, f)
	p.then()
	return err
}

// TestReturnsAreReadAgainWhenAJobMoves: what the member that got the job has stored is known, also if it got
// the job while the returns were being read, and if it got it from this member.
func TestReturnsAreReadAgainWhenAJobMoves(t *testing.T) {
	t.Parallel()
	d, _ := stored(t)
	const jid = "20260101000000000001"
	returns := func(id string) {
		t.Helper()
		d.store(t, "salt/job/"+jid+"/ret/"+id, map[string]any{"jid": jid, "id": id, "return": true, "success": true})
	}
	d.store(t, "salt/job/"+jid+"/new", map[string]any{"jid": jid, "fun": "test.ping", "minions": []string{"web1", "web2", "web3"}, "user": "root"})
	has := func(id salt.MinionID, want bool) {
		t.Helper()
		k, err := d.Lookup(within(t), jid)
		if err != nil || k == nil {
			t.Fatal(k, err)
		}
		if found, err := (relay{d}).hasReturn(within(t), k, said{Minion: id, JID: jid}); err != nil || found != want {
			t.Errorf("%s has returned: %v, %v, want %v", id, found, err, want)
		}
	}
	all := d.Journals
	d.Journals = passing{all, sync.OnceFunc(func() {
		d.jobs.setOwner(d.jobs.find(jid), "m2")
		returns("web2")
	})}
	has("web1", false)
	d.Journals = all
	has("web2", true)
	r := newRun(d, plan{Start: job.Start{JID: jid, Minions: []salt.MinionID{"web1", "web2", "web3"}}}, nil, time.Now())
	(&history{}).noteReturned(r.job)
	d.jobs.add(r)
	d.jobs.passTo(r, "m3")
	returns("web3")
	has("web3", true)
}

// followed collects what a member shows to those who follow a job, until the end.
type followed struct {
	mu   sync.Mutex
	list []string
	end  chan error
}

func (n *node) follows(t *testing.T, jid salt.JID) *followed {
	t.Helper()
	f := &followed{end: make(chan error, 1)}
	a := All{n.Dispatcher}
	w, err := a.watchJob(within(t), "user:0", jid)
	if err != nil || w == nil {
		t.Fatalf("%s follows with %v, %v", n.bus.Name, w, err)
	}
	go func() {
		defer w.close()
		f.end <- w.batches(within(t), func(list []update) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			for _, u := range list {
				one, err := a.filled(within(t), u)
				if err == nil {
					err = one.Decode()
				}
				if err != nil {
					return err
				}
				text := fmt.Sprint(one.Return.V)
				f.list = append(f.list, fmt.Sprintf("%s=%s(%d)", u.ID, u.State, len(text)))
			}
			return nil
		})
	}()
	return f
}

func (f *followed) has(one string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(f.list, one)
}

// TestAJobIsFollowedAtEveryMember: what happens to it is seen at another member when it happens,
// with long returns, and so is its end; there it is also listed, and withdrawn. If its member is
// killed, whoever follows it is told so.
func TestAJobIsFollowedAtEveryMember(t *testing.T) {
	_, all := startCluster(t)
	web1, web2 := all[1].arrive(t, "web1"), all[2].arrive(t, "web2")
	all[0].know(t, "web1", "web2")
	run, _ := all[0].begin(t, protocol.Publish{}, "web1", "web2")
	jid := run.plan.Start.JID
	web1.got(t)
	web2.got(t)
	here, there := all[0].follows(t, jid), all[2].follows(t, jid)
	bustest.Until(t, "the start is seen", func() bool { return there.has("web1=(5)") })
	if err := web1.says(t, jid, job.Report{State: job.Running}); err != nil {
		t.Fatal(err)
	}
	bustest.Until(t, "it is seen to run", func() bool { return here.has("web1=running(5)") && there.has("web1=running(5)") })
	for _, n := range all {
		list := All{n.Dispatcher}.Runs(within(t), "", func(j *Job) bool { return j.User == "root" })
		if len(list) != 1 || list[0].JID != jid || list[0].Standings["web1"].State != job.Running || list[0].Fun != "test.echo" || list[0].Target != "*" {
			t.Errorf("%s lists %+v", n.bus.Name, list)
		}
		if list := (All{n.Dispatcher}).Runs(within(t), jid, func(*Job) bool { return false }); len(list) > 0 {
			t.Errorf("%s shows what is not to be shown: %+v", n.bus.Name, list)
		}
	}
	long := strings.Repeat("x", 2<<20)
	for _, m := range []*minion{web1, web2} {
		if err := m.says(t, jid, done(long)); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []*followed{here, there} {
		if err := <-f.end; err != nil || !f.has("web1=done(2097152)") || !f.has("web2=done(2097152)") {
			t.Errorf("shown: %v, %v", f.list, err)
		}
	}
	if w, err := (All{all[2].Dispatcher}).watchJob(within(t), "user:0", jid); w != nil || err != nil {
		t.Errorf("the job has ended, and is followed: %v, %v", w, err)
	}
	queued, _ := all[0].begin(t, protocol.Publish{Queue: 3600}, "web9")
	jid = queued.plan.Start.JID
	if ids, err := (All{all[1].Dispatcher}).Cancel(within(t), jid, "fred"); err != nil || !slices.Equal(ids, []salt.MinionID{"web9"}) {
		t.Errorf("withdrawn from %v, %v", ids, err)
	}
	if _, err := (All{all[1].Dispatcher}).Cancel(within(t), jid, "fred"); err == nil {
		t.Error("it is withdrawn twice")
	}
	last, _ := all[0].begin(t, protocol.Publish{}, "web1")
	lost := all[1].follows(t, last.plan.Start.JID)
	all[0].die(t)
	if err := <-lost.end; rpc.CodeOf(err) != rpc.Unavailable || !strings.Contains(err.Error(), "m1") {
		t.Errorf("its member is killed: %v", err)
	}
}

// TestLongReturnsOfOtherMembersFitIntoAnswers: a job has returns that another member has stored, which are passed
// on with their data. Each answer to a member that follows the job can be sent, and the others are shown whole.
func TestLongReturnsOfOtherMembersFitIntoAnswers(t *testing.T) {
	t.Parallel()
	d, _ := stored(t)
	const jid, longest = "20260101000000000001", 900 << 10 // what one message between members has
	ids := []salt.MinionID{"web1", "web2", "web3", "web4"}
	r := newRun(d, plan{Start: job.Start{JID: jid, Minions: ids}, Timeout: 3600}, nil, time.Now())
	l := &listener{w: r.watch()}
	d.store(t, "salt/job/"+jid+"/ret/web1", map[string]any{"jid": jid, "id": "web1", "return": strings.Repeat("x", 1<<20), "success": true})
	r.unread = true
	if err := r.readStored(); err != nil {
		t.Fatal(err)
	}
	r.report("web2", done(strings.Repeat("<", 160<<10)), nil) // encoded it has six times as much
	r.report("web3", done(strings.Repeat("y", 250<<10)), nil)
	r.report("web4", done(strings.Repeat("z", 300<<10)), nil)
	got := map[salt.MinionID]update{}
	for end := false; !end; {
		p, err := l.next(within(t))
		if err != nil || len(p.Updates) == 0 {
			t.Fatal(p, err)
		}
		b, err := json.Marshal(p)
		if err != nil || len(b) > longest {
			t.Errorf("an answer has %d bytes, %v", len(b), err)
		}
		list, err := (&remote{}).read(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range list {
			if err := u.Decode(); err != nil {
				t.Fatal(err)
			}
			got[u.ID] = u
		}
		end = p.End
	}
	for i, id := range ids {
		text, _ := got[id].Return.V.(string)
		if size := []int{0, 0, 250 << 10, 300 << 10}[i]; size > 0 && (got[id].State != job.Done || len(text) != size) || size == 0 && (got[id].State != job.Failed || !strings.Contains(text, "jobs.lookup_jid "+jid)) {
			t.Errorf("%s: %s with %d bytes: %.100s", id, got[id].State, len(text), text)
		}
	}
}

// TestWhoEndsFollowsNoMore: a user who follows a job of another member ends their command while nothing happens. That
// member has no watcher of theirs any more, and nobody waits there for what happens next.
func TestWhoEndsFollowsNoMore(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 2)
	web1 := all[0].arrive(t, "web1")
	run, _ := all[0].begin(t, protocol.Publish{}, "web1")
	web1.got(t)
	jid := run.plan.Start.JID
	watchers := func() (here, elsewhere int) {
		d := &all[0].audience
		d.mu.Lock()
		defer d.mu.Unlock()
		run.mu.Lock()
		defer run.mu.Unlock()
		return len(run.watchers) - 1, len(d.all) // without that of the test
	}
	user, leave := context.WithCancel(within(t))
	w, err := relay{all[1].Dispatcher}.watchElsewhere(user, "user:0", jid, "m1")
	if err != nil || w == nil {
		t.Fatal(w, err)
	}
	waits := make(chan error)
	go func() { waits <- w.batches(user, func([]update) error { return nil }) }()
	var next *listener
	bustest.Until(t, "it waits for the next update", func() bool {
		all[0].audience.mu.Lock()
		defer all[0].audience.mu.Unlock()
		for _, next = range all[0].audience.all {
		}
		if next.mu.TryLock() { // nobody is answered
			next.mu.Unlock()
			return false
		}
		return true
	})
	begun := time.Now()
	leave()
	if err := <-waits; err == nil {
		t.Error("it goes on")
	}
	w.close()
	bustest.Until(t, "nobody watches any more", func() bool { here, elsewhere := watchers(); return here == 0 && elsewhere == 0 })
	bustest.Until(t, "the request has an answer", func() bool {
		answered := next.mu.TryLock()
		if answered {
			next.mu.Unlock()
		}
		return answered
	})
	if took := time.Since(begun); took > pollTime/2 {
		t.Errorf("it ends only after %s", took)
	}
}

// TestAnswersToMembersAreBounded: a member that asks for more watchers than there may be is
// refused, and one that repeats a request gets the same answer.
func TestAnswersToMembersAreBounded(t *testing.T) {
	all := startNodes(t, 2)
	run, _ := all[0].begin(t, protocol.Publish{Queue: 3600}, "web1")
	jid := run.plan.Start.JID
	ask := func(q poll) (p polled, err error) {
		err = all[1].exchange.Ask(within(t), "m1", kindWatch, q, &p)
		return p, err
	}
	name := bus.NewNonce()
	for range 2 {
		if p, err := ask(poll{jid, name, 1, "", false}); err != nil || len(p.Updates) != 1 || !p.End {
			t.Errorf("%+v, %v", p, err)
		}
	}
	for _, q := range []poll{{jid, name, 3, "", false}, {jid, "x", 1, "", false}, {jid, bus.NewNonce(), 2, "", false}, {"20260101000000000000", bus.NewNonce(), 1, "", false}} {
		if _, err := ask(q); err == nil {
			t.Errorf("%+v is answered", q)
		}
	}
	one := func(user string) error {
		_, err := ask(poll{jid, bus.NewNonce(), 1, user, false})
		if err != nil && rpc.CodeOf(err) != rpc.Busy {
			t.Fatal(err)
		}
		return err
	}
	got := map[string]int{"": 1}
	for n := range 20 {
		user := fmt.Sprint("user:", n)
		for one(user) == nil {
			got[user]++
		}
		if want := userAudience; n < 6 && got[user] != want {
			t.Errorf("user %d follows %d jobs, want %d", n, got[user], want)
		}
		if n < 8 && got[user] == 0 {
			t.Errorf("nothing is free for user %d: %v", n, got)
		}
	}
	for one("") == nil {
		got[""]++
	}
	total := 0
	for _, n := range got {
		total += n
	}
	if total != maxAudience {
		t.Errorf("%d follow, want %d: %v", total, maxAudience, got)
	}
	all[0].audience.mu.Lock()
	names := slices.Collect(maps.Keys(all[0].audience.all))
	all[0].audience.mu.Unlock()
	for _, name := range names {
		relay{all[0].Dispatcher}.dropListener(name)
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	if len(run.watchers) > 1 { // that of the test
		t.Errorf("%d watchers are left", len(run.watchers))
	}
}
