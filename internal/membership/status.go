package membership

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/member"
	"github.com/brinebus/brine/internal/runner"
)

// kindStatus is the request for what a member says of itself.
const kindStatus = "status"

// said is what a member says of itself.
type said struct {
	Version string   `json:"version"`
	Rules   string   `json:"rules"` // a digest of its access rules
	Minions int      `json:"minions"`
	Lacking []string `json:"lacking,omitempty"` // streams that lack a copy, as far as it knows
	// Lacks is the same with what is wrong; a member of an earlier version sends none.
	Lacks map[string]string `json:"lacks,omitempty"`
	Leads bool              `json:"leads"` // what it writes

	Address string `json:"address"` // host:port, for minions
	Key     string `json:"key"`     // the fingerprint of its master key

	// Counts says whether the member that asks counts for elections, if the one that answers leads all.
	Counts *bool `json:"counts,omitempty"`

	Time time.Time `json:"time,omitzero"` // of the answer; a member of an earlier version sends none

	Removed []member.Removal `json:"removed,omitempty"` // keys that it refuses; a member of an earlier version sends none

	// Left is when members have left in good order, and Away which members do not run and count for elections, if the
	// one that answers leads all; a member of an earlier version sends neither.
	Left map[string]time.Time `json:"left,omitempty"`
	Away []string             `json:"away,omitempty"`

	shape

	ahead *time.Duration // see clockAhead
}

// heard is what the others have said last.
type heard struct {
	mu sync.Mutex
	of map[string]said
	// last is the same, also of members that do not run any more.
	last map[string]said
	// counts are of the state of the cluster then; nil before the first look.
	counts *Counts
}

// Counts are of what monitoring watches in a cluster.
type Counts struct{ Members, Running, Lacking int }

