package membership

import (
	"log/slog"
	"slices"
	"strings"
)

// shape is what the settings of a member say of its cluster. It must be the same at all.
type shape struct {
	// Peers are the addresses of all members, sorted; a member of an earlier version sends none.
	Peers  []string `json:"peers,omitempty"`
	Copies int      `json:"copies,omitempty"`
}

// shape returns what a member says of it.
func (i identity) shape() shape { return shape{i.peers, i.copies} }

// differs reports whether both are known, and differ.
func (s shape) differs(other shape) bool {
	return len(s.Peers) > 0 && len(other.Peers) > 0 && (s.Copies != other.Copies || !s.samePeers(other))
}

// samePeers reports whether both name the same members, as far as both are known.
func (s shape) samePeers(other shape) bool {
	return len(s.Peers) == 0 || len(other.Peers) == 0 || slices.Equal(s.Peers, other.Peers)
}

// shapes knows which other members have other settings than this one; used by Run.
type shapes struct{ other map[string]bool }

// compare logs which members have other settings. Such members are linked all the same, under names that one of
// them does not expect, and each that starts gives the shared tables its own number of copies.
func (c *shapes) compare(own shape, all map[string]said, log *slog.Logger) {
	other := map[string]bool{}
	for name, s := range all {
		was, is := c.other[name], own.differs(s.shape)
		other[name] = is
		switch {
		case is && !was:
			log.Warn("cluster_peers or cluster_copies of another member differ from those of this one", "member", name, "cluster_peers", strings.Join(s.Peers, ", "), "cluster_copies", s.Copies,
				"hint", "write both in the same way at all members, also the names in cluster_peers, and restart them one by one")
		case was && !is:
			log.Info("cluster_peers and cluster_copies of another member are those of this one again", "member", name)
		}
	}
	c.other = other
}
