package fleet

import (
	"cmp"
	"context"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/cluster"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// Guide tells the minions that are connected here which members their cluster has, and sends
// them to others when this one stops. A nil Guide, of a single master, tells nothing.
type Guide struct {
	// Members are all members of the cluster, this one included. A change is noticed within
	// lookEvery.
	Members func() []cluster.Member
	// Accepted is how many minions have an accepted key.
	Accepted func() int
	Publish  func(subject string, body []byte) error
	Log      *slog.Logger

	mu       sync.Mutex
	moving   map[string][]protocol.Member // by inbox, what minions that move to other members were told; nil before their welcome
	latest   []protocol.Member            // that Watch has seen
	changed  chan struct{}                // closed when one of them has ended; nil if nobody waits for it
	stopping bool

	processors int // of each member; 0 for as many as this machine has
	warned     logging.Throttle
}

// Limits of what is told. A change causes a message to each minion, and what each does about it
// costs the members more than the message: it may connect to another one.
const (
	lookEvery  = time.Second
	tellEvery  = 100 * time.Millisecond
	tellAtOnce = 50 // so 5,000 minions are told within ten seconds
	// leaveAtOnce is how many minions are told at once to leave, if they are few, and leaveTime
	// the time within which all of them are: so members that take 200 to 500 connections a
	// second get no more than that.
	leaveAtOnce = 20
	leaveTime   = 5 * time.Second
	// leftTime is how long the last of them have to do it. Usually it takes milliseconds.
	leftTime = 5 * time.Second
)

// The minions of a lost member distribute their attempts so that each other member gets this many
// in a second, for each of its processors. One connection, with hello, costs a member about 2 ms of
// CPU time, and the events and copies that follow cost all of them as much again; the members do
// their usual work meanwhile, and may share their processors with each other. With twice as many, a herd of
// 5,000 took longer on two processors, since connections waited so long that they were closed.
const (
	takenByProcessor = 25
	maxSpread        = 20 * time.Second
)

// taken is how many attempts a member gets in a second: the members have as many processors as this
// one.
func (g *Guide) taken() int { return takenByProcessor * cmp.Or(g.processors, runtime.NumCPU()) }

// greet returns what a new connection is told. A member that stops takes none, nor does one that
// does not know the members.
func (g *Guide) greet(inbox string, moves bool) (*protocol.Cluster, error) {
	if g == nil {
		return nil, nil
	}
	// Without the members the minion would take this for a single master, and forget the others.
	c := g.now()
	if c == nil {
		return nil, rpc.Errorf(rpc.Unavailable, "this master does not know at the moment which members its cluster has")
	}
	if !g.take(inbox, moves) {
		return nil, rpc.Errorf(rpc.Unavailable, "this master is stopping; the other members of its cluster take its minions")
	}
	return c, nil
}

func (g *Guide) take(inbox string, moves bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopping {
		return false
	}
	if moves {
		if g.moving == nil {
			g.moving = map[string][]protocol.Member{}
		}
		g.moving[inbox] = nil
	}
	return true
}

// welcomed is called when a connection was told what greet has returned. Only from then on it
// hears of changes: one that it heard of before would be replaced by the older welcome.
func (g *Guide) welcomed(inbox string, c *protocol.Cluster) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, there := g.moving[inbox]; !there {
		return
	}
	g.moving[inbox] = c.Members
	if slices.Equal(c.Members, g.latest) {
		g.moving[inbox] = g.latest // one list for all, not one for each
	}
}

// gone handles the end of a connection.
func (g *Guide) gone(inbox string) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.moving, inbox)
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// now is the cluster as it is; nil if the members are not known.
func (g *Guide) now() *protocol.Cluster {
	members := g.Members()
	if len(members) == 0 {
		return nil
	}
	c := &protocol.Cluster{Spread: g.spread(running(members))}
	for _, m := range members {
		c.Members = append(c.Members, protocol.Member(m))
	}
	return c
}

func running(members []cluster.Member) (n int) {
	for _, m := range members {
		if m.Running {
			n++
		}
	}
	return n
}

