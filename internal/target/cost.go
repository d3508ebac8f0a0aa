package target

import (
	"fmt"
	"strings"
)

// What an expression may cost. Anybody may write one, so what it takes to compile it,
// and to hold it against one minion, is bounded before either is done. One unit is about
// what it takes to compare an id with a name: 50 ns.
const (
	// MaxText is the longest expression in bytes: ten thousand names of a hundred bytes.
	MaxText = 1 << 20
	// maxCost allows tens of thousands of names, thousands of words such as G@os:Debian,
	// hundreds of regular expressions such as E@web\d+.
	maxCost = 50_000

	globCost   = 2
	dataCost   = 5
	regexpCost = 20
	// backtrackCost is that of a pattern for the engine that may go back: it may take as
	// long as its clock lets it.
	backtrackCost = 500
	// textStep is how many bytes of a value are compared for one step of a match, and
	// patternStep how many of a regular expression make each of those dearer.
	textStep    = 256
	patternStep = 64
)

// costOf is what a leaf costs, as far as its text tells.
func costOf(expr string, kind Kind, delimiter string) int {
	switch kind {
	case List:
		return 1 + len(expr)/textStep
	case PCRE:
		return regexpCost + len(expr)/4
	case GrainPCRE, PillarPCRE:
		return patterns(expr, delimiter) * (regexpCost + len(expr)/4)
	case Grain, Pillar, PillarExact:
		return patterns(expr, delimiter) * dataCost
	case Glob:
		if strings.ContainsAny(expr, "*?[") {
			return globCost + len(expr)/textStep
		}
	}
	return 1
}

// patterns is how many patterns the text of a grain or pillar expression is read as: each
// of its delimiters may end the keys.
func patterns(expr, delimiter string) int {
	n := strings.Count(expr, delimiter)
	if delimiter != defaultDelimiter {
		n += strings.Count(expr, defaultDelimiter)
	}
	return 1 + n*(n-1)/2
}

// cost counts what an expression costs while it is parsed.
type cost struct {
	sum        int
	backtracks bool
}

// leaf parses a leaf if the expression can afford it.
func (c *cost) leaf(expr string, kind Kind, delimiter string) (*leaf, error) {
	if err := c.add(costOf(expr, kind, delimiter)); err != nil {
		return nil, err
	}
	l, err := newLeaf(expr, kind, delimiter)
	if err != nil {
		return nil, err
	}
	n := l.backtracking()
	c.backtracks = c.backtracks || n > 0
	return l, c.add(n * backtrackCost)
}

func (c *cost) add(n int) error {
	if c.sum += n; c.sum > maxCost {
		return fmt.Errorf("%w: it has too many patterns, or too long ones", ErrTooExpensive)
	}
	return nil
}

// backtracking is how many patterns of the leaf may go back.
func (l *leaf) backtracking() (n int) {
	switch x := l.test.(type) {
	case idRegexp:
		if x.Backtracks() {
			return 1
		}
	case *data:
		for _, p := range x.patterns {
			if re, ok := p.(regexpPattern); ok && re.Backtracks() {
				n++
			}
		}
	}
	return n
}

// Cost is about what it takes to match the target with one minion, in units of 50 ns.
func (t *Target) Cost() int { return t.cost.sum }

// Backtracks says whether a part needs the engine that may go back, of which nobody can
// tell how long it takes: that is bounded by a clock.
func (t *Target) Backtracks() bool { return t.cost.backtracks }
