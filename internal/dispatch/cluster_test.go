package dispatch

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/bustest"
)

// startCluster starts three members whose journals have copies at all of them.
func startCluster(t *testing.T) (*bustest.System, []*node) {
	t.Helper()
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	var journals []*journal.Journal
	for _, m := range s.Members {
		journals = append(journals, openJournal(t, m))
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

func openJournal(t *testing.T, m *bustest.Member) *journal.Journal {
	t.Helper()
	ctx, cancel := context.WithTimeout(journal.Starting(t.Context()), 2*time.Minute)
	defer cancel()
	j, err := journal.Open(ctx, m.Conn(), journal.Options{Store: m.Store(), Copies: 3, Name: m.Name, Server: m.Name, Names: filepath.Join(m.Dir, "names")})
	if err != nil {
		t.Fatalf("%s: %v", m.Name, err)
	}
	t.Cleanup(j.Close)
	return j
}

func allJournals(t *testing.T, m *bustest.Member, own *journal.Journal) journal.All {
	t.Helper()
	ctx, cancel := context.WithTimeout(journal.Starting(t.Context()), 2*time.Minute)
	defer cancel()
	peers, err := journal.Peers(ctx, m.Conn(), m.Name, m.Store())
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
