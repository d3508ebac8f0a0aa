package admission

import (
	"maps"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// maxSuspects is how many ids are remembered. Peers can bring that many new keys, but not within
// seconds.
const maxSuspects = pki.MaxWaiting

// suspects are those whose connections are checked after a change of keys.
type suspects struct {
	ids     map[salt.MinionID]bool // minions
	all     bool                   // all minions, since the ids were too many
	clients bool                   // all clients
}

// add adds minions.
func (s *suspects) add(ids map[salt.MinionID]bool) {
	if len(ids) == 0 {
		return
	}
	if s.ids == nil {
		s.ids = map[salt.MinionID]bool{}
	}
	maps.Copy(s.ids, ids)
	if len(s.ids) > maxSuspects {
		s.ids, s.all = nil, true
	}
}

// join adds other suspects.
func (s *suspects) join(other suspects) {
	s.add(other.ids)
	s.all, s.clients = s.all || other.all, s.clients || other.clients
}

func (s suspects) nobody() bool { return len(s.ids) == 0 && !s.all && !s.clients }

// has reports whether a connection is to be checked.
func (s suspects) has(i bus.Identity) bool {
	switch i.Role {
	case bus.RoleClient:
		return s.clients
	case bus.RoleMinion, bus.RoleCaller:
		return s.all || s.ids[salt.MinionID(i.Name)]
	}
	return false
}
