package upstream

import (
	"hash/crc32"
	"math/rand/v2"
	"slices"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/salt"
)

// roster is the order in which masters are tried. It is pure: its caller reports what happens
// to connections.
//
// The rules are Salt's for master_type failover: in the order of the configuration, or
// shuffled; a master that failed goes to the end, so that masters that failed earlier are tried
// before it.
type roster struct {
	masters  []string                         // in the order of the configuration
	shuffle  func(n int, swap func(i, j int)) // random_master; nil keeps the order
	failback bool                             // master_failback: the first of the list stays first
	order    []string                         // the order of the next round; nil is that of the configuration
	last     string                           // the one that failed last, "" for none
}

// newRosters returns one roster for each connection of the minion: one for all masters or, for
// a list with master_type str, one for each of them; none with master_type disable.
func newRosters(cfg *config.Minion) []*roster {
	masters := distinct(cfg.Master, cfg.MasterPort)
	switch {
	case cfg.MasterType == "disable" || len(masters) == 0:
		return nil
	case cfg.MasterType == "distributed":
		masters = distribute(masters, cfg.ID)
	case cfg.AllMasters():
		rosters := make([]*roster, len(masters))
		for i, name := range masters {
			rosters[i] = &roster{masters: []string{name}}
		}
		return rosters
	}
	r := &roster{masters: masters, failback: cfg.MasterFailback}
	if cfg.RandomMaster {
		r.shuffle = rand.Shuffle
	}
	return []*roster{r}
}

// distinct removes duplicates of the same master.
func distinct(names []string, port int) []string {
	var masters, addresses []string
	for _, name := range names {
		if a := WithPort(name, port); !slices.Contains(addresses, a) {
			masters, addresses = append(masters, name), append(addresses, a)
		}
	}
	return masters
}

// distribute puts the master first that the minion's id selects, as Salt does.
func distribute(masters []string, id salt.MinionID) []string {
	i := int(crc32.ChecksumIEEE([]byte(id)) % uint32(len(masters)))
	return append([]string{masters[i]}, slices.Delete(slices.Clone(masters), i, i+1)...)
}

// round returns the masters in the order of the next round.
func (r *roster) round() []string {
	if r.order == nil {
		r.order = slices.Clone(r.masters)
	}
	if r.shuffle != nil {
		r.order = slices.Clone(r.masters)
		free := r.order
		if r.failback && len(free) > 0 {
			free = free[1:]
		}
		r.shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	}
	if i := slices.Index(r.order, r.last); i >= 0 {
		r.order = append(slices.Delete(r.order, i, i+1), r.last)
	}
	r.last = ""
	return slices.Clone(r.order)
}

// failed records that a master was lost, for later rounds.
func (r *roster) failed(master string) { r.last = master }

// several reports whether there is another master to try.
func (r *roster) several() bool { return len(r.masters) > 1 }

// first is the master to fail back to, "" if there is none.
func (r *roster) first() string {
	if !r.failback || !r.several() {
		return ""
	}
	return r.masters[0]
}
