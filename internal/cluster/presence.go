package cluster

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// kindPresence is the kind of the messages about members and their minions.
const kindPresence = "presence"

const (
	usualHeartbeat = 500 * time.Millisecond
	// silentHeartbeats is how many heartbeats in a row may be missing before a member, with its
	// minions, counts as gone.
	silentHeartbeats = 5
	// relist is how many heartbeats pass before a list is requested again.
	relist = 4
	// maxMembers limits the members that are remembered; there are three to five.
	maxMembers = 16
)

// presence is a message of a member about itself: a heartbeat, a change of its minions, or all
// of them.
type presence struct {
	Run  string        `json:"run"`
	N    uint64        `json:"n"`              // its changes so far, this one included
	Came *Minion       `json:"came,omitempty"` // a change
	Went salt.MinionID `json:"went,omitempty"` // a change
	All  []Minion      `json:"all,omitempty"`
	Full bool          `json:"full,omitempty"` // All is complete
	List bool          `json:"list,omitempty"` // it requests the list of the receiver
	Bye  bool          `json:"bye,omitempty"`  // it stops
	// At is when it was sent, by the clock of its member, by which are the times in it.
	At time.Time `json:"at,omitzero"`
}

// ours returns the time at which a minion has connected by the clock of this machine, sent by one of another one: what
// counts is how long ago it was. zero is none.
func (p presence) ours(since time.Time) time.Time {
	if since.IsZero() || p.At.IsZero() {
		return time.Time{}
	}
	return time.Now().Add(-p.At.Sub(since))
}

// sent returns it as it is sent now. Times are those that a clock shows now which was set meanwhile.
func (p presence) sent() presence {
	p.At = time.Now()
	now := func(m Minion) Minion {
		if !m.Since.IsZero() {
			m.Since = p.At.Add(-p.At.Sub(m.Since))
		}
		return m
	}
	if p.Came != nil {
		m := now(*p.Came)
		p.Came = &m
	}
	p.All = slices.Clone(p.All)
	for i, m := range p.All {
		p.All[i] = now(m)
	}
	return p
}

// peer is another member.
type peer struct {
	run     string
	n       uint64 // the latest change that is known
	synced  bool   // its list is complete
	behind  uint64 // the number of changes according to its last heartbeat
	asked   time.Time
	heard   time.Time
	minions map[salt.MinionID]Minion
	parts   rpc.Assembler
	toAll   rpc.Assembler   // of messages to all members: they come by another subscription, in between
	ctx     context.Context // ends when it is gone
	cancel  context.CancelFunc
}

// Member is one master of a cluster, as its minions know it.
type Member struct {
	Name    string
	Address string // host:port, for minions
	Key     string // the fingerprint of its key; "" if it is not known
	Running bool
}

// Joined informs the others that a minion is connected here, or that its key or grains have
// changed.
func (x *Exchange) Joined(m Minion) {
	x.mu.Lock()
	defer x.mu.Unlock()
	before, known := x.here[m.ID]
	x.here[m.ID] = m
	if known && before.is(m) {
		return
	}
	x.n++
	x.tellPeers(presence{Run: x.run, N: x.n, Came: &m})
}

// Left informs the others that a minion is no longer connected here.
func (x *Exchange) Left(id salt.MinionID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, ok := x.here[id]; !ok {
		return
	}
	delete(x.here, id)
	x.n++
	x.tellPeers(presence{Run: x.run, N: x.n, Went: id})
}

// Where returns the member that the minion has connected to last, other than this one: a member
// that was killed still counts for seconds, while its minions are elsewhere already.
func (x *Exchange) Where(id salt.MinionID) (member string, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	latest := uint64(0)
	for name, n := range x.where[id] {
		if n > latest {
			member, latest = name, n
		}
	}
	return member, member != ""
}

// Others returns the other members that are running, sorted.
func (x *Exchange) Others() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Sorted(maps.Keys(x.peers))
}

// Came receives after a member has come, or was restarted; once for several at a time.
func (x *Exchange) Came() <-chan struct{} { return x.news }

// gone returns a context that ends when the member is gone, nil if it is not running.
func (x *Exchange) gone(member string) context.Context {
	x.mu.Lock()
	defer x.mu.Unlock()
	if p := x.peers[member]; p != nil {
		return p.ctx
	}
	return nil
}

// tellPeers sends a message to each other member. The caller holds mu, so that the others
// receive changes in order.
func (x *Exchange) tellPeers(p presence) {
	for name := range x.peers {
		x.say(bus.MemberSubject(name, kindPresence), p)
	}
}

func (x *Exchange) say(to string, p presence) {
	b, err := json.Marshal(p.sent())
	if err != nil {
		return // texts and numbers can always be marshalled
	}
	if err := rpc.Publish(x.opts.Conn, x.subject(to), b, false); err != nil && x.ctx.Err() == nil {
		x.throttle.Log(x.opts.Log, slog.LevelWarn, "say", 1, "the other members do not hear of this one", "err", err)
	}
}

// heartbeat sends heartbeats, and checks for members that send none.
func (x *Exchange) heartbeat() {
	tick := time.NewTicker(x.opts.Heartbeat)
	defer tick.Stop()
	for {
		x.mu.Lock()
		p := presence{Run: x.run, N: x.n}
		x.mu.Unlock()
		x.say(bus.MembersSubject(kindPresence), p)
		x.dropSilent(time.Now())
		select {
		case <-tick.C:
		case <-x.ctx.Done():
			return
		}
	}
}

