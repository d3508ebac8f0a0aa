package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// counted are members that count the requests to others, and hold some of them back.
type counted struct {
	Members
	older bool          // the other members know only single messages
	fails error         // of requests with several returns; nil for none
	hold  chan struct{} // until it is closed, they hold requests back
	held  int           // only so many, the first ones; 0 is all

	mu    sync.Mutex
	kinds map[string]int // how many of each kind
	n     int            // of all kinds
}

func (c *counted) Ask(ctx context.Context, member, kind string, body, answer any) error {
	c.mu.Lock()
	if c.kinds == nil {
		c.kinds = map[string]int{}
	}
	c.kinds[kind]++
	c.n++
	hold := c.hold != nil && (c.held == 0 || c.n <= c.held)
	c.mu.Unlock()
	if hold {
		<-c.hold
	}
	if c.fails != nil && kind == kindReturns {
		return c.fails
	}
	if c.older && kind == kindReturns {
		kind = "unknown"
	}
	return c.Members.Ask(ctx, member, kind, body, answer)
}

func (c *counted) count(kind string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kinds[kind]
}

// many returns the ids of n minions.
func many(n int) (ids []salt.MinionID) {
	for i := range n {
		ids = append(ids, salt.MinionID(fmt.Sprintf("web%02d", i)))
	}
	return ids
}

func reportOf(t *testing.T, r job.Report) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// passAll passes messages of minions to the first member, and returns the codes of their errors. The first ones go
// alone, and are held back until all others wait for the next request.
func passAll(t *testing.T, from *node, c *counted, list []said) []rpc.Code {
	t.Helper()
	c.Members, c.hold = from.Members, make(chan struct{})
	from.Members, from.Dispatcher.returns.late = c, time.Hour
	defer func() { from.Members = c.Members }()
	codes := make([]rpc.Code, len(list))
	var wg sync.WaitGroup
	for i, s := range list {
		wg.Go(func() { codes[i] = rpc.CodeOf(together{relay{from.Dispatcher}}.passReturn(t.Context(), "m1", s)) })
		if i < sendersToMember {
			bustest.Until(t, "a request is under way", func() bool { return c.count(kindSaid) == i+1 })
		}
	}
	bustest.Until(t, "the others wait", func() bool {
		out := &from.Dispatcher.returns
		out.mu.Lock()
		defer out.mu.Unlock()
		return len(out.of["m1"].waiting) == len(list)-sendersToMember
	})
	close(c.hold)
	wg.Wait()
	return codes
}

// TestReturnsGoTogether: the returns of many minions at a member, which come at the same moment, go to the member
// that has sent the job in few requests. Each is stored once, also one that is there twice, and one that is refused
// affects no other.
func TestReturnsGoTogether(t *testing.T) {
	all := startNodes(t, 2)
	ids := many(30)
	run, w := all[0].begin(t, protocol.Publish{Queue: 3600}, ids...)
	jid := run.plan.Start.JID
	var list []said
	for _, id := range ids {
		list = append(list, said{Minion: id, JID: jid, Report: reportOf(t, done(string(id)))})
	}
	list = append(list, list[29], // again
		said{Minion: "evil", JID: jid, Report: reportOf(t, done("forged"))},
		said{Minion: "web01", JID: "20200101000000000001", Report: reportOf(t, done("made up"))})
	c := &counted{}
	codes := passAll(t, all[1], c, list)
	for i, code := range codes {
		if want := i > 30; (code == rpc.Denied) != want || !want && code != "" {
			t.Errorf("%s of %s: %q", list[i].Minion, list[i].JID, code)
		}
	}
	if n := c.count(kindReturns); n == 0 || n > 3 {
		t.Errorf("%d requests with several returns", n)
	}
	if n := c.count(kindSaid); n > 2+sendersToMember {
		t.Errorf("%d requests with a single one", n)
	}
	stored := all[0].returns(t, jid)
	for _, id := range ids {
		if stored[string(id)] != 1 {
			t.Errorf("%s is stored %d times", id, stored[string(id)])
		}
	}
	if got := states(t, w); len(stored) != len(ids) || strings.Count(got, "=done(") != len(ids) {
		t.Errorf("%d are stored; %s", len(stored), got)
	}
}

