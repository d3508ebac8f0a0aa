package membership

import (
	"cmp"
	"log/slog"
	"net"
	"slices"
	"strconv"

	"github.com/brinebus/brine/internal/cluster"
)

// Members returns the members of the cluster, as minions are told about them: all in
// cluster_peers that are not removed. What a member has not said since the start of this one is
// taken to be as it is here: its port for minions.
func (m *Membership) Members() (list []cluster.Member) {
	removed, err := m.cluster.Rule.Removed()
	if err != nil {
		m.throttle.Log(m.log, slog.LevelError, "removed", 1, "the minions are not told about the members: it is not known which are removed", "err", err)
		return nil
	}
	running, own := m.exchange.Others(), m.forMinions(m.self)
	for _, peer := range m.peers {
		name := nameOf(peer)
		s := m.heard.latest(name)
		one := cluster.Member{Name: name, Address: cmp.Or(s.Address, m.forMinions(peer)), Key: s.Key, Running: slices.Contains(running, name)}
		unheard := s.Address == "" && peer != m.self
		if peer == m.self {
			one.Address, one.Key, one.Running = own, m.fingerprint(), true
		}
		if removed[one.Key] || unheard && one.Address == own {
			continue
		}
		list = append(list, one)
	}
	return list
}

// forMinions is the address for minions of the member that other members reach at peer.
func (m *Membership) forMinions(peer string) string {
	host, _, _ := net.SplitHostPort(peer) // identify has checked it
	return net.JoinHostPort(host, strconv.Itoa(m.cfg.RetPort))
}
