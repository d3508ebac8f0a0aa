package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/cluster"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
)

// heard collects the minions of other members, as one member is informed of them.
type heard struct {
	mu  sync.Mutex
	all map[string]cluster.Minion // by member and id

	holds atomic.Bool // while it is set, a call waits for free
	held  chan string // receives each minion of such a call
	free  chan struct{}
}

func (h *heard) Came(member string, m cluster.Minion) {
	if h.holds.Load() {
		h.held <- string(m.ID)
		<-h.free
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all[member+"/"+string(m.ID)] = m
}

func (h *heard) Went(member string, id salt.MinionID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, member+"/"+string(id))
}

func (h *heard) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.all)
}

func (h *heard) has(place string) (cluster.Minion, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m, ok := h.all[place]
	return m, ok
}

// member is one Exchange, over the bus of one of several real brokers.
type member struct {
	*cluster.Exchange
	*heard
	bus *bustest.Member
}

// heartbeat is the pause between heartbeats in these tests: a busy machine may be late by a second.
const heartbeat = 400 * time.Millisecond

func begin(t *testing.T, m *bustest.Member) *member { return beginWith(t, m, nil) }

// beginWith is begin with a member whose requests of the kind "hold" are those of h; nil for none.
func beginWith(t *testing.T, m *bustest.Member, holding *held) *member {
	t.Helper()
	h, pause := &heard{all: map[string]cluster.Minion{}, held: make(chan string, 10), free: make(chan struct{})}, heartbeat
	if holding != nil {
		pause *= 5 // a flood keeps the machine busy for longer
	}
	x := cluster.New(cluster.Options{Name: m.Name, Conn: m.Conn(), Minions: h, Heartbeat: pause, Log: m.Log})
	x.Handle("echo", func(_ context.Context, from string, body []byte) (any, error) {
		var text string
		err := json.Unmarshal(body, &text)
		return from + ":" + text, err
	})
	x.Handle("length", func(_ context.Context, _ string, body []byte) (any, error) { return len(body), nil })
	x.Handle("refuse", func(context.Context, string, []byte) (any, error) {
		return nil, rpc.Errorf(rpc.Denied, "no").WithHint("ask another")
	})
	x.Handle("fail", func(context.Context, string, []byte) (any, error) { return nil, errors.New("a secret cause") })
	x.Handle("wait", func(ctx context.Context, _ string, _ []byte) (any, error) { <-ctx.Done(); return nil, ctx.Err() })
	x.Handle("left", func(ctx context.Context, _ string, _ []byte) (any, error) {
		end, _ := ctx.Deadline()
		return time.Until(end), nil
	})
	if holding != nil {
		x.Handle("hold", holding.hold)
	}
	if err := x.Start(); err != nil {
		t.Fatal(err)
	}
	return &member{x, h, m}
}

func beginAll(t *testing.T, n int) []*member { return beginAllWith(t, n, nil) }

// beginHeld is beginAll where requests of the kind "hold" are held.
func beginHeld(t *testing.T, n int) ([]*member, *held) {
	h := &held{ends: make(chan struct{})}
	return beginAllWith(t, n, h), h
}

func beginAllWith(t *testing.T, n int, h *held) []*member {
	t.Helper()
	var all []*member
	for _, m := range bustest.StartSystem(t, n).Members {
		one := beginWith(t, m, h)
		t.Cleanup(one.Exchange.Stop)
		all = append(all, one)
	}
	for _, m := range all {
		bustest.Until(t, m.bus.Name+" knows the others", func() bool { return len(m.Others()) == n-1 })
	}
	return all
}

func minion(id string) cluster.Minion {
	return cluster.Minion{ID: salt.MinionID(id), Key: strings.Repeat("a", 64)}
}

