package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// slowMembers are the other members, which get requests with returns only when goOn is closed.
type slowMembers struct {
	Members
	goOn chan struct{}
	err  error // what such a request gets instead, if it is not nil

	mu   sync.Mutex
	sent []string // the kinds of requests about returns, with the number of returns
}

func (s *slowMembers) Ask(ctx context.Context, member, kind string, body, answer any) error {
	if kind != kindTogether && kind != kindSaid {
		return s.Members.Ask(ctx, member, kind, body, answer)
	}
	n := 1
	if list, many := body.([]said); many {
		n = len(list)
	}
	s.mu.Lock()
	s.sent = append(s.sent, fmt.Sprint(kind, " ", n))
	s.mu.Unlock()
	if kind == kindTogether {
		<-s.goOn
		if s.err != nil {
			return s.err
		}
	}
	return s.Members.Ask(ctx, member, kind, body, answer)
}

func (s *slowMembers) got() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}

// returning lets minions of a member deliver their returns of a job at once, while the requests with returns do not
// come through, and waits until all have gathered.
func (s *slowMembers) returning(t *testing.T, n *node, jid salt.JID, minions []*minion) {
	t.Helper()
	s.Members, n.Members = n.Members, s
	s.goOn = make(chan struct{})
	var together sync.WaitGroup
	for i, m := range minions {
		together.Go(func() {
			if err := m.delivers(t, 1, jid, done("true")); err != nil && s.err == nil {
				t.Errorf("%s: %v", m.Self.Name, err)
			}
		})
		count := i + 1
		bustest.Until(t, "its return waits", func() bool {
			n.gathering.mu.Lock()
			defer n.gathering.mu.Unlock()
			to := n.gathering.of["m1"]
			return to != nil && len(to.waiting)+1 == count && len(s.got()) == 1
		})
	}
	close(s.goOn)
	together.Wait()
	n.Members = s.Members
}

// crowd connects so many minions to the second member, and starts a job on them at the first one.
func crowd(t *testing.T, count int) (all []*node, minions []*minion, run *Run, w *watcher) {
	t.Helper()
	all = startNodes(t, 2)
	var ids []salt.MinionID
	for i := range count {
		ids = append(ids, salt.MinionID(fmt.Sprint("web", i)))
		minions = append(minions, all[1].arrive(t, string(ids[i])))
	}
	all[0].know(t, ids...)
	run, w = all[0].begin(t, protocol.Publish{}, ids...)
	for _, m := range minions {
		m.got(t)
	}
	return all, minions, run, w
}

// TestReturnsThatComeTogetherShareARequest: those that come while a request is under way go with the next one.
func TestReturnsThatComeTogetherShareARequest(t *testing.T) {
	all, minions, run, w := crowd(t, 6)
	jid, slow := run.plan.Start.JID, &slowMembers{}
	slow.returning(t, all[1], jid, minions)
	if got := slow.got(); !slices.Equal(got, []string{"together 1", "together 5"}) {
		t.Errorf("requests: %q", got)
	}
	if got := states(t, w); strings.Count(got, "=done(true)") != 6 {
		t.Errorf("%s", got)
	}
	for i, n := range all {
		if got := n.returns(t, jid); len(got) != []int{6, 0}[i] || i == 0 && got["web5"] != 1 {
			t.Errorf("%s has stored %v", n.bus.Name, got)
		}
	}
}

// TestAMemberThatStoresNoReturnsTogether: one of an older version does not know the request.
func TestAMemberThatStoresNoReturnsTogether(t *testing.T) {
	all, minions, run, w := crowd(t, 4)
	slow := &slowMembers{err: rpc.Errorf(rpc.NotFound, "it does not know this")}
	slow.returning(t, all[1], run.plan.Start.JID, minions)
	got := slow.got()
	if slices.Sort(got); !slices.Equal(got, []string{"said 1", "said 1", "said 1", "said 1", "together 1", "together 3"}) {
		t.Errorf("requests: %q", got)
	}
	if got := states(t, w); strings.Count(got, "=done(true)") != 4 {
		t.Errorf("%s", got)
	}
}

// TestReturnsThatAreNotStoredTogetherStayUnconfirmed: the minions keep them.
func TestReturnsThatAreNotStoredTogetherStayUnconfirmed(t *testing.T) {
	all, minions, run, w := crowd(t, 4)
	jid, slow := run.plan.Start.JID, &slowMembers{err: rpc.Errorf(rpc.Unavailable, "no leader")}
	slow.returning(t, all[1], jid, minions)
	if got := all[0].returns(t, jid); len(got) > 0 {
		t.Errorf("stored: %v", got)
	}
	for _, m := range minions {
		if err := m.delivers(t, 1, jid, done("again")); err != nil {
			t.Errorf("%s: %v", m.Self.Name, err)
		}
	}
	if got := states(t, w); strings.Count(got, "=done(again)") != 4 {
		t.Errorf("%s", got)
	}
}

// TestWhatIsNotStoredTogether: of the returns in one request, only those of a job that runs here are stored, of
// minions that were sent it, each once. The others have to come alone, where they are decided about.
func TestWhatIsNotStoredTogether(t *testing.T) {
	all, minions, run, _ := crowd(t, 3)
	jid := run.plan.Start.JID
	ended, w := all[0].begin(t, protocol.Publish{}, "web2")
	minions[2].got(t)
	if err := minions[2].says(t, ended.plan.Start.JID, done("true")); err != nil {
		t.Fatal(err)
	}
	states(t, w)
	bustest.Until(t, "the job has ended", func() bool { return all[0].jobs.running(ended.plan.Start.JID) == nil })
	one := func(id salt.MinionID, jid salt.JID, r job.Report) said {
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return said{Minion: id, JID: jid, Report: b}
	}
	live := done("true")
	live.Live = true
	list := []said{
		one("web0", jid, done("true")),
		one("evil", jid, done("forged")),                         // it was not sent the job
		one("../evil", jid, done("forged")),                      // no id
		one("web1", jid, done(strings.Repeat("x", maxInline))),   // large
		one("web1", jid, job.Report{State: job.Running}),         // no return
		one("web1", jid, live),                                   // not to be stored
		one("web1", "20260101000000000000", done("made up")),     // no job
		one("web2", ended.plan.Start.JID, done("again")),         // no longer running
		{Minion: "web1", JID: jid, Report: json.RawMessage(`1`)}, // unreadable
		one("web0", jid, done("twice")),
		one("web2", jid, done("true")),
	}
	for range 2 { // also when it is repeated
		var answer apart
		if err := all[1].exchange.Ask(t.Context(), "m1", kindTogether, list, &answer); err != nil || !slices.Equal(answer.Places, []int{1, 2, 3, 4, 5, 6, 7, 8}) {
			t.Errorf("%v, %v", answer.Places, err)
		}
	}
	if got := all[0].returns(t, jid); len(got) != 2 || got["web0"] != 1 || got["web2"] != 1 {
		t.Errorf("stored: %v", got)
	}
	if run.open("web0") || !run.open("web1") || run.open("web2") {
		t.Error("the job has not heard what was stored, or something else")
	}
	if err := all[1].exchange.Ask(t.Context(), "m1", kindTogether, make([]said, maxTogether+1), nil); rpc.CodeOf(err) != rpc.Usage {
		t.Errorf("too many: %v", err)
	}
}
