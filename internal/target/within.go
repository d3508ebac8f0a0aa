package target

import (
	"strings"
	"unicode/utf8"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target/fnmatch"
)

// Within reports whether t can only match minions that s matches, whatever minions exist: it
// compares the two expressions, not the minions they match today. So the answer reveals nothing
// about minions. If this cannot be proven, the answer is no.
//
// Ids that t names explicitly are the exception: named is called for each, also for ids without a
// minion, and reports whether s matches it. The work is subtracted from effort; when it reaches
// zero nothing more is proven.
func (t *Target) Within(s *Target, named func(salt.MinionID) bool, effort *Effort) bool {
	return effort.within(t.root, s.root, named)
}

// Effort is how much work may be spent on proofs, in steps of some 100 ns.
type Effort int

// DefaultEffort is enough for thousands of rules; a deliberate attack costs tens of milliseconds.
const DefaultEffort Effort = 100_000

func (e *Effort) within(n, s node, named func(salt.MinionID) bool) bool {
	if a, ok := n.(*leaf); ok {
		if b, ok := s.(*leaf); ok {
			if a.word == b.word {
				return true
			}
			if apart(a, b) {
				return false
			}
		}
	}
	if list, ok := n.names(nil); ok {
		return allNamed(list, named)
	}
	switch x := n.(type) {
	case group:
		return e.within(x.node, s, named)
	case anyOf:
		for _, part := range x {
			if !e.within(part, s, named) {
				return false
			}
		}
		return true
	case allOf:
		for _, part := range x {
			if e.within(part, s, named) {
				return true
			}
		}
	}
	if *e < 0 {
		return false
	}
	p := newProof(n, s)
	*e -= Effort(len(p.leaves))
	return len(p.facts) <= maxProofFacts && p.holds(e)
}

// apart reports whether two globs begin with different text, which makes the proof unnecessary.
func apart(a, b *leaf) bool {
	x, ok := a.test.(idGlob)
	y, also := b.test.(idGlob)
	if !ok || !also {
		return false
	}
	p, q := x.Prefix(), y.Prefix()
	return !strings.HasPrefix(p, q) && !strings.HasPrefix(q, p)
}

// allNamed skips names that no minion can have: they match nothing.
func allNamed(names []string, named func(salt.MinionID) bool) bool {
	all := true
	for _, name := range unique(names) {
		id, err := salt.ParseMinionID(name)
		all = (err != nil || named(id)) && all
	}
	return all
}

// MeansByID reports whether t matches a minion by its id alone, whatever its grains and pillar are.
func (t *Target) MeansByID(id salt.MinionID) bool {
	sure, _ := byID(t.root, Facts{ID: id})
	return sure
}

// byID reports whether a part is certainly true by the id alone, and whether it can be true.
func byID(n node, f Facts) (sure, possible bool) {
	switch x := n.(type) {
	case group:
		return byID(x.node, f)
	case noneOf:
		sure, possible = byID(x.node, f)
		return !possible, !sure
	case allOf:
		sure, possible = true, true
		for _, part := range x {
			s, p := byID(part, f)
			sure, possible = sure && s, possible && p
		}
	case anyOf:
		for _, part := range x {
			s, p := byID(part, f)
			sure, possible = sure || s, possible || p
		}
	case *leaf:
		if x.needs(needGrains) || x.needs(needPillar) {
			return false, true
		}
		ok, err := x.match(f)
		return ok && err == nil, ok || err != nil
	}
	return sure, possible
}

// maxProofFacts limits the leaves about grains and pillar: each doubles the cases. With more,
// nothing is proven.
const maxProofFacts = 6

// proof checks whether n implies s. Leaves about ids are languages, and all ids are tried; leaves
// about grains and pillar can be true or false in any combination, unless one implies another.
type proof struct {
	n, s   node
	leaves map[string]*leaf // by word
	ids    map[string]int   // words that are languages: an index of machines
	facts  map[string]int   // the other words

	machines  []machine
	idTruth   []bool
	factTruth []bool
	implied   [][2]int // of facts: the first implies the second
}

func newProof(n, s node) *proof {
	p := &proof{n: n, s: s, leaves: map[string]*leaf{}, ids: map[string]int{}, facts: map[string]int{}}
	p.collect(n)
	p.collect(s)
	if len(p.facts) > maxProofFacts {
		return p
	}
	p.idTruth, p.factTruth = make([]bool, len(p.machines)), make([]bool, len(p.facts))
	for a, i := range p.facts {
		for b, j := range p.facts {
			if i != j && p.leaves[a].implies(p.leaves[b]) {
				p.implied = append(p.implied, [2]int{i, j})
			}
		}
	}
	return p
}

