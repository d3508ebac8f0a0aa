package dispatch

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// TestAnElectionGivesNoMinionUp: another member leads the journal of one, and is killed after a job was sent. Returns
// arrive from a minion itself, from an outbox and over the third member, and wait until there is a new leader, longer than
// the timeout of the job. One comes only after that, as if it had waited behind other messages.
func TestAnElectionGivesNoMinionUp(t *testing.T) {
	t.Parallel()
	_, all := startCluster(t)
	dies, owner, third := all[0], all[1], all[2]
	direct, boxed, late, passed := owner.arrive(t, "web1"), owner.arrive(t, "web2"), owner.arrive(t, "web3"), third.arrive(t, "web4")
	owner.know(t, "web4")
	owner.letLead(t, "EVENTS_"+owner.bus.Name, dies.bus.Name)
	run, w := owner.begin(t, protocol.Publish{Timeout: 2}, "web1", "web2", "web3", "web4")
	jid := run.plan.Start.JID
	for _, m := range []*minion{direct, boxed, late, passed} {
		m.got(t)
	}
	dies.die(t)
	var returning sync.WaitGroup
	returning.Go(func() {
		if err := direct.says(t, jid, done("1")); err != nil {
			t.Error(err)
		}
	})
	returning.Go(func() {
		if err := boxed.delivers(t, 1, jid, done("2")); err != nil {
			t.Error(err)
		}
	})
	returning.Go(func() {
		if err := passed.says(t, jid, done("4")); err != nil {
			t.Error(err)
		}
	})
	waited := time.Duration(0)
	bustest.Until(t, "something waits", func() bool { return owner.Journal.Waited() > 0 })
	bustest.Until(t, "there is a leader", func() bool {
		now := owner.Journal.Waited()
		waited = max(waited, now)
		return now == 0
	})
	if err := late.says(t, jid, done("3")); err != nil {
		t.Error(err)
	}
	returning.Wait()
	if waited < run.plan.Timeout.Duration() {
		t.Errorf("nothing has waited for longer than %s", waited)
	}
	err := w.each(within(t), func(u update) error {
		if u.State != job.Done {
			t.Errorf("%s is %q: %s", u.ID, u.State, u.Text)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestAReturnThatWaitsElsewhere: a return has arrived at a member that cannot store it or pass it on yet. The member that
// has sent the job does not give the minion up, until the other one says no more.
func TestAReturnThatWaitsElsewhere(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 2)
	web1 := all[1].arrive(t, "web1")
	all[0].know(t, "web1")
	run, w := all[0].begin(t, protocol.Publish{Timeout: 2}, "web1")
	jid := run.plan.Start.JID
	web1.got(t)
	end := all[1].Arrived(within(t), "web1", []salt.JID{jid})
	begun := time.Now()
	bustest.Until(t, "the timeout has passed twice", func() bool { return time.Since(begun) > 2*run.plan.Timeout.Duration() })
	if s := run.standings()["web1"]; s.State != job.Received {
		t.Errorf("while the return waits the minion is %+v", s)
	}
	end()
	if got, want := states(t, w), "web1=no response(<nil>)"; got != want {
		t.Errorf("after that it is %s, want %s", got, want)
	}
}

// TestASlowStoreIsNoElection: a store that is slow all the time does not move the timeouts of a job for ever.
func TestASlowStoreIsNoElection(t *testing.T) {
	t.Parallel()
	d := startNodes(t, 2)[0]
	web1 := d.arrive(t, "web1")
	run, _ := d.begin(t, protocol.Publish{Timeout: 60}, "web1")
	web1.got(t)
	now := time.Now()
	for n := range 3 * maxStalls {
		run.mu.Lock()
		run.stalled = true
		now = now.Add(50 * time.Second)
		given, _ := tick(run, now)
		run.mu.Unlock()
		if late := n >= maxStalls+1; (len(given) > 0) != late {
			t.Fatalf("after %d stalls %d minions are given up", n+1, len(given))
		} else if late {
			return
		}
	}
}

// busy is a member that has too many requests under way to take jobs.
type busy struct {
	Members
	until atomic.Pointer[time.Time]
}

func (b *busy) Ask(ctx context.Context, member, kind string, body, answer any) error {
	if kind == kindJob && time.Now().Before(*b.until.Load()) {
		return rpc.Errorf(rpc.Busy, "2048 requests are under way")
	}
	return b.Members.Ask(ctx, member, kind, body, answer)
}

// TestTheTimeoutBeginsWhenTheMemberHasTheJob: a member takes a job for a minion only after the timeout of the job. The
// minion has the whole timeout to answer. If the member does not take it at all, the reason is named.
func TestTheTimeoutBeginsWhenTheMemberHasTheJob(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 2)
	web1 := all[1].arrive(t, "web1")
	all[0].know(t, "web1")
	to := &busy{Members: all[0].Members}
	until := time.Now().Add(3 * time.Second)
	to.until.Store(&until)
	all[0].Members = to
	run, w := all[0].begin(t, protocol.Publish{Timeout: 2}, "web1")
	web1.got(t)
	if s := run.standings()["web1"]; s.State != job.Sent {
		t.Errorf("as it gets the job the minion is %+v", s)
	}
	if err := web1.says(t, run.plan.Start.JID, done("ok")); err != nil {
		t.Error(err)
	}
	if got, want := states(t, w), "web1=done(ok)"; got != want {
		t.Errorf("the minion is %s, want %s", got, want)
	}
	never := until.Add(time.Hour)
	to.until.Store(&never)
	run, w = all[0].begin(t, protocol.Publish{Timeout: 1}, "web1")
	if got, want := states(t, w), "web1=not connected(<nil>)"; got != want {
		t.Errorf("the minion is %s, want %s", got, want)
	}
	if s := run.standings()["web1"]; !strings.Contains(s.Text, "member m2") || !strings.Contains(s.Text, "2048 requests") {
		t.Errorf("without the reason: %+v", s)
	}
}
