package membership

import (
	"cmp"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"

	"github.com/brinebus/brine/internal/cluster"
	"github.com/brinebus/brine/internal/member"
)

// named is the list that was made last, which counts while it is not known which members are
// removed: a minion that is told of no members takes this for a single master.
type named struct {
	mu   sync.Mutex
	list []cluster.Member
}

func (n *named) set(list []cluster.Member) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = slices.Clone(list)
}

func (n *named) get() []cluster.Member {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.list)
}

// Members returns the members of the cluster, as minions are told about them: all in
// cluster_peers that are not removed. A removed key is known by the name of its member, too: after a
// restart nothing else shows which address it had. What a member has not said since the start of this one is
// taken to be as it is here: its port for minions. While the removed ones cannot be read it returns
// what it has returned last, nil for nothing.
func (m *Membership) Members() (list []cluster.Member) {
	removed, err := member.ReadRemovals(m.removals.path)
	if err != nil {
		m.throttle.Log(m.log, slog.LevelError, "removed", 1, "the minions are told about the members as they were: it is not known which are removed", "err", err)
		return m.named.get()
	}
	running, own, gone := m.exchange.Others(), m.forMinions(m.self), gone(removed, m.known(), m.name)
	for _, peer := range m.peers {
		name := nameOf(peer)
		s := m.heard.latest(name)
		one := cluster.Member{Name: name, Address: cmp.Or(s.Address, m.forMinions(peer)), Key: s.Key, Running: slices.Contains(running, name)}
		unheard := s.Address == "" && peer != m.self
		if peer == m.self {
			one.Address, one.Key, one.Running = own, m.fingerprint(), true
		}
		if gone(name, one.Key) || unheard && one.Address == own {
			continue
		}
		list = append(list, one)
	}
	m.named.set(list)
	return list
}

// gone returns what reports whether the member with a name was removed. said is the key that it has
// said, which counts less than the one that its link has shown; the name alone counts as long as it was
// not linked since the start of this one, with another key. The name own is that of this member.
func gone(removed member.Removals, met []member.Removal, own string) func(name, said string) bool {
	refused, named, shown := removed.Fingerprints(), map[string]bool{}, map[string]string{}
	for _, one := range removed.List {
		named[one.Name] = one.Name != own
	}
	for _, one := range met {
		shown[one.Name] = one.Fingerprint
	}
	return func(name, said string) bool {
		return refused[said] || refused[shown[name]] || named[name] && shown[name] == ""
	}
}

// forMinions is the address for minions of the member that other members reach at peer.
func (m *Membership) forMinions(peer string) string {
	host, _, _ := net.SplitHostPort(peer) // identify has checked it
	return net.JoinHostPort(host, strconv.Itoa(m.cfg.RetPort))
}
