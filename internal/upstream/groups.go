package upstream

import "slices"

// group is one system: masters that name each other, or a single one.
type group struct {
	core     []int // the uplinks of its masters, in order
	left     []int // those whose masters have left it
	disputed bool  // they and others contradict each other, and nothing tells who has left
}

// lead is the first of its uplinks. One whose master has left it leads it as before: what is put for the system stays in order.
func (g *group) lead() int { return slices.Min(g.all()) }

func (g *group) all() []int { return slices.Concat(g.core, g.left) }

// isLeft reports whether the master of an uplink has left it.
func (g *group) isLeft(uplink int) bool { return slices.Contains(g.left, uplink) }

// none is no uplink.
const none = -1

// groups finds the systems. What the uplink anew was of is not considered.
//
// Those that have left a system stay with what is left of that, until all of that name them again. What they have said does not count: they do not
// know what the others have become since.
func (y *systems) groups(anew int) (list []*group) {
	var rest, left []int
	for i, m := range y.met {
		if i != anew && m.Left && y.first(m.Fellows) >= 0 && y.first(m.Fellows) != anew {
			left = append(left, i)
		} else {
			rest = append(rest, i)
		}
	}
	for len(rest) > 0 {
		var related []int
		related, rest = y.related(rest, anew)
		for len(related) > 0 {
			var found []*group
			found, related = y.group(related, anew)
			list = append(list, found...)
		}
	}
	for _, i := range left {
		with := y.first(y.met[i].Fellows)
		at := slices.IndexFunc(list, func(g *group) bool { return slices.Contains(g.all(), with) })
		switch {
		case at < 0: // only in a file that somebody else has written
			list = append(list, &group{core: []int{i}})
		case y.agree(append(slices.Clone(list[at].core), i)):
			list[at].core = append(list[at].core, i)
			slices.Sort(list[at].core)
		default:
			list[at].left = append(list[at].left, i)
			slices.Sort(list[at].left)
		}
	}
	return list
}

// related divides uplinks into the first one with all that may be of one system with it, and the others.
func (y *systems) related(among []int, anew int) (list, others []int) {
	list, others = among[:1:1], among[1:]
	for n := 0; n < len(list); n++ {
		var apart []int
		for _, i := range others {
			if y.fit(list[n], i) || y.was(list[n], i, anew) || y.was(i, list[n], anew) {
				list = append(list, i)
			} else {
				apart = append(apart, i)
			}
		}
		others = apart
	}
	slices.Sort(list)
	return list, others
}

// group finds one system among uplinks that may be of one, and returns the others, which are not of that one.
//
// Who is not named any more by one that all others name has left. A list may be out of date, of a master that is away; but what one says
// that is not named itself does not count.
func (y *systems) group(among []int, anew int) (found []*group, others []int) {
	core, left := slices.Clone(among), []int{}
	for {
		gone := func(i int) bool {
			return slices.ContainsFunc(core, func(by int) bool { return y.drops(by, i) && !y.dropped(by, core) })
		}
		out := slices.Collect(filter(core, gone))
		if len(out) == 0 {
			break
		}
		left = append(left, out...)
		core = slices.Collect(filter(core, func(i int) bool { return !slices.Contains(out, i) }))
	}
	slices.Sort(left)
	if !y.agree(core) {
		return y.inOrder(among), nil
	}
	g := &group{core: core}
	for _, i := range left {
		if slices.ContainsFunc(core, func(k int) bool { return y.was(i, k, anew) }) {
			g.left = append(g.left, i)
		} else {
			others = append(others, i)
		}
	}
	return []*group{g}, others
}

// inOrder puts each uplink into the group of the first one with whose members all name each other.
func (y *systems) inOrder(among []int) (list []*group) {
	for _, i := range among {
		k := slices.IndexFunc(list, func(g *group) bool { return y.agree(append(slices.Clone(g.core), i)) })
		if k < 0 {
			k, list = len(list), append(list, &group{disputed: true})
		}
		list[k].core = append(list[k].core, i)
	}
	return list
}

func filter(list []int, keep func(int) bool) func(func(int) bool) {
	return func(yield func(int) bool) {
		for _, i := range list {
			if keep(i) && !yield(i) {
				return
			}
		}
	}
}

// fit reports whether the masters of two uplinks name each other.
func (y *systems) fit(i, k int) bool {
	return y.met[i].Members.has(y.met[k].Key) && y.met[k].Members.has(y.met[i].Key)
}

// agree reports whether all of them name each other.
func (y *systems) agree(list []int) bool {
	for n, i := range list {
		if slices.ContainsFunc(list[:n], func(k int) bool { return !y.fit(i, k) }) {
			return false
		}
	}
	return true
}

// was reports whether the uplink i was of one system with k, as both are now.
func (y *systems) was(i, k, anew int) bool {
	return i != anew && k != anew && slices.Contains(y.met[i].Fellows, fellow{y.met[k].Address, y.met[k].Generation})
}

// drops reports whether the master of the uplink by does not name that of i, which could be named.
func (y *systems) drops(by, i int) bool {
	return by != i && y.met[i].Key != "" && !y.met[by].Members.has(y.met[i].Key)
}

// dropped reports whether one of these does not name the master of an uplink.
func (y *systems) dropped(i int, among []int) bool {
	return slices.ContainsFunc(among, func(by int) bool { return y.drops(by, i) })
}
