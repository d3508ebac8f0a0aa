package target

import (
	"fmt"
	"strings"

	"github.com/brinebus/brine/internal/target/fnmatch"
	"github.com/brinebus/brine/internal/target/pyre"
)

// leaf is an expression without operators.
type leaf struct {
	word string // as a word of a compound: G@os:Debian
	kind Kind
	test tester
}

// tester is the part of a leaf that checks the facts.
type tester interface {
	match(f Facts) (bool, error)
}

// newLeaf parses an expression of any kind but compound and nodegroup.
func newLeaf(expr string, kind Kind, delimiter string) (*leaf, error) {
	if len(expr) > MaxPattern && kind != List {
		return nil, fmt.Errorf("it has %d bytes, the limit is %d", len(expr), MaxPattern)
	}
	l := &leaf{kind: kind}
	var err error
	switch kind {
	case Glob:
		l.word, l.test = expr, idGlob{fnmatch.Compile(expr)}
	case PCRE:
		l.word = "E@" + expr
		l.test, err = newIDRegexp(expr)
	case List:
		l.word, l.test = "L@"+expr, newIDList(expr)
	case IPCIDR:
		l.word = "S@" + expr
		l.test, err = parseNetwork(expr)
	case Grain, GrainPCRE, Pillar, PillarPCRE, PillarExact:
		l.word = dataWord(expr, kind, delimiter)
		l.test, err = newData(expr, kind, delimiter)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (l *leaf) match(f Facts) (bool, error) { return l.test.match(f) }

func (l *leaf) words(in []string) []string { return append(in, l.word) }

func (l *leaf) needs(n need) bool {
	switch l.kind {
	case Grain, GrainPCRE, IPCIDR:
		return n == needGrains
	case Pillar, PillarPCRE, PillarExact:
		return n == needPillar
	}
	return false
}

func (l *leaf) names(in []string) ([]string, bool) {
	switch x := l.test.(type) {
	case idList:
		return append(in, x.order...), true
	case idGlob:
		if name, ok := x.Literal(); ok {
			return append(in, name), true
		}
	}
	return in, false
}

// idGlob compares the id with a shell pattern; case matters.
type idGlob struct{ *fnmatch.Pattern }

func (g idGlob) match(f Facts) (bool, error) { return g.Match(string(f.ID)), nil }

// idRegexp compares the beginning of the id, as Salt does.
type idRegexp struct{ *pyre.Regexp }

func newIDRegexp(expr string) (tester, error) {
	re, err := pyre.Compile(expr)
	return idRegexp{re}, err
}

func (r idRegexp) match(f Facts) (bool, error) { return r.Match(string(f.ID)) }

// idList compares the id with each of the names; repeated names count once. Names are exact: a
// blank after a comma belongs to the name, as in Salt; empty names are skipped.
type idList struct {
	order []string
	set   map[string]bool
}

func newIDList(expr string) idList {
	l := idList{set: map[string]bool{}}
	for name := range strings.SplitSeq(expr, ",") {
		if name != "" && !l.set[name] {
			l.order, l.set[name] = append(l.order, name), true
		}
	}
	return l
}

func (l idList) match(f Facts) (bool, error) { return l.set[string(f.ID)], nil }
