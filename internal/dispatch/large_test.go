//go:build !race

// What takes much of the processor with the race detector, and shows it nothing that other tests do not.

package dispatch

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/lease"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// TestFinishedJobsTakeLimitedMemory: those with many minions, and those with long arguments. A job that has
// gone from memory is known from the journal, with its returns; the newest ones, unfinished ones and those
// that are only in the spool stay.
func TestFinishedJobsTakeLimitedMemory(t *testing.T) { // not parallel: it measures
	d, _ := stored(t)
	const first, spooled, long = "20260101000000000001", "20260101000000000002", "20260101000000000003"
	d.store(t, "salt/job/"+first+"/new", map[string]any{"jid": first, "fun": "test.ping", "minions": []string{"web1", "web2"}, "user": "root"})
	d.store(t, "salt/job/"+first+"/ret/web1", map[string]any{"jid": first, "id": "web1", "return": true, "success": true})
	inSpool := true
	d.jobs = newJobs(func(jid salt.JID) bool { return jid == spooled && inSpool })
	before := heap()
	d.finished(first, nil, "web1", "web2")
	kept := newRun(d, plan{Start: job.Start{JID: spooled, Minions: []salt.MinionID{"web1"}}, spooled: true}, nil, time.Now())
	d.jobs.add(kept)
	d.jobs.forget(kept)
	open := newRun(d, plan{Start: job.Start{JID: long, Minions: []salt.MinionID{"web1"}}}, nil, time.Now())
	d.jobs.add(open)
	grown := func(what string) {
		t.Helper()
		if n := heap() - before; n > maxKnownSize*5/4 {
			t.Errorf("%s take %d MiB", what, n>>20)
		}
	}
	for i := range 500 {
		ids := make([]salt.MinionID, 5000)
		for k := range ids {
			ids[k] = salt.MinionID(fmt.Sprint("minion", k))
		}
		d.finished(someJID(1000+i), nil, ids...)
	}
	grown("jobs with many minions")
	for i := range 100 {
		d.finished(someJID(2000+i), []any{map[string]any{"text": strings.Repeat("x", 1<<20)}}, "web1")
	}
	grown("jobs with long arguments")
	if d.jobs.find(someJID(2099)) == nil || d.jobs.find(spooled) == nil || d.jobs.find(long) == nil {
		t.Error("the newest job, an unfinished one or one of the spool is gone")
	}
	if d.jobs.find(first) != nil {
		t.Error("the oldest job is still in memory")
	}
	k, err := d.Lookup(t.Context(), first)
	if err != nil || k == nil || k.User != "root" || len(k.minions) != 2 {
		t.Fatalf("it is %+v, %v", k, err)
	}
	for _, id := range []salt.MinionID{"web1", "web2"} {
		if found, err := (relay{d}).hasReturn(t.Context(), k, said{Minion: id, JID: first}); err != nil || found != (id == "web1") {
			t.Errorf("%s has returned: %v, %v", id, found, err)
		}
	}
	inSpool = false
	for i := range maxKnown {
		d.finished(someJID(3000+i), nil, "web1")
	}
	if d.jobs.find(spooled) != nil || len(d.jobs.known) > maxKnown || len(d.jobs.order) > maxKnown {
		t.Errorf("%d jobs are in memory", len(d.jobs.known))
	}
	runtime.KeepAlive(d)
}

// TestAPlanThatIsTooLarge: a batch or a queued job is refused with what to do, and not as if there were no
// leader; a plain job is started, and followed after a restart.
func TestAPlanThatIsTooLarge(t *testing.T) {
	t.Parallel()
	_, all := startCluster(t)
	all[0].leadsItsPlans(t)
	large, batch := planFor(t, 20_000, scattered)
	large.Start.JID = all[0].NextJID()
	for name, change := range map[string]func(*plan) *job.Batch{
		"the batch":      func(*plan) *job.Batch { return batch },
		"the queued job": func(p *plan) *job.Batch { p.Until = time.Now().Add(time.Hour); return nil },
	} {
		p := large
		err := all[0].storePlan(within(t), &p, change(&p))
		var e *rpc.Error
		if rpc.CodeOf(err) != rpc.Usage || !strings.Contains(err.Error(), name+" cannot be stored: its 20000 minions") || !errors.As(err, &e) || !strings.Contains(e.Hint, "fewer minions") {
			t.Errorf("%s: %v", name, err)
		}
	}
	plain := large
	plain.Start.Minions = plain.Start.Minions[:10_000]
	plain.Envelope.Commands = []job.Command{{Function: "test.echo", Args: []any{strings.Repeat("x", maxUnpacked)}}}
	if err := all[0].storePlan(within(t), &plain, nil); err != nil {
		t.Fatal(err)
	}
	if e, err := all[1].plans.find(within(t), plain.Start.JID, ""); err != nil {
		t.Error(err)
	} else if p, err := readPlan(e.Value); err != nil || len(p.Keys) > 0 || len(p.Start.Minions) != 10_000 || p.Envelope.Commands[0].Function != "test.echo" {
		t.Errorf("stored is the plan %+v, %v", p.Start.JID, err)
	}
}

// TestAPlanThatFitsIsTakenOver: the largest plan that is stored can be stored again with another holder.
func TestAPlanThatFitsIsTakenOver(t *testing.T) {
	t.Parallel()
	p, batch := planFor(t, 1, numbered)
	text := make([]byte, 2*maxPlan)
	for i := range text {
		text[i] = byte('0' + rand.N(64))
	}
	encode := func(n int) error {
		p.Envelope.Commands[0].Args[0] = string(text[:n])
		_, err := p.encode(batch)
		return err
	}
	n := sort.Search(len(text), func(n int) bool { return encode(n+1) != nil })
	if err := encode(n); err != nil || encode(n+1) == nil || n < maxPlan {
		t.Fatalf("%d bytes fit, %v", n, err)
	}
	p.Holder, p.revision = lease.Holder{Member: strings.Repeat("m", 200)}, 1
	if err := encode(n); err != nil {
		t.Errorf("with another holder: %v", err)
	}
	if err := encode(len(text)); rpc.CodeOf(err) != rpc.Usage {
		t.Errorf("a larger one with another holder: %v", err)
	}
}