// TestHeartbeatsDoNotWaitForMinions: while a member needs long for one minion of another one, with many
// jobs, it hears what follows, and then all of it is told.
func TestHeartbeatsDoNotWaitForMinions(t *testing.T) {
	all := beginAll(t, 3)
	slow := all[1]
	free := sync.OnceFunc(func() { close(slow.free) })
	t.Cleanup(free) // before it is stopped
	slow.holds.Store(true)
	all[0].Joined(minion("web1"))
	deadline.Receive(t, slow.held, "a call")
	all[0].Joined(minion("web2"))
	all[0].Left("web1")
	bustest.Until(t, "what follows is heard", func() bool {
		_, first := slow.Where("web1")
		at, _ := slow.Where("web2")
		return at == "m1" && !first
	})
	if n := slow.count(); n != 0 {
		t.Errorf("%d minions were told meanwhile", n)
	}
	slow.holds.Store(false)
	free()
	bustest.Until(t, "all is told", func() bool {
		_, first := slow.has("m1/web1")
		_, second := slow.has("m1/web2")
		return second && !first
	})
}

// TestEachMemberKnowsWhereMinionsAre, also of a member that starts later, is restarted, or is
// killed.
func TestEachMemberKnowsWhereMinionsAre(t *testing.T) {
	all := beginAll(t, 3)
	const many = 300
	for i := range many {
		all[i%3].Joined(minion(fmt.Sprint("web", i)))
	}
	for _, m := range all {
		bustest.Until(t, m.bus.Name+" knows all minions of others", func() bool { return m.count() == many*2/3 })
	}
	if where, ok := all[1].Where("web0"); !ok || where != "m1" {
		t.Errorf("m2 believes web0 at %q, %v", where, ok)
	}
	if where, ok := all[0].Where("web0"); ok {
		t.Errorf("m1 says that its own web0 is at %q", where)
	}
	changed := minion("web0")
	changed.Grains = "1"
	all[0].Joined(changed)
	bustest.Until(t, "m2 knows the change", func() bool { m, _ := all[1].has("m1/web0"); return m == changed })
	all[0].Left("web0")
	bustest.Until(t, "m2 knows that it left", func() bool { _, ok := all[1].Where("web0"); return !ok && all[1].count() == many*2/3-1 })
	// A member is killed: its connection ends without a message.
	began := time.Now()
	all[2].bus.Stop()
	bustest.Until(t, "the minions of m3 are gone", func() bool { _, ok := all[0].Where("web2"); return !ok && all[0].count() == many/3 })
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("that took %s", took)
	}
	// It comes back, and receives all changes since then.
	all[1].Joined(minion("late"))
	all[2].bus.Start(t)
	again := begin(t, all[2].bus)
	t.Cleanup(again.Exchange.Stop)
	again.Joined(minion("again"))
	bustest.Until(t, "m3 knows all minions of others", func() bool { return again.count() == many*2/3 })
	bustest.Until(t, "m1 knows those of m3", func() bool { where, _ := all[0].Where("again"); return where == "m3" })
	if _, ok := all[0].Where("web2"); ok {
		t.Error("m1 believes that a minion of before the restart is there")
	}
}

// TestAMemberThatStopsTellsIt: its minions are removed at once, not after a time of silence.
func TestAMemberThatStopsTellsIt(t *testing.T) {
	all := beginAll(t, 2)
	all[0].Joined(minion("web1"))
	bustest.Until(t, "m2 knows it", func() bool { _, ok := all[1].Where("web1"); return ok })
	began := time.Now()
	all[0].Exchange.Stop()
	bustest.Until(t, "m2 knows that m1 stops", func() bool { return len(all[1].Others()) == 0 })
	if took := time.Since(began); took >= 5*heartbeat {
		t.Errorf("it took %s, as long as for one that says nothing", took)
	}
	if _, ok := all[1].Where("web1"); ok {
		t.Error("a minion of a member that has stopped is there")
	}
}

