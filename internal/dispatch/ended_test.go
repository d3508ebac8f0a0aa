package dispatch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
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
		d.recordStates(salt.NewJID(time.Now()), map[string]any{"web1": map[string]any{"state": "running"}})
	}
	if n := strings.Count(log.String(), "is not recorded"); n == 0 || n > 5 {
		t.Errorf("%d lines: %.500s", n, log.String())
	}
}