func (h *heard) seen(s runner.ClusterStatus) {
	c := &Counts{Lacking: len(s.Lacking)}
	for _, one := range s.Members {
		if one.Counts() {
			c.Members++
			if one.Running {
				c.Running++
			}
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts = c
}

func (h *heard) set(name string, s said) (before said, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before, known = h.of[name]
	if h.of == nil {
		h.of, h.last = map[string]said{}, map[string]said{}
	}
	h.of[name], h.last[name] = s, s
	return before, known
}

// latest returns what a member has said, if it ever did since the start of this one.
func (h *heard) latest(name string) said {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last[name]
}

// keep forgets all members but these.
func (h *heard) keep(names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name := range h.of {
		if !slices.Contains(names, name) {
			delete(h.of, name)
		}
	}
}

func (m *Membership) serveStatus() {
	m.exchange.Handle(kindStatus, func(_ context.Context, from string, body []byte) (any, error) {
		if err := m.removals.hear(from, keysOf(m.broker.Cluster.Members()), body); err != nil {
			return nil, err
		}
		s := m.say()
		if counts, known := m.broker.Cluster.Counts(from); known {
			s.Counts = &counts
		}
		return s, nil
	})
}

func (m *Membership) say() said {
	lacks := m.broker.Cluster.Lacking()
	for stream, n := range otherCopies(m) {
		if lacks != nil && lacks[stream] == "" {
			lacks[stream] = otherThan(n, m.copies)
		}
	}
	return said{Version: m.version, Rules: m.own.Rules(), Leads: journal.Leads(m.journal), Minions: m.own.Minions(), Lacking: slices.Sorted(maps.Keys(lacks)), Lacks: lacks, Address: m.forMinions(m.self), Key: m.fingerprint(), Time: time.Now().UTC(), Removed: m.removals.newest(), Left: m.leaving.departed.all(), Away: away(m), shape: m.identity.shape()}
}

// statusTime limits the wait for the answer of a member.
const statusTime = 2 * time.Second

// ask asks all other members that run for what they say of themselves.
func (m *Membership) ask(ctx context.Context) map[string]said {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	all, own := map[string]said{}, question{m.removals.newest()}
	for _, name := range m.exchange.Others() {
		wg.Go(func() {
			var s said
			sent := time.Now()
			if err := m.exchange.Ask(ctx, name, kindStatus, own, &s); err != nil {
				return // its state says that it does not answer
			}
			s.ahead = clockAhead(sent, s.Time, time.Now())
			mu.Lock()
			defer mu.Unlock()
			all[name] = s
		})
	}
	wg.Wait()
	return all
}

// compare refuses the members that others have removed. It logs which members have other access rules or settings
// of the cluster, another version or another time: what somebody may do, and what is still there, then depends on where
// they ask.
func (m *Membership) compare(ctx context.Context) {
	asked := time.Now()
	all, own := m.ask(ctx), m.say()
	m.removals.apply(all, m.broker.Cluster, &m.leaving)
	var names []string
	for name, s := range all {
		names = append(names, name)
		before, known := m.heard.set(name, s)
		if differs := s.Rules != own.Rules; differs != (known && before.Rules != m.rules) || !known && differs {
			if differs {
				m.log.Warn("the access rules of another member, or settings that guard them, differ from those of this one: what is allowed depends on where somebody asks", "member", name)
			} else {
				m.log.Info("the access rules of another member, and the settings that guard them, are those of this one again", "member", name)
			}
		}
		if s.Version != own.Version && (!known || before.Version != s.Version) {
			m.log.Log(ctx, slog.LevelInfo, "another member has another version", "member", name, "version", s.Version)
		}
	}
	m.rules = own.Rules
	m.clocks.compare(all, m.log)
	m.shapes.compare(own.shape, all, m.log)
	m.heard.keep(names)
	m.heard.seen(state(m, own, all))
	m.leaving.departed.back(names, asked)
}

// Comparison is what another member has in common with this one.
type Comparison struct {
	RulesDiffer bool
	ClockAhead  *time.Duration // at least; nil if that is not known
}

// Compared returns the comparison with each member that answers.
func (m *Membership) Compared() map[string]Comparison {
	if m == nil {
		return nil
	}
	own, all := m.own.Rules(), map[string]Comparison{}
	m.heard.mu.Lock()
	defer m.heard.mu.Unlock()
	for name, s := range m.heard.of {
		all[name] = Comparison{s.Rules != own, s.ahead}
	}
	return all
}

// CountsOf returns the counts of the last look, some seconds ago; nil before the first one, and for a single master.
func CountsOf(m *Membership) *Counts {
	if m == nil {
		return nil
	}
	m.heard.mu.Lock()
	defer m.heard.mu.Unlock()
	return m.heard.counts
}

// ClusterStatus implements runner.Cluster.
func (m *Membership) ClusterStatus(ctx context.Context) (runner.ClusterStatus, error) {
	if m == nil {
		return runner.ClusterStatus{}, runner.ErrAlone
	}
	var own said
	var looks sync.WaitGroup
	looks.Go(func() { own = m.say() }) // it may look several times
	all := m.ask(ctx)
	looks.Wait()
	return state(m, own, all), nil
}

// state is the status of the cluster, of what this member says of itself and the others that answer.
func state(m *Membership, own said, all map[string]said) runner.ClusterStatus {
	linked := map[string]broker.PeerState{}
	for _, p := range m.broker.Cluster.Peers() {
		linked[p.Address] = p
	}
	status := runner.ClusterStatus{Cluster: m.cfg.ClusterID, Member: m.name, Copies: m.copies, Lacking: map[string]string{}, Unstored: m.jobs.Unstored()}
	if err := unstorable(m, own.Lacks); err != nil {
		status.Fault = err.Error()
	}
	all = maps.Clone(all)
	all[m.name] = own
	for stream, what := range unheard(m, all) {
		status.Lacking[stream] = what
	}
	status.Members = members(m.identity, all, m.broker.Cluster.Members())
	removed := m.removals.newest()
	ever, err := m.met.ever(removed)
	if err != nil {
		removed = nil // it is shown like one that does not run
	}
	for n := range status.Members {
		one := &status.Members[n]
		one.Removed = !one.Running && isRemoved(one.Name, ever, removed)
		one.Leaving = m.leaving.has(one.Name)
		if !one.Running && !one.Removed && !one.Leaving {
			one.Left = leftAt(one.Name, all)
		}
		for _, name := range all[one.Name].Lacking {
			status.Lacking[name] = cmp.Or(all[one.Name].Lacks[name], status.Lacking[name])
		}
		if p, ok := linked[one.Address]; ok && !one.Running && p.Err != nil {
			one.Fault = p.Err.Error()
		}
	}
	return status
}

// unheard returns the streams with a copy at a member that is linked and does not answer, with what is wrong: it may have stopped
// without a word. all has those that answer.
func unheard(m *Membership, all map[string]said) map[string]string {
	streams := map[string]string{}
	for _, one := range m.broker.Cluster.Members() {
		if _, answers := all[one.Name]; answers {
			continue
		}
		for _, stream := range m.broker.Cluster.At(one.Name) {
			streams[stream] = one.Name + " does not answer"
		}
	}
	return streams
}

// errLeaderless is why a member stores nothing although it reaches most others.
var errLeaderless = errors.New("the members of the cluster have no leader yet for what this one stores: it waits, or is refused")

// unstorable returns why this member stores nothing at the moment, nil if it does; lacks is what it says of its streams.
func unstorable(m *Membership, lacks map[string]string) error {
	if err := cmp.Or(m.broker.Store().Err(), journal.Stalled(m.journal)); err != nil {
		return err
	}
	for stream, what := range lacks {
		if what == broker.Leaderless && strings.HasSuffix(stream, "_"+m.name) { // that only this one writes
			return errLeaderless
		}
	}
	return nil
}

// members returns what is known of the members in cluster_peers, and of the others that are linked or answer:
// those are named in the settings of another member only. all is what each says, also this one.
func members(i identity, all map[string]said, linked []member.Member) (list []runner.MemberStatus) {
	addresses := map[string]string{}
	for _, address := range i.peers {
		addresses[nameOf(address)] = address
	}
	for _, one := range linked {
		addresses[one.Name] = cmp.Or(addresses[one.Name], addressIn(all[one.Name].Peers, one.Name))
	}
	for name, s := range all {
		addresses[name] = cmp.Or(addresses[name], addressIn(s.Peers, name))
	}
	own := all[i.name]
	for _, name := range slices.Sorted(maps.Keys(addresses)) {
		one := runner.MemberStatus{Name: name, Address: addresses[name], Self: name == i.name}
		if s, answers := all[name]; answers {
			one.Running, one.ClockAhead = true, s.ahead
			one.Version, one.Minions, one.Leads = s.Version, s.Minions, s.Leads
			one.SameRules, one.SamePeers = s.Rules == own.Rules, s.samePeers(own.shape)
			if s.Copies != own.Copies {
				one.Copies = s.Copies
			}
		}
		list = append(list, one)
	}
	return list
}

// addressIn returns which of the addresses is that of the member with this name, "" for none.
func addressIn(peers []string, name string) string {
	if n := slices.IndexFunc(peers, func(address string) bool { return nameOf(address) == name }); n >= 0 {
		return peers[n]
	}
	return ""
}

// isRemoved reports whether the key that the member of this name had last is one of the removed ones. ever has
// the last key of each name.
func isRemoved(name string, ever, removed []member.Removal) bool {
	return slices.ContainsFunc(ever, func(one member.Removal) bool {
		return one.Name == name && slices.ContainsFunc(removed, func(r member.Removal) bool { return r.Fingerprint == one.Fingerprint })
	})
}
