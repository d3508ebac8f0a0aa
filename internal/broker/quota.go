package broker

import (
	"container/list"
	"net"
	"net/netip"
)

// quota is a bounded number of connections, in all and for each host. It has no lock.
type quota struct {
	most, ofHost int
	n            int
	hosts        map[string]*list.List // of arrivals, the oldest first
}

func newQuota(most, ofHost int) *quota {
	return &quota{most: most, ofHost: ofHost, hosts: map[string]*list.List{}}
}

// add adds a. If that is one too many, victim is the connection that must give way to it: one
// of the same host for which gives is true, or one of the host with the most. If none may be
// removed, a is not added.
func (c *quota) add(a *arrival, gives func(*arrival) bool) (victim *arrival, taken bool) {
	own := c.count(a.host)
	switch {
	case own >= c.ofHost:
		victim = c.oldest(a.host, gives)
	case c.n >= c.most:
		victim = c.surplus(own, gives)
	default:
		c.put(a)
		return nil, true
	}
	if victim == nil {
		return nil, false
	}
	c.remove(victim)
	c.put(a)
	return victim, true
}

func (c *quota) count(host string) int {
	if l := c.hosts[host]; l != nil {
		return l.Len()
	}
	return 0
}

func (c *quota) put(a *arrival) {
	l := c.hosts[a.host]
	if l == nil {
		l = list.New()
		c.hosts[a.host] = l
	}
	a.spot, a.quota = l.PushBack(a), c
	c.n++
}

// remove removes a. A second call does nothing.
func (c *quota) remove(a *arrival) {
	if a.quota != c {
		return
	}
	l := c.hosts[a.host]
	l.Remove(a.spot)
	if l.Len() == 0 {
		delete(c.hosts, a.host)
	}
	a.spot, a.quota = nil, nil
	c.n--
}

// oldest returns the oldest connection of a host for which gives is true, nil if there is none.
func (c *quota) oldest(host string, gives func(*arrival) bool) *arrival {
	l := c.hosts[host]
	if l == nil {
		return nil
	}
	for e := l.Front(); e != nil; e = e.Next() {
		if a := e.Value.(*arrival); gives(a) {
			return a
		}
	}
	return nil
}

// surplus returns the connection that gives way to a host with own connections: of the host
// with the most, one for which gives is true, or its oldest if it has more than its share;
// otherwise one of another host for which gives is true.
func (c *quota) surplus(own int, gives func(*arrival) bool) *arrival {
	most, heaviest := 0, ""
	for host, l := range c.hosts {
		if l.Len() > most {
			most, heaviest = l.Len(), host
		}
	}
	if a := c.oldest(heaviest, gives); a != nil {
		return a
	}
	if most > own+1 {
		return c.oldest(heaviest, anybody)
	}
	for host := range c.hosts {
		if a := c.oldest(host, gives); a != nil {
			return a
		}
	}
	return nil
}

func anybody(*arrival) bool { return true }
func nobody(*arrival) bool  { return false }

// hostGroup is what counts as one host: an IPv4 address, or the /64 network that an IPv6 host
// has for itself.
func hostGroup(a net.Addr) string {
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return hostOf(a.String())
	}
	addr := ap.Addr().Unmap().WithZone("")
	if addr.Is4() {
		return addr.String()
	}
	network, err := addr.Prefix(64)
	if err != nil {
		return addr.String()
	}
	return network.String()
}
