package membership

import (
	"context"
	"log/slog"

	"github.com/brinebus/brine/internal/accord"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/eventbus"
	"github.com/brinebus/brine/internal/salt"
)

// Place is where a master stands among those that are one system.
type Place struct {
	Cluster string   // its cluster_id; "" without one
	Name    string   // of this member; "" for a single master
	All     []string // the names of all members, this one included
	Copies  int      // of what they store
	Hosted  bool     // at NATS servers that others run, and so in no directory of the master
}

// Place returns the place of this member.
func (m *Membership) Place() Place {
	if m == nil {
		return Place{}
	}
	p := m.identity.place()
	p.Cluster = m.cfg.ClusterID
	return p
}

func (i identity) place() Place {
	p := Place{Name: i.name, Copies: i.copies}
	for _, peer := range i.peers {
		p.All = append(p.All, nameOf(peer))
	}
	return p
}

// PlaceIn returns the place of a master with these settings, while it does not run.
func PlaceIn(ctx context.Context, cfg *config.Master) (Place, error) {
	switch {
	case cfg.NATSJetStream:
		return hostedPlace(cfg), nil
	case cfg.ClusterID == "":
		return Place{}, nil
	}
	i, err := identify(ctx, cfg, ofMachine)
	p := i.place()
	p.Cluster = cfg.ClusterID
	return p, err
}

// MoveEntry returns what an entry of a table becomes when the journal that it is about becomes that
// of another member, see eventbus.MoveEntry. With nats_jetstream a master is alone, although its
// journal has a name.
func MoveEntry(table, key string, value []byte, from, to string) (string, []byte) {
	return eventbus.MoveEntry(table, key, value, unhosted(from), unhosted(to))
}

// RenameEntry returns what an entry of a table becomes when the journal of another master gets another name, see
// eventbus.RenameEntry.
func RenameEntry(table, key string, value []byte, from, to string) (string, []byte) {
	return eventbus.RenameEntry(table, key, value, from, to)
}

func unhosted(name string) string {
	if name == hostedName {
		return ""
	}
	return name
}

// keysTable is the table of what the members have decided about keys of minions.
const keysTable = "keys"

// maxOutdated is how many entries are named in the log that are not restored.
const maxOutdated = 100

// Outdated returns a function that reports whether an entry of a backup accepts a key of a minion that
// the key directory of this master does not accept any more, and logs those.
func Outdated(pkiDir string, log *slog.Logger) (func(table, key string, value []byte) bool, error) {
	outdated, err := accord.Outdated(pkiDir)
	if err != nil {
		return nil, err
	}
	logged := map[salt.MinionID]bool{}
	return func(table, key string, value []byte) bool {
		if table != keysTable {
			return false
		}
		id, is := outdated(key, value)
		if is && !logged[id] && len(logged) < maxOutdated {
			logged[id] = true
			log.Warn("a key is accepted in the backup and not in pki_dir: it is not accepted again", "minion", id, "hint", "if that is wrong, accept it: salt-key -a")
		}
		return is
	}, nil
}
