package membership

import (
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/eventbus"
)

// Place is where a master stands among those that are one system.
type Place struct {
	Name   string   // of this member; "" for a master alone
	All    []string // the names of all members, this one included
	Copies int      // of what they store
}

// Place returns the place of this member.
func (m *Membership) Place() Place {
	if m == nil {
		return Place{}
	}
	return m.identity.place()
}

func (i identity) place() Place {
	p := Place{Name: i.name, Copies: i.copies}
	for _, peer := range i.peers {
		p.All = append(p.All, nameOf(peer))
	}
	return p
}

// PlaceIn returns the place of a master with these settings, while it does not run.
func PlaceIn(cfg *config.Master) (Place, error) {
	if cfg.ClusterID == "" {
		return Place{}, nil
	}
	i, err := identify(cfg)
	return i.place(), err
}

// MoveEntry returns what an entry of a table becomes when the journal that it is about becomes that
// of another member, see eventbus.MoveEntry.
func MoveEntry(table, key string, value []byte, from, to string) (string, []byte) {
	return eventbus.MoveEntry(table, key, value, from, to)
}
