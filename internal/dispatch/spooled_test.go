package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/clustertest"
)

// spooling gives a node a spool for when it does not reach most members, and the audit log that
// stores what is in it.
func (n *node) spooling(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(n.bus.Dir, "unstored")
	s, err := audit.OpenSpool(audit.SpoolOptions{Path: path, Log: n.bus.Log, Lost: func() error {
		if err := n.bus.Store().Err(); errors.Is(err, broker.ErrMinority) {
			return err
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, dir := clustertest.Starting(t), t.TempDir()
	queue, err := n.Journal.Queue(ctx, "AUDIT", n.bus.Store())
	if err != nil {
		t.Fatal(err)
	}
	position, err := n.Journal.OwnTable(ctx, "audit")
	if err != nil {
		t.Fatal(err)
	}
	l, err := audit.Open(ctx, audit.Options{Queue: queue, Position: position, HeadFile: filepath.Join(dir, "head"), KeyFile: filepath.Join(dir, "key"), Spool: s, Journal: n.Journal, Log: n.bus.Log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	n.Spool, n.log = s, l
	return path
}

// beginSpooled starts a job without the quorum, as if it were permitted.
func (n *node) beginSpooled(t *testing.T, ids ...salt.MinionID) (*Run, *watcher) {
	t.Helper()
	p := n.newPlan()
	p.Start.Minions, p.Timeout, p.spooled, p.table, p.Keys = ids, job.Seconds(5), true, n.plans.name, n.Keys.Tokens(ids)
	p.Envelope.Commands, p.Envelope.Target, p.Envelope.TargetType = []job.Command{{Function: "test.ping"}}, "*", "glob"
	p.Envelope.Live, p.Envelope.Heartbeat = true, 2
	begun, err := p.begun(time.Now())
	if err == nil {
		err = n.log.BookSpooled(audit.Entry{Kind: audit.Publish, Verdict: audit.Allowed, Who: audit.Who{User: "root"}, JID: p.Start.JID}, p.Start.JID, begun, true)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := newRun(n.Dispatcher, p, nil, time.Now())
	n.Dispatcher.jobs.add(r)
	w := r.watch()
	t.Cleanup(w.close)
	r.Begin()
	return r, w
}

// delivers sends a return from the outbox of a minion.
func (m *minion) delivers(t *testing.T, n uint64, jid salt.JID, r job.Report) error {
	t.Helper()
	body, err := protocol.Encode(protocol.Return{Report: r, Commands: []job.Command{{Function: "test.ping"}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var answer outbox.Delivered
	err = m.conn.Ask(ctx, outbox.OpDeliver, outbox.Batch{Messages: []outbox.Message{{Epoch: "e", N: n, Op: "ret." + string(jid), Body: body}}}, &answer)
	if err == nil && len(answer.Messages) == 1 && answer.Messages[0].Refused != nil {
		return answer.Messages[0].Refused
	}
	return err
}

func live(text string) job.Report {
	r := done(text)
	r.Live = true
	return r
}

// TestAMemberWithoutTheQuorumRunsJobs: on the minions that are connected to it. Their returns are shown at
// once and not confirmed, also where they are not told besides; a minion that was not sent the job is
// refused. When the others are reached again, all members know the job with each return once.
func TestAMemberWithoutTheQuorumRunsJobs(t *testing.T) {
	t.Parallel()
	s, all := startCluster(t)
	n := all[0]
	path := n.spooling(t)
	web1, web2, web3, evil := n.arrive(t, "web1"), n.arrive(t, "web2"), all[1].arrive(t, "web3"), n.arrive(t, "evil")
	n.know(t, "web1", "web2", "web3", "evil")
	_, w := n.beginSpooled(t, "web3") // of a member that is still reached, as one of five may be
	if got := states(t, w); got != "web3=not connected(<nil>)" {
		t.Errorf("a minion of another member: %s", got)
	}
	s.Isolate(t, n.bus)
	bustest.Until(t, "it has lost the quorum", func() bool { return n.WithoutQuorum() != nil })

	run, w := n.beginSpooled(t, "web1", "web2", "web3")
	jid := run.plan.Start.JID
	if !web1.got(t).Live || !web2.got(t).Live {
		t.Error("the minions are not asked to tell their returns")
	}
	if err := evil.says(t, jid, live("forged")); rpc.CodeOf(err) != rpc.Denied {
		t.Errorf("a return of a minion that was not sent the job: %v", err)
	}
	if err := evil.delivers(t, 1, jid, done("forged")); rpc.CodeOf(err) != rpc.Unavailable {
		t.Errorf("the same from its outbox: %v", err)
	}
	if err := web1.says(t, jid, live("one")); err != nil {
		t.Errorf("a return that is told: %v", err)
	}
	long := strings.Repeat("x", 2*maxInline)
	for m, text := range map[*minion]string{web1: "one", web2: long} {
		if err := m.delivers(t, 1, jid, done(text)); rpc.CodeOf(err) != rpc.Unavailable {
			t.Errorf("the answer to an outbox: %v", err)
		}
	}
	shown := map[salt.MinionID]job.Update{}
	err := w.each(within(t), func(u update) error {
		shown[u.ID] = u.Update
		return nil
	})
	if u := shown["web2"]; err != nil || u.Decode() != nil || u.State != job.Done {
		t.Errorf("shown is %+v, %v", u, err)
	} else if u.Return.V != long {
		t.Errorf("of a long return is shown %.40v", u.Return.V)
	}
	if shown["web1"].Return.V != "one" || shown["web1"].Live || shown["web3"].State != job.NotConnected {
		t.Errorf("shown is %+v", shown)
	}
	bustest.Until(t, "the run has ended", func() bool { return n.Dispatcher.jobs.running(jid) == nil })
	again := &Dispatcher{Options: n.Options, plans: n.plans, jobs: newJobs(n.Spool.Has)} // as after a restart
	if err := (spooling{again}).recall(); err != nil {
		t.Fatal(err)
	}
	if k := again.jobs.find(jid); k == nil || k.User != "root" || !again.jobs.isFor(k, "web1") || again.jobs.isFor(k, "evil") {
		t.Errorf("after a restart the job is %+v", k)
	}

	s.Rejoin(n.bus)
	bustest.Until(t, "the spool is stored", func() bool {
		_, err := os.Stat(path)
		return errors.Is(err, fs.ErrNotExist)
	})
	for m, text := range map[*minion]string{web1: "one", web2: long} {
		bustest.Until(t, "the outbox is taken", func() bool { return m.delivers(t, 1, jid, done(text)) == nil })
	}
	if err := evil.delivers(t, 1, jid, done("forged")); rpc.CodeOf(err) != rpc.Denied {
		t.Errorf("a return of a minion that was not sent the job, later: %v", err)
	}
	for _, at := range all {
		if sent := at.replayed(t, jid); len(sent) != 2 || sent["web1"] != 1 || sent["web2"] != 1 {
			t.Errorf("%s shows %v", at.bus.Name, sent)
		}
		h, err := at.history(within(t), jid)
		if err != nil || h.standing("web3").State != job.NotConnected || h.load.User != "root" {
			t.Errorf("%s knows %+v, %v", at.bus.Name, h, err)
		}
	}
	if r := n.returns(t, jid); r["web1"] != 1 || r["web2"] != 1 || len(r) != 2 {
		t.Errorf("stored are %v", r)
	}
	if r, err := n.log.Verify(within(t)); err != nil || !r.OK {
		t.Errorf("the audit log: %+v, %v", r, err)
	}
	select {
	case e := <-web3.jobs:
		t.Errorf("a minion of another member got job %s", e.JID)
	default:
	}
	if i := slices.Index(n.refused.list, "evil"); i < 0 {
		t.Errorf("recorded refusals: %v", n.refused.list)
	}
}

// TestLongReturnsWithoutTheQuorumAreBounded: beyond a limit the caller is told where the return is shown
// later.
func TestLongReturnsWithoutTheQuorumAreBounded(t *testing.T) {
	p := plan{Start: job.Start{JID: "20260101000000000001", Minions: []salt.MinionID{"web1", "web2", "web3"}}, spooled: true}
	r := newRun(&Dispatcher{}, p, nil, time.Now())
	w := r.watch()
	for id, size := range map[salt.MinionID]int{"web1": maxUnstored, "web3": maxInline} {
		r.showUnstored(id, done("x"), size)
	}
	r.showUnstored("web2", done("x"), maxInline+1)
	got := map[salt.MinionID]job.Update{}
	for _, u := range w.queue {
		got[u.ID] = u.Update
	}
	if got["web1"].State != job.Done || got["web3"].State != job.Done {
		t.Errorf("within the limit: %+v", got)
	}
	if text, _ := json.Marshal(got["web2"].Return.V); got["web2"].State != job.Failed || !strings.Contains(string(text), "jobs.lookup_jid 20260101000000000001") {
		t.Errorf("beyond it: %+v", got["web2"])
	}
}
