package dispatch

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/capture"
)

// synced records for which streams of a store somebody has waited.
type synced struct {
	journal.Store
	streams []string
}

func (s *synced) Sync(stream string) error {
	s.streams = append(s.streams, stream)
	return s.Store.Sync(stream)
}

// With journal_sync always, the plan of a plain job is on the disk before its start is: after a
// power cut between the two there would otherwise be a job that is known, but never continued.
func TestPlansSurviveWhatJobsSurvive(t *testing.T) {
	t.Parallel()
	b, err := broker.Start(broker.Options{
		Name: "test", StoreDir: t.TempDir(), Sync: broker.SyncAlways, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Admit: func(broker.Peer) bus.Identity { return bus.Identity{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	disk := &synced{Store: b.Store()}
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{Store: disk})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	d, err := Open(t.Context(), Options{Journal: j})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.storePlan(t.Context(), &plan{Start: job.Start{JID: "20260101000000000001"}, Began: time.Now()}, nil); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(disk.streams, "KV_"+plansTable) {
		t.Errorf("synced are %v", disk.streams)
	}
}

// begunBefore begins a job, and ends its run as a kill does. Some of its minions have returned.
func (d *Dispatcher) begunBefore(t *testing.T, p plan, returned ...string) plan {
	t.Helper()
	batch, err := job.NewBatch(p.Batch, p.Start.Minions)
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.start(within(t), d, batch, time.Now(), direct)
	if err != nil {
		t.Fatal(err)
	}
	d.jobs.forget(r)
	jid := string(p.Start.JID)
	for _, id := range returned {
		d.store(t, "salt/job/"+jid+"/ret/"+id, map[string]any{"jid": jid, "id": id, "return": true, "success": true})
	}
	return r.plan
}

// forgets removes what the journal has, but for the newest events.
func (d *Dispatcher) forgets(t *testing.T, newest uint64) {
	t.Helper()
	last, err := d.Journal.Last(within(t))
	if err == nil {
		_, err = d.Journal.Purger().PurgeBefore(within(t), last+1-newest)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// batchPlan returns the plan of a batch over four minions, one at a time, of which none may fail.
func (d *Dispatcher) batchPlan() plan {
	p := d.queuedPlan()
	p.Start.JID = salt.JID(time.Now().Add(-time.Hour).Format("20060102150405") + "000001")
	p.Envelope.JID = p.Start.JID
	p.Start.Minions, p.Start.Missing, p.Start.Batch = []salt.MinionID{"web1", "web2", "web3", "web4"}, nil, true
	p.Batch, p.Keys, p.Until = job.BatchOptions{Size: "1", MaxFail: "0"}, anyKeys{}.Tokens(p.Start.Minions), time.Time{}
	return p
}

// TestABatchWhoseStartIsGoneGoesOn: a batch that takes longer than the journal keeps jobs, or whose start was purged, is carried
// on after a restart and a takeover. Minions that have had their turn do not get another one, also if what they have returned
// is gone. That is no failure of theirs.
func TestABatchWhoseStartIsGoneGoesOn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		kept    uint64 // of the events of the job, the newest
		waiting []salt.MinionID
		web1    job.State
	}{
		{"all is there", 3, []salt.MinionID{"web3", "web4"}, job.Done},
		{"without its start", 2, []salt.MinionID{"web3", "web4"}, job.Done},
		{"without its start and a return", 1, []salt.MinionID{"web3", "web4"}, job.Silent},
		{"without anything", 0, []salt.MinionID{"web1", "web2", "web3", "web4"}, job.Queued},
	} {
		for _, cluster := range []bool{false, true} {
			d, _ := storedOn(t)
			end := func() {}
			if cluster {
				end = d.leaseAnew(t)
			}
			jid := d.begunBefore(t, d.batchPlan(), "web1", "web2").Start.JID
			if c.kept == 0 { // the newest event always stays
				d.store(t, "other", map[string]any{})
				d.forgets(t, 1)
			} else {
				d.forgets(t, c.kept)
			}
			if cluster {
				end()
				d.leaseAnew(t)
				finder := &takeover{relay: relay{d}, unread: map[salt.JID]plan{}, unsure: map[salt.JID]bool{}}
				if err := finder.take(within(t), jid); err != nil {
					t.Errorf("%s: taken over: %v", c.name, err)
				}
			} else if err := d.Resume(within(t)); err != nil {
				t.Fatal(err)
			}
			r := d.jobs.running(jid)
			if r == nil || r.batch == nil {
				t.Errorf("%s, in a cluster: %t: it is not carried on", c.name, cluster)
				continue
			}
			r.mu.Lock()
			if rest := r.batch.Clear(); !slices.Equal(rest, c.waiting) || r.batch.Failed() > 0 || r.tracker.Standings()["web1"].State != c.web1 {
				t.Errorf("%s, in a cluster: %t: the turn of %v has not come, %d have failed, the states are %v", c.name, cluster, rest, r.batch.Failed(), r.tracker.Standings())
			}
			r.mu.Unlock()
		}
	}
}

// TestAMinionThatMayHaveReturnedHasNotFailed: one whose return is gone says that it had the job before, and then nothing more.
// The batch does not stop for that.
func TestAMinionThatMayHaveReturnedHasNotFailed(t *testing.T) {
	t.Parallel()
	d, _ := storedOn(t)
	jid := d.begunBefore(t, d.batchPlan(), "web1").Start.JID
	d.store(t, "other", map[string]any{})
	d.forgets(t, 1)
	if err := d.Resume(within(t)); err != nil {
		t.Fatal(err)
	}
	r := d.jobs.running(jid)
	if r == nil {
		t.Fatal("it is not carried on")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if turn, _ := r.batch.Next(time.Now()); !slices.Equal(turn, []salt.MinionID{"web1"}) || !r.tracker.Sent("web1", time.Now()) {
		t.Fatalf("the turn is that of %v", turn)
	}
	r.notify(r.tracker.Report("web1", job.Report{State: job.Received, Text: "it came before"}, time.Now()))
	given, _ := r.tracker.Tick(time.Now().Add(24 * time.Hour))
	for i := range given {
		r.notify(&given[i])
	}
	if turn, _ := r.batch.Next(time.Now()); !slices.Equal(turn, []salt.MinionID{"web2"}) || r.batch.Failed() > 0 {
		t.Errorf("after it the turn is that of %v, %d have failed", turn, r.batch.Failed())
	}
}

// TestAQueuedJobWhoseStartIsGoneWaits for its minions, as before.
func TestAQueuedJobWhoseStartIsGoneWaits(t *testing.T) {
	t.Parallel()
	d, _ := storedOn(t)
	p := d.begunBefore(t, d.queuedPlan())
	d.store(t, "other", map[string]any{})
	d.forgets(t, 1)
	if err := d.Resume(within(t)); err != nil {
		t.Fatal(err)
	}
	r := d.jobs.running(p.Start.JID)
	if r == nil {
		t.Fatal("it is not carried on")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.tracker.Parked("web1") {
		t.Errorf("it does not wait: %v", r.tracker.Standings())
	}
}

// TestAJobThatWasNeverBegunIsDropped: the plan is stored before the start. The log says that such a job is not carried on.
func TestAJobThatWasNeverBegunIsDropped(t *testing.T) {
	t.Parallel()
	d, _ := storedOn(t)
	var log capture.Buffer
	d.Log = slog.New(slog.NewTextHandler(&log, nil))
	p := d.batchPlan()
	batch, err := job.NewBatch(p.Batch, p.Start.Minions)
	if err == nil {
		err = d.storePlan(within(t), &p, batch)
	}
	if err != nil {
		t.Fatal(err)
	}
	d.store(t, "other", map[string]any{})
	if err := d.Resume(within(t)); err != nil {
		t.Fatal(err)
	}
	e, err := d.plans.find(within(t), p.Start.JID, "")
	if err != nil || e.Value != nil || d.jobs.running(p.Start.JID) != nil {
		t.Errorf("its plan is %s, %v", e.Value, err)
	}
	if !strings.Contains(log.String(), "jid="+string(p.Start.JID)) || !strings.Contains(log.String(), "level=WARN") {
		t.Errorf("the log says %q", log.String())
	}
}
