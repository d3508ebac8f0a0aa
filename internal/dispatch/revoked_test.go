package dispatch

import (
	"testing"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/salt"
)

// deletedKeys accepts the key of nobody but web2.
type deletedKeys struct{ anyKeys }

func (deletedKeys) Accepts(id salt.MinionID, _ string) bool { return id == "web2" }

// TestAJobEndsWithTheKeyOfItsMinion: a minion whose key is deleted while it has a job cannot come back and return it. Nobody
// waits for it for the whole timeout, nor the job in the queue, whether the key or the end of the connection is heard of first.
func TestAJobEndsWithTheKeyOfItsMinion(t *testing.T) {
	t.Parallel()
	for name, until := range map[string]time.Time{"one that is sent now": {}, "one that may wait": time.Now().Add(time.Hour)} {
		for _, keyFirst := range []bool{true, false} {
			d := &Dispatcher{Options: Options{Keys: anyKeys{}}}
			d.jobs = newJobs(func(salt.JID) bool { return false })
			ids := []salt.MinionID{"web1", "web2", "web3"}
			p := plan{Start: job.Start{JID: d.NextJID(), Minions: ids}, Until: until, Timeout: 3600, Keys: map[salt.MinionID]string{"web1": "a key", "web2": "a key", "web3": "a key"}}
			r := newRun(d, p, nil, time.Now())
			for _, id := range ids {
				r.tracker.Sent(id, time.Now())
			}
			d.jobs.add(r)
			if !keyFirst {
				d.Lost("web1")
				d.Lost("web2")
			}
			d.Keys = deletedKeys{}
			d.Revoke()
			if keyFirst {
				d.Lost("web1")
				d.Lost("web2")
			}
			got := r.standings()
			if web1 := got["web1"]; !web1.State.Final() || web1.Text != "its key is no longer accepted" {
				t.Errorf("%s, key first: %v: the minion whose key is deleted is at %q, %q", name, keyFirst, web1.State, web1.Text)
			}
			if got["web2"].State.Final() || got["web3"].State != job.Sent {
				t.Errorf("%s, key first: %v: one that is merely away, and one whose connection has not ended yet: %v", name, keyFirst, got)
			}
			if u := r.tracker.Report("web1", job.Report{State: job.Done}, time.Now()); until.IsZero() && u == nil {
				t.Errorf("%s: a return that was on its way does not count", name)
			}
		}
	}
}
