package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/bustest"
)

// line is a minion's message with output.
func line(text string) job.Report {
	return job.Report{State: job.Running, Output: []job.Output{{Text: value.Value{V: text}}}}
}

// unread is the output of a job that its user does not read.
type unread struct{ blocked, busy atomic.Int64 }

func (o *unread) send(ctx context.Context, _ job.Update) error {
	o.blocked.Add(1)
	<-ctx.Done()
	return ctx.Err()
}

// flood calls say so often at once, and waits until each is blocked or refused as too many.
func (o *unread) flood(t *testing.T, count int, say func(int) error) {
	t.Helper()
	before := o.blocked.Load() + o.busy.Load()
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	for i := range count {
		wg.Go(func() {
			if rpc.CodeOf(say(i)) == rpc.Busy {
				o.busy.Add(1)
			}
		})
	}
	bustest.Until(t, "each output is blocked or refused", func() bool { return o.blocked.Load()+o.busy.Load()-before == int64(count) })
}

// TestOutputThatNobodyReadsDelaysNothingElse: minions at one member send output for a user at another
// one, who does not read it. One minion has a limited part of what may be under way there, and so have
// all minions of a member. Returns, jobs and cancellations come through at once.
func TestOutputThatNobodyReadsDelaysNothingElse(t *testing.T) {
	all := startNodes(t, 2)
	here, evil, web1 := all[0].arrive(t, "here"), all[1].arrive(t, "evil"), all[1].arrive(t, "web1")
	all[0].know(t, "evil", "web1")
	all[1].know(t, "here")
	ids := []salt.MinionID{"evil", "web1"}
	for i := range 80 {
		ids = append(ids, salt.MinionID(fmt.Sprint("more", i)))
	}
	run, w := all[0].begin(t, protocol.Publish{}, ids...)
	jid, out := run.plan.Start.JID, &unread{}
	run.mu.Lock()
	w.output = out.send
	run.mu.Unlock()
	evil.got(t)
	web1.got(t)

	ctx, end := context.WithCancel(t.Context())
	defer end()
	out.flood(t, 100, func(int) error { return evil.conn.Ask(ctx, "ret."+string(jid), line("x"), nil) })
	if n := out.blocked.Load(); n != 32 {
		t.Errorf("%d outputs of one minion are under way, want 32", n)
	}
	out.flood(t, 1, func(int) error { return web1.conn.Ask(ctx, "ret."+string(jid), line("x"), nil) })
	if n := out.blocked.Load(); n != 33 {
		t.Errorf("with one of another minion %d are under way", n)
	}
	report, _ := json.Marshal(line("x"))
	out.flood(t, 80*32, func(i int) error {
		return all[1].exchange.Ask(ctx, "m1", kindSaid, said{Minion: ids[2+i%80], JID: jid, Report: report}, nil)
	})
	if n := out.blocked.Load(); n > 1024 {
		t.Errorf("%d outputs of one member are under way", n)
	}

	began := time.Now()
	for _, m := range []*minion{web1, evil} {
		if err := m.says(t, jid, done("true")); err != nil {
			t.Errorf("a return: %v", err)
		}
	}
	other, _ := all[1].begin(t, protocol.Publish{}, "here")
	if got := here.got(t).JID; got != other.plan.Start.JID {
		t.Errorf("job %s has come", got)
	}
	queued, _ := all[0].begin(t, protocol.Publish{Queue: 3600}, "away")
	withdrawn, err := relay{all[1].Dispatcher}.cancelElsewhere(within(t), "m1", queued.plan.Start.JID, "root")
	if err != nil || len(withdrawn) != 1 {
		t.Errorf("cancelled for %v, %v", withdrawn, err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}

// refusing are the other members of which one has too many requests under way for some time.
type refusing struct {
	Members
	left atomic.Int64
}

func (r *refusing) Ask(ctx context.Context, member, kind string, body, answer any) error {
	if kind == kindJob && r.left.Add(-1) >= 0 {
		return rpc.Errorf(rpc.Busy, "too many requests")
	}
	return r.Members.Ask(ctx, member, kind, body, answer)
}

// TestAJobForABusyMemberComesLater: its minions are connected, and get the job when the member has time.
func TestAJobForABusyMemberComesLater(t *testing.T) {
	all := startNodes(t, 2)
	web1 := all[1].arrive(t, "web1")
	all[0].know(t, "web1")
	busy := &refusing{Members: all[0].Members}
	busy.left.Store(3)
	all[0].Members = busy
	run, w := all[0].begin(t, protocol.Publish{}, "web1")
	web1.got(t)
	if err := web1.says(t, run.plan.Start.JID, done("true")); err != nil {
		t.Fatal(err)
	}
	if got := states(t, w); got != "web1=done(true)" {
		t.Errorf("%s", got)
	}
}