// TestWhatWasLostIsAskedFor: after a gap in a member's messages its whole list is requested.
func TestWhatWasLostIsAskedFor(t *testing.T) {
	all := beginAll(t, 2)
	for i := range 10 {
		all[0].Joined(minion(fmt.Sprint("web", i)))
	}
	bustest.Until(t, "m2 knows them", func() bool { return all[1].count() == 10 })
	sub, err := all[1].bus.Conn().SubscribeSync(bus.MembersSubject("presence") + ".m1")
	if err != nil {
		t.Fatal(err)
	}
	m, err := sub.NextMsg(time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	var last map[string]any
	if err := json.Unmarshal(m.Data, &last); err != nil {
		t.Fatal(err)
	}
	// A change with a much higher number, as if earlier ones were lost: a minion that does not
	// exist.
	last["n"], last["came"] = 1000, minion("ghost")
	b, _ := json.Marshal(last)
	if err := all[0].bus.Conn().Publish(bus.MemberSubject("m2", "presence")+".m1", b); err != nil {
		t.Fatal(err)
	}
	all[0].Left("web3")
	bustest.Until(t, "m2 knows what is true", func() bool {
		_, ghost := all[1].has("m1/ghost")
		return all[1].count() == 9 && !ghost
	})
}

func TestMembersAskEachOther(t *testing.T) {
	all := beginAll(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var text string
	if err := all[0].Ask(ctx, "m2", "echo", "hello", &text); err != nil || text != "m1:hello" {
		t.Errorf("%q, %v", text, err)
	}
	var n int
	if err := all[0].Ask(ctx, "m2", "length", strings.Repeat("x", 5<<20), &n); err != nil || n != 5<<20+2 {
		t.Errorf("5 MiB: %d, %v", n, err)
	}
	if err := all[0].Ask(ctx, "m2", "length", strings.Repeat("x", bus.LargeBody+1), &n); rpc.CodeOf(err) != rpc.Usage {
		t.Errorf("too large: %v", err)
	}
	var e *rpc.Error
	if err := all[0].Ask(ctx, "m2", "refuse", nil, nil); !errors.As(err, &e) || e.Code != rpc.Denied || e.Hint != "ask another" {
		t.Errorf("refused: %v", err)
	}
	if err := all[0].Ask(ctx, "m2", "fail", nil, nil); rpc.CodeOf(err) != rpc.Unavailable || strings.Contains(err.Error(), "secret") {
		t.Errorf("failed: %v", err)
	}
	if err := all[0].Ask(ctx, "m2", "nosuch", nil, nil); rpc.CodeOf(err) != rpc.NotFound {
		t.Errorf("unknown: %v", err)
	}
	if err := all[0].Ask(ctx, "m9", "echo", "x", nil); !errors.Is(err, cluster.ErrGone) {
		t.Errorf("nobody: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- all[0].Ask(ctx, "m2", "wait", nil, nil) }()
	all[1].bus.Stop()
	select {
	case err := <-done:
		if !errors.Is(err, cluster.ErrGone) {
			t.Errorf("it went: %v", err)
		}
	case <-ctx.Done():
		t.Fatal("a request to a member that is gone does not end")
	}
}

// TestHostileMembers: invalid messages, invalid names, and many members that do not exist
// change nothing and cost little.
func TestHostileMembers(t *testing.T) {
	all := beginAll(t, 2)
	all[0].Joined(minion("web1"))
	bustest.Until(t, "m2 knows it", func() bool { return all[1].count() == 1 })
	to := bus.MemberSubject("m2", "presence")
	send := func(subject, body string) {
		t.Helper()
		if err := all[0].bus.Conn().Publish(subject, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	for _, from := range []string{"m2", "%2E", "a%2Eb", "%", "%00", strings.Repeat("x", 100)} {
		send(to+"."+from, `i{"run":"x","full":true,"all":[{"id":"evil"}]}`)
	}
	for _, body := range []string{"", "zzz", `{}`, `{"run":""}`, `[]`, "\x00"} {
		send(to+".m1", body)
		send(bus.MemberSubject("m2", "echo")+".m1", body)
	}
	for i := range 1000 {
		send(to+fmt.Sprintf(".x%d", i), `i{"run":"x","full":true,"all":[{"id":"../evil"},{"id":"a b"}]}`)
	}
	var text string
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := all[0].Ask(ctx, "m2", "echo", "still", &text); err != nil || text != "m1:still" {
		t.Errorf("%q, %v", text, err)
	}
	if n := len(all[1].Others()); n > 16 {
		t.Errorf("%d members are remembered", n)
	}
	bustest.Until(t, "those that say nothing are forgotten", func() bool { return len(all[1].Others()) == 1 })
	if _, ok := all[1].has("m1/web1"); !ok || all[1].count() != 1 {
		t.Errorf("m2 knows %v", all[1].all)
	}
}
