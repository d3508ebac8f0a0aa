package dispatch

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// newPlan returns the plan of a new job for one minion.
func (n *node) newPlan() plan {
	jid := n.NextJID()
	return plan{Start: job.Start{JID: jid, Minions: []salt.MinionID{"web1"}}, Began: time.Now(), Envelope: job.Envelope{JID: jid, User: "root"}}
}

// TestAJobThatCannotBeRememberedIsRefused: soon, with the reason and what to do, by a member that
// does not reach the others; it starts jobs again when it does.
func TestAJobThatCannotBeRememberedIsRefused(t *testing.T) {
	t.Parallel()
	s, all := startCluster(t)
	d := relay{all[0].Dispatcher}
	if err := d.ready(); err != nil {
		t.Fatal(err)
	}
	s.Isolate(t, all[0].bus)
	bustest.Until(t, "it knows", func() bool { return d.ready() != nil })
	p, begun := all[0].newPlan(), time.Now()
	err := all[0].storePlan(within(t), &p, nil)
	if rpc.CodeOf(err) != rpc.Unavailable || !strings.Contains(err.Error(), "most members of the cluster are not reached") || time.Since(begun) > 5*time.Second { // a moment, on an idle machine
		t.Errorf("after %s: %v", time.Since(begun), err)
	}
	var e *rpc.Error
	if !errors.As(err, &e) || !strings.Contains(e.Hint, "cluster.status") {
		t.Errorf("without a hint: %+v", e)
	}
	s.Rejoin(all[0].bus)
	bustest.Until(t, "it starts jobs again", func() bool {
		p := all[0].newPlan()
		return all[0].storePlan(within(t), &p, nil) == nil
	})
}

// TestAStartWaitsForAnElection: the member that leads the table of plans is killed, and a job that
// another member starts at that moment waits until there is a new leader.
func TestAStartWaitsForAnElection(t *testing.T) {
	t.Parallel()
	_, all := startCluster(t)
	leads := ""
	bustest.Until(t, "the table has a leader", func() bool {
		var info struct{ Cluster struct{ Leader string } }
		m, err := all[0].bus.Conn().Request("$JS.API.STREAM.INFO.KV_"+plansTable, nil, time.Second)
		if err == nil {
			err = json.Unmarshal(m.Data, &info)
		}
		leads = info.Cluster.Leader
		return err == nil && leads != ""
	})
	var alive *node
	for _, n := range all {
		if n.bus.Name == leads {
			n.die(t)
		} else {
			alive = n
		}
	}
	p := alive.newPlan()
	if err := alive.storePlan(within(t), &p, nil); err != nil {
		t.Errorf("a job in the election: %v", err)
	}
	run, _ := alive.begin(t, protocol.Publish{Queue: 3600}, "web1")
	if !run.holds() {
		t.Error("it does not hold its job")
	}
}