func (x *Exchange) dropSilent(now time.Time) {
	x.mu.Lock()
	var silent []string
	for name, p := range x.peers {
		if now.Sub(p.heard) > silentHeartbeats*x.opts.Heartbeat {
			silent = append(silent, name)
		}
	}
	x.mu.Unlock()
	for _, name := range silent {
		x.turn.Lock()
		x.drop(name, "it is silent", func(p *peer) bool { return now.Sub(p.heard) > silentHeartbeats*x.opts.Heartbeat })
		x.turn.Unlock()
	}
}

// Unlinked drops a member that cannot be reached any more, before its silence shows that.
func (x *Exchange) Unlinked(name string) {
	x.turn.Lock()
	defer x.turn.Unlock()
	x.drop(name, "there is no connection to it", func(*peer) bool { return true })
}

// drop forgets a member, with its minions. The caller holds turn.
func (x *Exchange) drop(name, why string, still func(*peer) bool) {
	x.mu.Lock()
	p := x.peers[name]
	if p == nil || !still(p) {
		x.mu.Unlock()
		return
	}
	delete(x.peers, name)
	p.cancel()
	for id := range p.minions {
		x.leave(name, id)
	}
	x.mu.Unlock()
	x.opts.Log.Warn("a member of the cluster is gone", "member", name, "minions", len(p.minions), "reason", why)
	x.dropUnfinished(name)
	for id := range p.minions {
		x.changes.add(name, id, nil)
	}
}

// leave updates where. The caller holds mu.
func (x *Exchange) leave(member string, id salt.MinionID) {
	delete(x.where[id], member)
	if len(x.where[id]) == 0 {
		delete(x.where, id)
	}
}

// hear handles a message of a member about itself.
func (x *Exchange) hear(from string, m *nats.Msg) {
	x.turn.Lock()
	defer x.turn.Unlock()
	p := x.peer(from)
	if p == nil {
		return
	}
	parts := &p.parts // only used under turn
	if strings.HasPrefix(m.Subject, bus.MembersSubject("")) {
		parts = &p.toAll
	}
	body, done, err := parts.Add(m)
	if !done {
		return
	}
	var said presence
	if err == nil {
		err = json.Unmarshal(body, &said)
	}
	if err != nil || said.Run == "" {
		x.throttle.Log(x.opts.Log, slog.LevelWarn, "unreadable", 1, "a member says what cannot be read", "member", from, "err", err)
		return
	}
	if said.Bye {
		x.drop(from, "it has stopped", func(p *peer) bool { return p.run == said.Run || p.run == "" })
		return
	}
	came, went := x.learn(from, p, said)
	for _, id := range went {
		x.changes.add(from, id, nil)
	}
	for _, m := range came {
		m.Since = said.ours(m.Since)
		x.changes.add(from, m.ID, &m)
	}
}

// peer returns what is known of a member, creating it if it is new; nil if there are too many.
func (x *Exchange) peer(name string) *peer {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.peers[name]
	if p == nil {
		if len(x.peers) >= maxMembers {
			return nil
		}
		p = &peer{minions: map[salt.MinionID]Minion{}, parts: rpc.Assembler{Limit: maxBody}, toAll: rpc.Assembler{Limit: maxBody}, heard: time.Now()}
		p.ctx, p.cancel = context.WithCancel(x.ctx)
		x.peers[name] = p
		x.opts.Log.Info("a member of the cluster is there", "member", name)
	}
	return p
}

// learn applies a message of a member, and returns what has changed.
func (x *Exchange) learn(from string, p *peer, said presence) (came []Minion, went []salt.MinionID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	p.heard = now
	if p.run != said.Run { // it was restarted: its minions are reported again
		for id := range p.minions {
			x.leave(from, id)
			went = append(went, id)
		}
		clear(p.minions)
		p.run, p.n, p.synced, p.behind, p.asked = said.Run, 0, false, 0, time.Time{}
		select {
		case x.news <- struct{}{}:
		default:
		}
	}
	switch {
	case said.List:
		x.say(bus.MemberSubject(from, kindPresence), presence{Run: x.run, N: x.n, Full: true, All: slices.Collect(maps.Values(x.here))})
	case said.Full:
		listed := map[salt.MinionID]bool{}
		for _, m := range said.All {
			listed[m.ID] = true
			if x.come(from, p, m) {
				came = append(came, m)
			}
		}
		for id := range p.minions {
			if !listed[id] {
				delete(p.minions, id)
				x.leave(from, id)
				went = append(went, id)
			}
		}
		p.n, p.synced = said.N, true
	case (said.Came != nil || said.Went != "") && p.synced && said.N == p.n+1:
		p.n = said.N
		if said.Came != nil && x.come(from, p, *said.Came) {
			came = append(came, *said.Came)
		}
		if _, known := p.minions[said.Went]; known {
			delete(p.minions, said.Went)
			x.leave(from, said.Went)
			went = append(went, said.Went)
		}
	case said.Came != nil || said.Went != "":
		p.synced = p.synced && said.N <= p.n // a change was lost
	default: // a heartbeat may overtake the changes before it, once
		if p.synced && p.n < p.behind {
			p.synced = false
		}
		p.behind = said.N
	}
	if !p.synced && now.Sub(p.asked) > relist*x.opts.Heartbeat {
		p.asked = now
		x.say(bus.MemberSubject(from, kindPresence), presence{Run: x.run, N: x.n, List: true})
	}
	return came, went
}

// come records a minion of a member, and reports whether that is new. The caller holds mu.
func (x *Exchange) come(from string, p *peer, m Minion) bool {
	if _, err := salt.ParseMinionID(string(m.ID)); err != nil || p.minions[m.ID].is(m) {
		return false
	}
	p.minions[m.ID] = m
	if x.where[m.ID] == nil {
		x.where[m.ID] = map[string]uint64{}
	}
	if x.where[m.ID][from] == 0 { // its key or grains may have changed since
		x.came++
		x.where[m.ID][from] = x.came
	}
	return true
}
