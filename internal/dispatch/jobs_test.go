package dispatch

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/salt"
)

// finished puts a job that has ended into memory.
func (d *Dispatcher) finished(jid salt.JID, args []any, ids ...salt.MinionID) *Run {
	p := plan{Start: job.Start{JID: jid, Minions: ids}, Envelope: job.Envelope{JID: jid, Commands: []job.Command{{Function: "test.echo", Args: args}}}}
	r := newRun(d, p, nil, time.Now())
	d.jobs.add(r)
	for _, id := range ids {
		d.jobs.note(r.job, id, true)
	}
	d.jobs.forget(r)
	return r
}

func someJID(i int) salt.JID { return salt.JID(fmt.Sprintf("2026010100000000%04d", i)) }

// heap returns how many bytes are in use.
func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestAMinionComesAndGoesAmongManyJobs: what that takes does not grow with the jobs of others, and its own
// jobs hear of it, also those that were taken over or have ended since.
func TestAMinionComesAndGoesAmongManyJobs(t *testing.T) { // not parallel: it measures
	d := &Dispatcher{Options: Options{Keys: anyKeys{}}}
	d.jobs = newJobs(func(salt.JID) bool { return false })
	begin := func(until time.Time, ids ...salt.MinionID) *Run {
		p := plan{Start: job.Start{JID: d.NextJID(), Minions: ids}, Until: until, Timeout: 3600, Keys: map[salt.MinionID]string{"web1": "a key"}}
		r := newRun(d, p, nil, time.Now())
		for _, id := range ids {
			r.tracker.Sent(id, time.Now())
		}
		d.jobs.add(r)
		return r
	}
	for i := range 2000 {
		begin(time.Now().Add(time.Hour), salt.MinionID(fmt.Sprint("other", i)), "web2")
	}
	first, second, third := begin(time.Time{}, "web1", "web2"), begin(time.Time{}, "web1"), begin(time.Now().Add(time.Hour), "web1")
	jids := []salt.JID{first.plan.Start.JID, second.plan.Start.JID, third.plan.Start.JID}
	if got := d.jobs.open("web1"); !slices.Equal(got, jids) {
		t.Errorf("its jobs are %v, want %v", got, jids)
	}
	if all, waiting := d.UnderWay(); all != 2003 || waiting != 2001 {
		t.Errorf("%d jobs are under way, %d wait", all, waiting)
	}
	d.Lost("web1")
	if first.standings()["web1"].State != job.Disconnected || first.standings()["web2"].State == job.Disconnected || third.standings()["web1"].State != job.Queued {
		t.Errorf("lost: %v, %v", first.standings(), third.standings())
	}
	d.Back("web1", "a key")
	if !slices.Equal(third.due, []salt.MinionID{"web1"}) || len(second.due) > 0 {
		t.Errorf("back: %v, %v", third.due, second.due)
	}
	d.jobs.forget(second)
	d.jobs.passTo(third, "m2")
	if got := d.jobs.open("web1"); !slices.Equal(got, jids[:1]) {
		t.Errorf("its jobs are %v, want %v", got, jids[:1])
	}
	d.jobs.forget(first)
	if n := testing.AllocsPerRun(10, func() { d.Lost("web1"); d.Back("web1", "a key"); d.jobs.open("web1") }); n > 0 || d.jobs.of["web1"] != nil {
		t.Errorf("a minion without jobs takes %v pieces of memory", n)
	}
}

// TestTheMemoryOfJobsIsCounted, however what is known of them changes.
func TestTheMemoryOfJobsIsCounted(t *testing.T) {
	t.Parallel()
	d := &Dispatcher{}
	d.jobs = newJobs(func(salt.JID) bool { return false })
	d.finished(someJID(1), []any{"a"}, "web1", "web2")
	for i := range 3 { // again from another member, with more minions
		k := &Job{fun: "test.ping", owner: "m2"}
		if err := d.jobs.noteElsewhere(someJID(2), k.measured(), []salt.MinionID{salt.MinionID(fmt.Sprint("web", i)), "web9"}); err != nil {
			t.Fatal(err)
		}
	}
	elsewhere := d.jobs.find(someJID(2))
	for range 2 {
		d.jobs.note(elsewhere, "web1", true)
	}
	counts := func() {
		t.Helper()
		if want := d.counted(); d.jobs.size != want || len(d.jobs.order) != len(d.jobs.known) {
			t.Fatalf("%d bytes are counted, want %d; %d jobs of %d", d.jobs.size, want, len(d.jobs.order), len(d.jobs.known))
		}
	}
	counts()
	body, _ := json.Marshal(map[string]any{"minions": []string{"web0", "web1", "web2", "web9", "web10"}, "fun": "test.ping"})
	e, err := ownEvent("salt/job/x/new", map[string]any{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	e.Data = body
	if _, err := d.jobs.load(someJID(2), e, "m2", ""); err != nil {
		t.Fatal(err)
	}
	r := d.finished(someJID(3), nil, "web1")
	d.jobs.passTo(r, "m3")
	for range maxKnown { // and at last all others go
		counts()
		d.finished(d.NextJID(), nil, "web1")
	}
	d.jobs.note(r.job, "web2", true) // by one who had it before
	counts()
	if d.jobs.find(someJID(1)) != nil || !slices.IsSorted(d.jobs.order) {
		t.Error("it is not the oldest jobs that go")
	}
}

// counted is what the jobs in memory should count.
func (d *Dispatcher) counted() (n int) {
	for _, k := range d.jobs.known {
		n += jobSize + k.size + minionSize*len(k.minions) + returnSize*len(k.returned)
	}
	return n
}
