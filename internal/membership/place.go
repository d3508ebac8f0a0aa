package membership

import (
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/eventbus"
)

// Place is where a master stands among those that are one system.
type Place struct {
	Name   string   // of this member; "" for a single master
	All    []string // the names of all members, this one included
	Copies int      // of what they store
	Hosted bool     // at NATS servers that others run, and so in no directory of the master
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
	switch {
	case cfg.NATSJetStream:
		return hostedPlace(cfg), nil
	case cfg.ClusterID == "":
		return Place{}, nil
	}
	i, err := identify(cfg)
	return i.place(), err
}

// MoveEntry returns what an entry of a table becomes when the journal that it is about becomes that
// of another member, see eventbus.MoveEntry. With nats_jetstream a master is alone, although its
// journal has a name.
func MoveEntry(table, key string, value []byte, from, to string) (string, []byte) {
	return eventbus.MoveEntry(table, key, value, unhosted(from), unhosted(to))
}

func unhosted(name string) string {
	if name == hostedName {
		return ""
	}
	return name
}