// spread is over how long the minions of a member that is lost distribute their attempts, if
// this many run before.
func (g *Guide) spread(running int) time.Duration {
	others := max(1, running-1)
	ofOne := g.Accepted() / max(1, running)
	return min(maxSpread, time.Duration(ofOne)*time.Second/time.Duration(others*g.taken()))
}

// Watch tells the minions about each change of the members, until ctx ends. What each was told is
// remembered, since the list may change while one is welcomed.
func (g *Guide) Watch(ctx context.Context) {
	if g == nil {
		return
	}
	for sleep(ctx, lookEvery) {
		if c := g.now(); c != nil {
			g.tell(ctx, protocol.Control{Cluster: c}, g.outdated(c.Members), tellAtOnce)
		}
	}
}

// outdated are the connections whose minions were told another list.
func (g *Guide) outdated(now []protocol.Member) (list []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.latest = now
	for inbox, told := range g.moving { // in an order that is not always the same
		if told != nil && !slices.Equal(told, now) {
			list = append(list, inbox)
		}
	}
	return list
}

// sleep returns false when ctx has ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// inboxes are the connections whose minions move.
func (g *Guide) inboxes() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := make([]string, 0, len(g.moving))
	for inbox := range g.moving { // in an order that is not always the same
		list = append(list, inbox)
	}
	return list
}

// tell sends a message to these connections, some of them at once.
func (g *Guide) tell(ctx context.Context, c protocol.Control, inboxes []string, atOnce int) {
	body, err := protocol.Encode(c)
	if err != nil {
		g.Log.Error("minions are not told about the cluster", "err", err)
		return
	}
	for i, inbox := range inboxes {
		if i > 0 && i%atOnce == 0 && !sleep(ctx, tellEvery) {
			return
		}
		if c.Cluster != nil && !g.tells(inbox, c.Cluster.Members) {
			continue
		}
		if err := g.Publish(bus.ControlSubject(inbox), body); err != nil {
			g.untold(inbox)
			g.warned.Log(g.Log, slog.LevelWarn, "tell", 1, "minions are not told about the cluster", "err", err)
			return
		}
	}
}

// tells records what a connection is told. It reports whether it is to be told now: not if it has
// ended, or says hello once more.
func (g *Guide) tells(inbox string, members []protocol.Member) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.moving[inbox] == nil {
		return false
	}
	g.moving[inbox] = members
	return true
}

// untold has a connection told again that could not be. What it was told before does not matter.
func (g *Guide) untold(inbox string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.moving[inbox] != nil {
		g.moving[inbox] = []protocol.Member{}
	}
}

// Retire sends the minions to other members before this one stops, and returns when they have
// left, or after leaveTime and leftTime at the latest. From then on it takes no more. Without
// another member that runs it returns at once.
func (g *Guide) Retire(ctx context.Context) {
	if g == nil || running(g.Members()) < 2 {
		return
	}
	g.mu.Lock()
	g.stopping = true
	g.mu.Unlock()
	began := time.Now()
	inboxes := g.inboxes()
	inTime := int((int64(len(inboxes))*int64(tellEvery) + int64(leaveTime) - 1) / int64(leaveTime))
	g.tell(ctx, protocol.Control{Leave: true}, inboxes, max(leaveAtOnce, inTime))
	left := g.wait(ctx)
	if len(inboxes) > 0 {
		g.Log.Info("minions were sent to the other members", "count", len(inboxes)-left, "left", left, "after", time.Since(began).Round(time.Millisecond))
	}
}

// wait waits until the minions have left, for leftTime at most, and returns how many have not. If
// the other members stop, too, nobody takes them.
func (g *Guide) wait(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, leftTime)
	defer cancel()
	for {
		g.mu.Lock()
		n := len(g.moving)
		if n > 0 && g.changed == nil {
			g.changed = make(chan struct{})
		}
		changed := g.changed
		g.mu.Unlock()
		if n == 0 {
			return 0
		}
		select {
		case <-changed:
		case <-time.After(tellEvery):
			if running(g.Members()) < 2 {
				return n
			}
		case <-ctx.Done():
			return n
		}
	}
}