func (p *proof) collect(n node) {
	switch x := n.(type) {
	case group:
		p.collect(x.node)
	case noneOf:
		p.collect(x.node)
	case allOf:
		for _, part := range x {
			p.collect(part)
		}
	case anyOf:
		for _, part := range x {
			p.collect(part)
		}
	case *leaf:
		if p.leaves[x.word] != nil {
			return
		}
		p.leaves[x.word] = x
		if m := newMachine(x); m != nil {
			p.ids[x.word] = len(p.machines)
			p.machines = append(p.machines, m)
			return
		}
		p.facts[x.word] = len(p.facts)
	}
}

// truth returns the value of a part in the current case.
func (p *proof) truth(n node) bool {
	switch x := n.(type) {
	case group:
		return p.truth(x.node)
	case noneOf:
		return !p.truth(x.node)
	case allOf:
		for _, part := range x {
			if !p.truth(part) {
				return false
			}
		}
		return true
	case anyOf:
		for _, part := range x {
			if p.truth(part) {
				return true
			}
		}
	case *leaf:
		if i, ok := p.ids[x.word]; ok {
			return p.idTruth[i]
		}
		return p.factTruth[p.facts[x.word]]
	}
	return false
}

// always reports whether ok is true for all possible facts.
func (p *proof) always(ok func() bool) bool {
	for set := range 1 << len(p.factTruth) {
		for i := range p.factTruth {
			p.factTruth[i] = set>>i&1 == 1
		}
		if p.possible() && !ok() {
			return false
		}
	}
	return true
}

func (p *proof) possible() bool {
	for _, pair := range p.implied {
		if p.factTruth[pair[0]] && !p.factTruth[pair[1]] {
			return false
		}
	}
	return true
}

// holds tries all ids: each is a path through the states of the machines.
func (p *proof) holds(e *Effort) bool {
	letters := p.letters()
	start := make([]string, len(p.machines))
	for i, m := range p.machines {
		start[i] = m.start()
	}
	seen := map[string]bool{}
	todo := [][]string{start}
	for first := true; len(todo) > 0; first = false {
		now := todo[0]
		todo = todo[1:]
		if !first && !p.impliedBy(now) {
			return false
		}
		for i := range len(letters) {
			if *e -= Effort(1 + len(p.machines)); *e < 0 {
				return false
			}
			next := p.step(now, letters[i])
			key := strings.Join(next, "\xff")
			if !seen[key] {
				seen[key] = true
				todo = append(todo, next)
			}
		}
	}
	return true
}

// impliedBy reports whether n implies s for an id that ends in these states.
func (p *proof) impliedBy(states []string) bool {
	for i, m := range p.machines {
		p.idTruth[i] = m.accepts(states[i])
	}
	return p.always(func() bool { return !p.truth(p.n) || p.truth(p.s) })
}

func (p *proof) step(states []string, c byte) []string {
	next := make([]string, len(states))
	for i, m := range p.machines {
		next[i] = m.step(states[i], c)
	}
	return next
}

// letters returns characters that the machines may distinguish: of those allowed in an id, see
// salt.ParseMinionID, one between each two bounds.
func (p *proof) letters() string {
	var bound [utf8.RuneSelf + 1]bool
	for _, m := range p.machines {
		m.ranges(func(from, to rune) {
			bound[min(from, utf8.RuneSelf)], bound[min(to+1, utf8.RuneSelf)] = true, true
		})
	}
	some, new := "", true
	for c := range rune(utf8.RuneSelf) {
		if new = new || bound[c]; new && salt.IsIDCharacter(c) {
			some, new = some+string(c), false
		}
	}
	return some
}

// implies reports whether a, about grains or pillar, is true only if b is: b accepts any value of a
// key, or has a glob for the value in a.
func (l *leaf) implies(b *leaf) bool {
	x, ok := l.test.(*data)
	y, also := b.test.(*data)
	if !ok || !also || x.ofPillar() != y.ofPillar() || x.delimiter != y.delimiter || y.kind != Grain && y.kind != Pillar {
		return false
	}
	i := strings.LastIndex(y.expr, y.delimiter)
	key, pattern := y.expr[:i+len(y.delimiter)], y.expr[i+len(y.delimiter):]
	rest, ok := strings.CutPrefix(x.expr, key)
	if !ok || strings.ContainsAny(key, "*?[") {
		return false
	}
	return pattern == "*" || x.kind == y.kind && !strings.ContainsAny(rest, "*?[") && !strings.Contains(rest, x.delimiter) &&
		!strings.Contains(rest, defaultDelimiter) && fnmatch.Match(strings.ToLower(pattern), strings.ToLower(rest))
}

func (d *data) ofPillar() bool {
	return d.kind == Pillar || d.kind == PillarPCRE || d.kind == PillarExact
}
