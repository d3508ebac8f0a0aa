package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/cluster"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// audience is a Guide with the messages that it has sent, and when.
type audience struct {
	*Guide
	mu      sync.Mutex
	members []cluster.Member
	began   time.Time
	msgs    []message
	leave   time.Duration // after this a minion that is told to leave has left; 0 for never
}

type message struct {
	inbox string
	after time.Duration
	protocol.Control
}

func newAudience(accepted int, members ...cluster.Member) *audience {
	c := &audience{members: members, began: time.Now()}
	c.Guide = &Guide{Members: c.list, Accepted: func() int { return accepted }, Publish: c.publish, Log: slog.New(slog.DiscardHandler)}
	return c
}

func (c *audience) list() []cluster.Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.members)
}

func (c *audience) set(members ...cluster.Member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members = members
}

func (c *audience) publish(subject string, body []byte) error {
	var m protocol.Control
	if err := json.Unmarshal(body, &m); err != nil {
		return err
	}
	inbox := strings.TrimSuffix(subject, bus.ControlSubject(""))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.msgs = append(c.msgs, message{inbox, time.Since(c.began), m})
	if m.Leave && c.leave > 0 {
		time.AfterFunc(c.leave, func() { c.gone(inbox) })
	}
	return nil
}

// sent returns the messages so far, and how many were sent within one second at most.
func (c *audience) sent() (all []message, most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.msgs {
		j := i
		for j < len(c.msgs) && c.msgs[j].after < c.msgs[i].after+time.Second {
			j++
		}
		most = max(most, j-i)
	}
	return slices.Clone(c.msgs), most
}

// three are the members of a cluster, the first n of which run.
func three(n int) (list []cluster.Member) {
	for i, name := range []string{"a", "b", "c"} {
		list = append(list, cluster.Member{Name: name, Address: name + ":4506", Running: i < n})
	}
	return list
}

func (c *audience) connect(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		inbox := fmt.Sprint("inbox", i)
		told, err := c.greet(inbox, true)
		if err != nil {
			t.Fatal(err)
		}
		c.welcomed(inbox, told)
	}
}

// TestMinionsHearOfAChangeDuringTheirWelcome: the members change while a minion is welcomed. Whatever it has
// heard before, the welcome replaces it, so the change is told after that.
func TestMinionsHearOfAChangeDuringTheirWelcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newAudience(2, three(3)...)
		ctx, cancel := context.WithCancel(t.Context())
		go c.Watch(ctx)
		time.Sleep(2 * lookEvery)
		c.connect(t, 1)
		told, err := c.greet("slow", true)
		if err != nil {
			t.Fatal(err)
		}
		c.set(three(2)...)
		time.Sleep(3 * lookEvery)
		welcomed := time.Since(c.began)
		c.welcomed("slow", told)
		time.Sleep(3 * lookEvery)
		var late []message
		all, _ := c.sent()
		for _, m := range all {
			if m.inbox == "slow" {
				late = append(late, m)
			}
		}
		if len(late) != 1 || late[0].after < welcomed || late[0].Cluster.Members[2].Running {
			t.Errorf("welcomed after %s, it is told %+v", welcomed, late)
		}
		if len(all) != 2 {
			t.Errorf("%d messages to 2 minions", len(all))
		}
		c.gone("slow")
		c.welcomed("slow", told) // its end came first
		if n := len(c.inboxes()); n != 1 {
			t.Errorf("%d connections are remembered", n)
		}
		cancel()
		synctest.Wait()
	})
}

// TestAFailedMessageToAMinionIsSentAgain: also the one whose message failed hears of a change.
func TestAFailedMessageToAMinionIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newAudience(3, three(3)...)
		fails := 2
		c.Publish = func(subject string, body []byte) error {
			if fails--; fails >= 0 {
				return nats.ErrConnectionClosed
			}
			return c.publish(subject, body)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go c.Watch(ctx)
		c.connect(t, 3)
		c.set(three(2)...)
		time.Sleep(10 * lookEvery)
		all, _ := c.sent()
		told := map[string]int{}
		for _, m := range all {
			told[m.inbox]++
		}
		if len(told) != 3 || len(all) != 3 {
			t.Errorf("of 3 minions these were told: %v", told)
		}
		cancel()
		synctest.Wait()
	})
}

