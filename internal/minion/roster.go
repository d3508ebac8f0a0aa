package minion

import (
	"math/rand/v2"
	"slices"

	"brine/internal/link"
)

// roster is the order in which masters are tried. It is pure: what happens to a
// connection is told to it.
//
// The rules are Salt's for master_type failover: in the order of the
// configuration, or shuffled; a master that failed goes to the end for the round
// that follows; after each round the list is whole again.
type roster struct {
	masters  []string // addresses with ports, as configured
	shuffle  bool     // random_master
	failback bool     // master_failback: the first of the list keeps its place
	last     string   // the one that failed last, "" for none
}

func newRoster(masters []string, port int, shuffle, failback bool) *roster {
	r := &roster{shuffle: shuffle, failback: failback}
	for _, m := range masters {
		if a := link.WithPort(m, port); !slices.Contains(r.masters, a) {
			r.masters = append(r.masters, a)
		}
	}
	return r
}

// round returns the masters in the order of the next round.
func (r *roster) round() []string {
	order := slices.Clone(r.masters)
	if r.shuffle {
		free := order
		if r.failback && len(order) > 0 {
			free = order[1:]
		}
		rand.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	}
	if i := slices.Index(order, r.last); i >= 0 {
		order = append(slices.Delete(order, i, i+1), r.last)
	}
	r.last = ""
	return order
}

// failed notes that a master was lost, for the next round.
func (r *roster) failed(address string) { r.last = address }

// first is the master to fail back to, "" where that means nothing.
func (r *roster) first() string {
	if !r.failback || len(r.masters) < 2 {
		return ""
	}
	return r.masters[0]
}
