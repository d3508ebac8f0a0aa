package dispatch

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/bus"
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

// TestAJobThatCannotBeRememberedIsRefused: within a second, with the reason and what to do, by a member that
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
	if rpc.CodeOf(err) != rpc.Unavailable || !strings.Contains(err.Error(), "most members of the cluster are not reached") || time.Since(begun) > time.Second {
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

// leader returns the member that leads a stream, "" for none.
func (n *node) leader(of string) string {
	var info struct{ Cluster struct{ Leader string } }
	m, err := n.bus.Conn().Request("$JS.API.STREAM.INFO."+of, nil, time.Second)
	if err != nil || json.Unmarshal(m.Data, &info) != nil {
		return ""
	}
	return info.Cluster.Leader
}

// leadsItsPlans waits until a member leads the table of its plans.
func (n *node) leadsItsPlans(t *testing.T) {
	t.Helper()
	bustest.Until(t, n.bus.Name+" leads its plans", func() bool { return n.leader("KV_"+n.plans.name) == n.bus.Name })
}

// letLead makes another member lead a stream of this one.
func (n *node) letLead(t *testing.T, stream, leads string) {
	t.Helper()
	n.Journal.Yield()
	bustest.Until(t, leads+" leads "+stream, func() bool { // the server may choose another one than the preferred one, or none
		at := n.leader(stream)
		if at != "" && at != leads {
			_, _ = n.bus.Conn().Request("$JS.API.STREAM.LEADER.STEPDOWN."+stream, []byte(`{"placement": {"preferred": "`+leads+`"}}`), 5*time.Second)
		}
		return at == leads
	})
}

// TestAStartWaitsForAnElection: another member leads the plans of one, as it does for some seconds
// after that was started, and is killed. A job that is started at that moment waits until there is
// a new leader.
func TestAStartWaitsForAnElection(t *testing.T) {
	t.Parallel()
	_, all := startCluster(t)
	alive, leads := all[1], all[0].bus.Name
	alive.leadsItsPlans(t)
	alive.letLead(t, "KV_"+alive.plans.name, leads)
	web1 := alive.arrive(t, "web1")
	caller := alive.bus.As(t, bus.RoleUser, "")
	all[0].die(t)
	stream, err := rpc.NewConn(caller.Conn, caller.Self).Call(protocol.OpPublish, protocol.Publish{
		Target: "web1", TargetType: "glob", Commands: []job.Command{{Function: "test.ping"}}, Timeout: job.Seconds(20), Waiting: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	var told, start job.Start
	if err := stream.Decode(within(t), &told); err != nil || told.Waiting != protocol.Electing {
		t.Errorf("the caller of a job in the election is told %+v, %v", told, err)
	}
	if err := stream.Decode(within(t), &start); err != nil || start.JID == "" || start.Waiting != "" {
		t.Errorf("a job in the election: %+v, %v", start, err)
	}
	web1.got(t)
	run, _ := alive.begin(t, protocol.Publish{Queue: 3600}, "web1")
	if !run.holds() {
		t.Error("it does not hold its job")
	}
}

// TestACallerLearnsThatReturnsWait: another member leads the journal of one, and is cut off while a job of that one runs.
// The return waits for a new leader, and the caller is told so, once, before it comes. Nobody else is.
func TestACallerLearnsThatReturnsWait(t *testing.T) {
	t.Parallel()
	s, all := startCluster(t)
	alive, leader := all[1], all[0]
	web1 := alive.arrive(t, "web1")
	alive.letLead(t, "EVENTS_"+alive.bus.Name, leader.bus.Name)
	caller := alive.bus.As(t, bus.RoleUser, "")
	conn := rpc.NewConn(caller.Conn, caller.Self)
	q := protocol.Publish{Target: "web1", TargetType: "glob", Commands: []job.Command{{Function: "test.ping"}}, Timeout: job.Seconds(2), Lines: true}
	var streams []*rpc.Stream
	var jids []salt.JID
	for _, q.Waiting = range []bool{true, false} {
		stream, err := conn.Call(protocol.OpPublish, q)
		if err != nil {
			t.Fatal(err)
		}
		start := job.Start{Waiting: "-"}
		for start.Waiting != "" { // until the member knows its new leader
			start = job.Start{}
			if err := stream.Decode(within(t), &start); err != nil {
				t.Fatal(err)
			}
		}
		web1.got(t)
		streams, jids = append(streams, stream), append(jids, start.JID)
	}
	s.Isolate(t, leader.bus) // the returns come at once: until a killed one has ended there may be a new leader
	for _, jid := range jids {
		if err := web1.says(t, jid, done("ok")); err != nil {
			t.Error(err)
		}
	}
	for i, stream := range streams {
		told := 0
		var last job.Update
		for {
			b, err := stream.Next(within(t))
			if err != nil {
				break
			}
			for line := range bytes.SplitSeq(b, []byte("\n")) {
				if what, ok := job.ReadWaiting(line); ok && what == protocol.Electing {
					told++
				} else if last, err = job.ReadUpdate(line); err != nil {
					t.Error(err)
				}
			}
		}
		if want := 1 - i; told != want || last.State != job.Done {
			t.Errorf("caller %d was told %d times, want %d; at the end %+v", i, told, want, last)
		}
	}
}

// TestAStartDoesNotWaitForTheDead: a member that was killed leads nothing that a job of another one
// needs, so that is started at once, although the others elect leaders for four seconds or more.
func TestAStartDoesNotWaitForTheDead(t *testing.T) {
	t.Parallel()
	_, all := startCluster(t)
	for _, n := range all {
		n.leadsItsPlans(t)
	}
	all[0].die(t)
	for _, n := range all[1:] {
		begun := time.Now()
		n.begin(t, protocol.Publish{Queue: 3600}, "web1")
		took := time.Since(begun)
		t.Logf("%s has started a job after %s", n.bus.Name, took)
		if took > 2*time.Second { // a moment; an election takes four seconds at least
			t.Errorf("%s has started a job only after %s", n.bus.Name, took)
		}
	}
}