// A change is told to each minion once, and to 5,000 of them over some seconds.
func TestChangesOfMembersArePaced(t *testing.T) {
	const n = 5000
	synctest.Test(t, func(t *testing.T) {
		c := newAudience(n, three(3)...)
		ctx, cancel := context.WithCancel(t.Context())
		go c.Watch(ctx)
		time.Sleep(2 * lookEvery)
		c.connect(t, n)
		if _, err := c.greet("older minion", false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * lookEvery)
		if all, _ := c.sent(); len(all) > 0 {
			t.Errorf("%d messages without a change", len(all))
		}
		c.set(three(2)...)
		time.Sleep(time.Minute)
		all, most := c.sent()
		inboxes := map[string]bool{}
		for _, m := range all {
			inboxes[m.inbox] = true
			if m.Leave || m.Cluster == nil || m.Cluster.Members[2].Running {
				t.Fatalf("sent: %+v", m)
			}
		}
		if len(all) != n || len(inboxes) != n || inboxes["older minion"] {
			t.Errorf("%d messages to %d minions", len(all), len(inboxes))
		}
		if perSecond := tellAtOnce * int(time.Second/tellEvery); most > perSecond {
			t.Errorf("%d messages within a second, want at most %d", most, perSecond)
		}
		cancel()
		synctest.Wait()
	})
}

func TestRetireIsPacedAndBounded(t *testing.T) {
	for _, test := range []struct {
		minions    int
		leave      time.Duration // how long each needs
		least      time.Duration
		most       time.Duration
		mostTold   int // within a second
		othersLeft bool
	}{
		{0, time.Second, 0, 0, 0, true},
		{10, 100 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 10, true},
		{5000, time.Second, leaveTime, leaveTime + 2*time.Second, 1000, true},
		{10, 0, leftTime, leftTime + time.Second, 10, true}, // they do not leave
		{10, 0, 0, 0, 0, false}, // where to?
	} {
		synctest.Test(t, func(t *testing.T) {
			running := 1
			if test.othersLeft {
				running = 2
			}
			c := newAudience(test.minions, three(running)...)
			c.leave = test.leave
			c.connect(t, test.minions)
			began := time.Now()
			c.Retire(t.Context())
			took := time.Since(began)
			all, most := c.sent()
			if took < test.least || took > test.most {
				t.Errorf("%d minions: it took %s, want %s to %s", test.minions, took, test.least, test.most)
			}
			if most > test.mostTold || test.mostTold > 0 && len(all) != test.minions {
				t.Errorf("%d minions: %d were told, %d within a second, want at most %d", test.minions, len(all), most, test.mostTold)
			}
			if _, err := c.greet("late", true); (err != nil) != test.othersLeft {
				t.Errorf("%d minions: one that comes late: %v", test.minions, err)
			}
			if !test.othersLeft && len(all) > 0 {
				t.Error("minions were told to leave, and nobody takes them")
			}
		})
	}
}

// If all members stop, the last one waits for nobody.
func TestTheLastMemberWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newAudience(10, three(2)...)
		c.connect(t, 10)
		time.AfterFunc(time.Second, func() { c.set(three(1)...) })
		began := time.Now()
		c.Retire(t.Context())
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it waits for %s", took)
		}
	})
}

// What a minion is told about the pause after a loss depends on how many would come, and on the
// processors of the members.
func TestSpread(t *testing.T) {
	for _, test := range []struct {
		accepted, running int
		want              time.Duration
	}{
		{0, 3, 0},
		{3, 3, 2500 * time.Microsecond},
		{2400, 3, 2 * time.Second},  // 800 to two others
		{1600, 2, 4 * time.Second},  // 800 to the other one
		{3000, 1, 15 * time.Second}, // to whoever comes back
		{5000, 1, maxSpread},
		{1000000, 3, maxSpread},
	} {
		a := newAudience(test.accepted, three(test.running)...)
		a.processors = 8
		if got := a.now().Spread; got != test.want {
			t.Errorf("%d minions of %d members: %s, want %s", test.accepted, test.running, got, test.want)
		}
	}
}

func TestAMasterAloneTellsNothing(t *testing.T) {
	var g *Guide
	if c, err := g.greet("inbox", true); c != nil || err != nil {
		t.Errorf("it tells %+v, %v", c, err)
	}
	g.gone("inbox")
	g.Watch(t.Context()) // and these return at once
	g.Retire(t.Context())
}

// TestNobodyIsWelcomedWithoutMembers: a minion that is told of no members would forget the cluster, so a
// member that does not know them takes no minion.
func TestNobodyIsWelcomedWithoutMembers(t *testing.T) {
	c := newAudience(3)
	if told, err := c.greet("a", true); told != nil || rpc.CodeOf(err) != rpc.Unavailable {
		t.Errorf("without members a minion is told %+v, %v", told, err)
	}
	if n := len(c.inboxes()); n != 0 {
		t.Errorf("%d connections are remembered", n)
	}
	c.set(cluster.Member{Name: "m1", Running: true})
	if told, err := c.greet("a", true); err != nil || told == nil || len(told.Members) != 1 {
		t.Errorf("with a member it is told %+v, %v", told, err)
	}
}