// TestReturnsGoToAnOlderMember, which knows only single messages.
func TestReturnsGoToAnOlderMember(t *testing.T) {
	all := startNodes(t, 2)
	ids := many(20)
	run, w := all[0].begin(t, protocol.Publish{Queue: 3600}, ids...)
	var list []said
	for _, id := range ids {
		list = append(list, said{Minion: id, JID: run.plan.Start.JID, Report: reportOf(t, done("x"))})
	}
	c := &counted{older: true}
	for i, code := range passAll(t, all[1], c, list) {
		if code != "" {
			t.Errorf("%s: %q", ids[i], code)
		}
	}
	if got := states(t, w); strings.Count(got, "=done(") != len(ids) {
		t.Errorf("%s", got)
	}
	before := c.count(kindReturns)
	if err := (together{relay{all[1].Dispatcher}}).passReturn(t.Context(), "m1", list[0]); err != nil || before == 0 || c.count(kindReturns) != before {
		t.Errorf("%v; the older member was asked again", err)
	}
}

// TestARefusedRequestRefusesNoReturn: a minion drops a return that is refused, so a refusal of a whole request is not
// one of the returns in it. One for which there is no time is, for now.
func TestARefusedRequestRefusesNoReturn(t *testing.T) {
	all := startNodes(t, 2)
	ids := many(10)
	run, _ := all[0].begin(t, protocol.Publish{Queue: 3600}, ids...)
	for _, c := range []struct {
		fails error
		want  rpc.Code
	}{{rpc.Errorf(rpc.Busy, "later"), rpc.Busy}, {rpc.Errorf(rpc.Usage, "no"), ""}} {
		var list []said
		for _, id := range ids {
			list = append(list, said{Minion: id, JID: run.plan.Start.JID, Report: reportOf(t, done("x"))})
		}
		for i, code := range passAll(t, all[1], &counted{fails: c.fails}, list) {
			if alone := i < sendersToMember; alone && code != "" || !alone && code != c.want {
				t.Errorf("%v: %s: %q", c.fails, ids[i], code)
			}
		}
	}
	if got := all[0].returns(t, run.plan.Start.JID); len(got) != len(ids) {
		t.Errorf("stored: %v", got)
	}
}

// TestReturnsThatCannotGoTogether: what is not the short return of a job that this member follows is sent alone, so
// that it delays no other, and what is unreadable is refused.
func TestReturnsThatCannotGoTogether(t *testing.T) {
	all := startNodes(t, 3)
	run, _ := all[0].begin(t, protocol.Publish{Queue: 3600}, "web1", "web2")
	jid := run.plan.Start.JID
	output := done("x")
	output.OutputEnd = true
	live := done("x")
	live.Live = true
	list := []said{
		{Minion: "web1", JID: jid, Report: reportOf(t, job.Report{State: job.Running})},
		{Minion: "web1", JID: jid, Report: reportOf(t, output)},
		{Minion: "web1", JID: jid, Report: reportOf(t, live)},
		{Minion: "web1", JID: jid, Report: reportOf(t, done(strings.Repeat("x", maxTogetherEach)))},
		{Minion: "web1", JID: jid, Report: json.RawMessage(`{"state": 1}`)},
		{Minion: "web3", JID: jid, Report: reportOf(t, done("forged"))},
		{Minion: "../web1", JID: jid, Report: reportOf(t, done("forged"))},
		{Minion: "web1", JID: "../x", Report: reportOf(t, done("forged"))},
		{Minion: "web2", JID: jid, Report: reportOf(t, done("true"))},
	}
	var answer []returnAnswer
	if err := all[1].exchange.Ask(t.Context(), "m1", kindReturns, list, &answer); err != nil || len(answer) != len(list) {
		t.Fatalf("%+v, %v", answer, err)
	}
	for i, a := range answer {
		if last := i == len(list)-1; a.Alone == last || a.Err != nil {
			t.Errorf("%d: %+v", i, a)
		}
	}
	if got := all[0].returns(t, jid); got["web2"] != 1 || len(got) != 1 {
		t.Errorf("stored: %v", got)
	}
	all[0].args = []any{strings.Repeat("x", maxTogetherEach)} // they are in each event
	long, _ := all[0].begin(t, protocol.Publish{Queue: 3600}, "web1", "web2")
	for i := range list {
		list[i].JID = long.plan.Start.JID
	}
	if err := all[1].exchange.Ask(t.Context(), "m1", kindReturns, list, &answer); err != nil || slices.ContainsFunc(answer, func(a returnAnswer) bool { return !a.Alone }) {
		t.Errorf("with long arguments: %+v, %v", answer, err)
	}
	for _, body := range []any{1, "x", []int{1}, map[string]any{"minion": "web1"}, slices.Repeat(list[8:], maxTogether+1), []string{strings.Repeat("x", maxTogetherSize)}} {
		if err := all[2].exchange.Ask(t.Context(), "m1", kindReturns, body, nil); rpc.CodeOf(err) != rpc.Usage {
			t.Errorf("%.80v: %v", body, err)
		}
	}
}

