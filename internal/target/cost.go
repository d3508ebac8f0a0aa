package target

import (
	"fmt"
	"strings"
)

// Limits of the cost of an expression. Anyone may write one, so the cost to compile it, and to
// match it with one minion, is limited before either is done. One unit is about the cost to compare
// an id with a name: 50 ns.
const (
	// MaxText is the longest expression in bytes: ten thousand names of a hundred bytes.
	MaxText = 1 << 20
	// maxCost allows tens of thousands of names, thousands of words such as G@os:Debian, hundreds
	// of regular expressions such as E@web\d+.
	maxCost = 50_000

	globCost   = 2
	dataCost   = 5
	regexpCost = 20
	// backtrackCost is the cost of a pattern for the backtracking engine: it may run until its
	// timeout.
	backtrackCost = 500
	// textStep is how many bytes of a value are compared in one step of a match; each patternStep
	// bytes of a regular expression make such a step more expensive.
	textStep    = 256
	patternStep = 64
)

// costOf returns the cost of a leaf, as far as its text shows it.
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

// patterns returns how many patterns are compiled for the text of a grain or pillar expression: the
// keys may end at each of its delimiters.
func patterns(expr, delimiter string) int {
	n := strings.Count(expr, delimiter)
	if delimiter != defaultDelimiter {
		n += strings.Count(expr, defaultDelimiter)
	}
	return 1 + n*(n-1)/2
}

// cost sums the cost of an expression while it is parsed.
type cost struct {
	sum        int
	backtracks bool
}

// leaf parses a leaf if the expression stays below the limit.
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

// backtracking returns how many patterns of the leaf may backtrack.
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

// Cost returns the approximate cost to match the target with one minion, in units of 50 ns.
func (t *Target) Cost() int { return t.cost.sum }

// Backtracks reports whether a part needs the backtracking engine. Its time cannot be predicted, so
// it is limited by a timeout.
func (t *Target) Backtracks() bool { return t.cost.backtracks }
