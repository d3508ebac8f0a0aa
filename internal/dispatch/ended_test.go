package dispatch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
)

// stored returns a dispatcher over a real store, and the function that ends it.
func stored(t *testing.T) (*Dispatcher, context.CancelFunc) {
	t.Helper()
	j, err := journal.Open(t.Context(), bustest.StartStore(t).Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	d, err := Open(ctx, Options{Journal: j, Events: written{j}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	return d, cancel
}

// written is the Events of a master, without listeners.
type written struct{ *journal.Journal }

func (w written) AnnounceFor(string, string, any) {}

func (w written) Store(ctx context.Context, tag string, data any, id string) (uint64, error) {
	b, err := json.Marshal(data)
	if err != nil {
		return 0, err
	}
	e, err := event.New(tag, b, "", time.Now())
	if err != nil {
		return 0, err
	}
	return w.Append(ctx, e, id)
}

// planOf puts the plan of a job for web1 into the table.
func (d *Dispatcher) planOf(t *testing.T, jid salt.JID) {
	t.Helper()
	p := plan{Start: job.Start{JID: jid, Minions: []salt.MinionID{"web1"}}, Began: time.Now()}
	if err := d.storePlan(t.Context(), &p, nil); err != nil {
		t.Fatal(err)
	}
}

func (d *Dispatcher) planned(t *testing.T) []string {
	t.Helper()
	keys, err := d.plans.own.Keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	return keys
}

func (d *Dispatcher) store(t *testing.T, tag string, data map[string]any) {
	t.Helper()
	if _, err := d.Events.Store(t.Context(), tag, data, ""); err != nil {
		t.Fatal(err)
	}
}

// Plans of jobs that have ended are deleted after a time, when there are many, and when the
// daemon ends; other plans stay.
func TestPlansOfEndedJobsGo(t *testing.T) {
	t.Parallel()
	d, stop := stored(t)
	jid := func(i int) salt.JID { return salt.JID(fmt.Sprintf("2026010100000000%04d", i)) }
	for i := range maxEnded + 2 {
		d.planOf(t, jid(i))
	}
	for i := range maxEnded {
		d.dropSoon(stalePlan{jid(i), d.plans.name, 0}) // with the last one they are deleted before the time
	}
	deadline.Call(t, d.wg.Wait, "wg")
	if left := d.planned(t); len(left) != 2 {
		t.Fatalf("%d plans are left, want 2", len(left))
	}
	d.dropSoon(stalePlan{jid(maxEnded), d.plans.name, 0})
	stop()
	deadline.Call(t, d.Wait, "d")
	if left := d.planned(t); !slices.Equal(left, []string{string(jid(maxEnded + 1))}) {
		t.Errorf("at the end of the daemon are left: %q", left)
	}
}

// A master that was a member of a cluster carries on the jobs of all members, whose plans are in
// tables of theirs, and deletes each from the table that has it.
func TestPlansOfFormerMembers(t *testing.T) {
	t.Parallel()
	d, _ := stored(t)
	const open, ended = "20260101000000000001", "20260101000000000002"
	table, err := d.Journal.Table(t.Context(), journal.LedTableName(plansTable, "10_0_0_2"))
	if err != nil {
		t.Fatal(err)
	}
	for _, jid := range []salt.JID{open, ended} {
		b, err := (&plan{Start: job.Start{JID: jid, Minions: []salt.MinionID{"web1"}}, Began: time.Now()}).encode(nil)
		if err == nil {
			err = table.Put(t.Context(), string(jid), b)
		}
		if err != nil {
			t.Fatal(err)
		}
		d.store(t, "salt/job/"+string(jid)+"/new", map[string]any{"jid": jid, "fun": "test.ping", "minions": []string{"web1"}, "user": "root"})
	}
	d.store(t, "salt/job/"+ended+"/ret/web1", map[string]any{"jid": ended, "id": "web1", "return": true, "success": true})
	if err := d.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	keys, err := table.Keys(t.Context())
	if err != nil || !slices.Equal(keys, []string{open}) || d.jobs.running(open) == nil {
		t.Errorf("plans are left of %q, %v", keys, err)
	}
}

// Plans of ended jobs that a kill has left are deleted by the next start, which continues only
// jobs with minions that have not finished.
func TestAPlanThatAKillHasLeft(t *testing.T) {
	t.Parallel()
	d, stop := stored(t)
	const ended, open, silent = "20260101000000000001", "20260101000000000002", "20260101000000000003"
	for _, jid := range []string{ended, open, silent} {
		d.planOf(t, salt.JID(jid))
		d.store(t, "salt/job/"+jid+"/new", map[string]any{"jid": jid, "fun": "test.ping", "minions": []string{"web1"}, "user": "root"})
	}
	d.store(t, "salt/job/"+ended+"/ret/web1", map[string]any{"jid": ended, "id": "web1", "return": true, "success": true})
	d.store(t, "salt/job/"+silent+"/state", map[string]any{"jid": silent, "minions": map[string]any{"web1": job.Standing{State: job.Silent}.Data()}})
	if err := d.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := d.planned(t); !slices.Equal(left, []string{open}) {
		t.Errorf("plans are left of %q, want %s", left, open)
	}
	if d.jobs.find(ended) != nil || d.jobs.find(silent) != nil || d.jobs.running(open) == nil {
		t.Error("another job is carried on than the one of which something is expected")
	}
	stop()
	deadline.Call(t, d.Wait, "d")
}

// failing are events that cannot be stored for some time.
type failing struct {
	written
	down   atomic.Bool
	failed atomic.Int64
}

func (f *failing) Store(ctx context.Context, tag string, data any, id string) (uint64, error) {
	if f.down.Load() {
		f.failed.Add(1)
		return 0, errors.New("no leader")
	}
	return f.written.Store(ctx, tag, data, id)
}

// TestAStateIsRecordedAgain: the state of a job that cannot be stored when it changes, or when the job
// ends, is stored later. Until then the plan of the job stays, also over a stop of the master.
func TestAStateIsRecordedAgain(t *testing.T) {
	t.Parallel()
	d, stop := stored(t)
	events := &failing{written: written{d.Journal}}
	d.Events = events
	begin := func(jid salt.JID) *Run {
		d.planOf(t, jid)
		d.store(t, "salt/job/"+string(jid)+"/new", map[string]any{"jid": jid, "fun": "test.ping", "minions": []string{"web1"}, "user": "root"})
		r := newRun(d, plan{Start: job.Start{JID: jid, Minions: []salt.MinionID{"web1"}}, Timeout: 3600, table: d.plans.name}, nil, time.Now())
		r.tracker.Sent("web1", time.Now())
		d.jobs.add(r)
		d.wg.Go(r.run)
		return r
	}
	state := func(jid salt.JID) job.State {
		h, err := d.history(t.Context(), jid)
		if err != nil {
			t.Fatal(err)
		}
		return h.standing("web1").State
	}
	failsTwice := func() {
		t.Helper()
		before := events.failed.Load()
		bustest.Until(t, "it is tried again", func() bool { return events.failed.Load() >= before+2 })
	}
	const first, second = "20260101000000000001", "20260101000000000002"
	run := begin(first)
	for _, s := range []job.State{job.Running, job.Expired} {
		events.down.Store(true)
		run.report("web1", job.Report{State: s}, nil)
		failsTwice()
		if got := state(first); got == s || !slices.Equal(d.planned(t), []string{first}) || d.jobs.running(first) == nil {
			t.Errorf("%s while nothing can be stored: %q, plans are left of %q", s, got, d.planned(t))
		}
		events.down.Store(false)
		bustest.Until(t, "the state is recorded", func() bool { return state(first) == s })
	}
	bustest.Until(t, "the plan is gone", func() bool { return len(d.planned(t)) == 0 })
	run = begin(second)
	events.down.Store(true)
	run.report("web1", job.Report{State: job.Expired}, nil)
	failsTwice()
	stop()
	deadline.Call(t, d.Wait, "d")
	if left := d.planned(t); !slices.Equal(left, []string{second}) {
		t.Errorf("at the end of the daemon are left: %q", left)
	}
}

// TestUnrecordedStatesFillNoLog: the states of many jobs that run at once cannot be stored.
func TestUnrecordedStatesFillNoLog(t *testing.T) {
	conn := bustest.StartStore(t).Conn()
	j, err := journal.Open(t.Context(), conn, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	var log bytes.Buffer
	d, err := Open(t.Context(), Options{Journal: j, Events: written{j}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	for range 100 {
		_ = d.recordStates(salt.NewJID(time.Now()), map[string]any{"web1": map[string]any{"state": "running"}})
	}
	if n := strings.Count(log.String(), "is not recorded"); n == 0 || n > 5 {
		t.Errorf("%d lines: %.500s", n, log.String())
	}
}