// TestALateRequestDelaysNoOtherReturns: the member answers the first requests with returns late.
func TestALateRequestDelaysNoOtherReturns(t *testing.T) {
	all := startNodes(t, 2)
	ids := many(sendersToMember + 2)
	run, _ := all[0].begin(t, protocol.Publish{Queue: 3600}, ids...)
	c := &counted{Members: all[1].Members, hold: make(chan struct{}), held: sendersToMember}
	all[1].Members = c
	pass := func(id salt.MinionID) error {
		return together{relay{all[1].Dispatcher}}.passReturn(t.Context(), "m1", said{Minion: id, JID: run.plan.Start.JID, Report: reportOf(t, done("x"))})
	}
	var late sync.WaitGroup
	for i, id := range ids[:sendersToMember] {
		late.Go(func() {
			if err := pass(id); err != nil {
				t.Errorf("%s, late: %v", id, err)
			}
		})
		bustest.Until(t, "a request is under way", func() bool { return c.count(kindSaid) == i+1 })
	}
	for _, id := range ids[sendersToMember:] {
		if err := pass(id); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	if got := all[0].returns(t, run.plan.Start.JID); len(got) != 2 {
		t.Errorf("before the late ones: %v", got)
	}
	close(c.hold)
	late.Wait()
	if got := all[0].returns(t, run.plan.Start.JID); len(got) != len(ids) {
		t.Errorf("at the end: %v", got)
	}
}

// TestReturnsTogetherOfAMemberThatIsGone: the owner of the job ends while requests with returns are under way. All are
// stored at the member of the minions.
func TestReturnsTogetherOfAMemberThatIsGone(t *testing.T) {
	all := startNodes(t, 2)
	var minions []*minion
	ids := many(6)
	for _, id := range ids {
		minions = append(minions, all[1].arrive(t, string(id)))
	}
	all[0].know(t, ids...)
	run, _ := all[0].begin(t, protocol.Publish{}, ids...)
	jid := run.plan.Start.JID
	for _, m := range minions {
		m.got(t)
	}
	c := &counted{Members: all[1].Members, hold: make(chan struct{})}
	all[1].Members = c
	var wg sync.WaitGroup
	for _, m := range minions {
		wg.Go(func() {
			if err := m.says(t, jid, done("x")); err != nil {
				t.Errorf("%s: %v", m.Self.Name, err)
			}
		})
	}
	bustest.Until(t, "a request is under way", func() bool { return c.count(kindSaid)+c.count(kindReturns) > 0 })
	all[0].stop()
	all[0].bus.Stop()
	close(c.hold)
	wg.Wait()
	if got := all[1].returns(t, jid); len(got) != len(ids) {
		t.Errorf("stored: %v", got)
	}
}
