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
	cluster  *Cluster                         // its members are tried as well; nil for none
	spreads  bool                             // the minion prefers the members in an order of its own
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

// join has the members of a cluster tried as well. The minion chooses among them by itself where
// the configuration leaves the choice: it names one master, or a random order.
func (r *roster) join(c *Cluster, cfg *config.Minion) {
	r.cluster = c
	r.spreads = c != nil && (len(r.masters) == 1 || cfg.MasterType == "failover" && cfg.RandomMaster && !cfg.MasterFailback)
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
	if r.cluster != nil {
		r.order = r.withMembers(r.order)
	}
	if i := slices.Index(r.order, r.last); i >= 0 {
		r.order = append(slices.Delete(r.order, i, i+1), r.last)
	}
	r.last = ""
	return slices.Clone(r.order)
}

// withMembers adds the members of the cluster to an order: at its end, or before it, if they
// are the first choice.
func (r *roster) withMembers(order []string) []string {
	list, _ := r.cluster.now()
	if !r.spreads || len(list) == 0 {
		return r.cluster.complete(order, list)
	}
	var names []string
	for _, m := range r.cluster.ranked(list) {
		names = append(names, r.cluster.name(m))
	}
	for _, name := range order {
		if !slices.Contains(names, name) && slices.Contains(r.masters, name) {
			names = append(names, name)
		}
	}
	return names
}

// others returns the members to use instead of the one that a session is with. It changes
// nothing.
func (r *roster) others(s *Session) (names []string) {
	list, _ := r.cluster.now()
	for _, m := range r.cluster.ranked(list) {
		if !r.cluster.isMember(m, s) {
			names = append(names, r.cluster.name(m))
		}
	}
	return names
}

// names are all masters, for the log.
func (r *roster) names() []string {
	if r.cluster == nil {
		return r.masters
	}
	return r.cluster.Masters()
}

// failed records that a master was lost, for later rounds.
func (r *roster) failed(master string) { r.last = master }

// several reports whether there is another master to try.
func (r *roster) several() bool {
	return len(r.masters) > 1 || r.cluster != nil && len(r.cluster.Masters()) > 1
}

// first is the master to fail back to, "" if there is none.
func (r *roster) first() string {
	if !r.failback || len(r.masters) < 2 {
		return ""
	}
	return r.masters[0]
}
