package target

import (
	"regexp/syntax"
	"slices"
	"sort"
	"strings"
	"unicode"

	"github.com/brinebus/brine/internal/target/fnmatch"
)

// machine reads an id character by character. A state is a text that contains everything about what
// was read; equal texts are the same state. No state contains the byte 0xff.
type machine interface {
	start() string
	step(state string, c byte) string
	accepts(state string) bool
	// ranges calls the function with ranges of characters. All characters in a range have the same
	// effect, and so do all characters outside of all ranges.
	ranges(func(from, to rune))
}

// maxMachine is the maximum number of positions in a machine: one byte stands for each.
const maxMachine = 250

// newMachine returns nil for leaves that are not about ids, and for those that are too large or
// need lookaround.
func newMachine(l *leaf) machine {
	switch x := l.test.(type) {
	case idGlob:
		return newGlobMachine(x.Pattern)
	case idRegexp:
		if expr, ok := x.Linear(); ok {
			return newRegexpMachine(expr)
		}
	case idList:
		return newListMachine(x.order)
	}
	return nil
}

// globMachine's states are the positions in the pattern that the id may have reached.
type globMachine []fnmatch.Token // literal text in single characters

func newGlobMachine(p *fnmatch.Pattern) machine {
	var m globMachine
	for _, t := range p.Tokens() {
		if t.Kind != fnmatch.Literal {
			m = append(m, t)
			continue
		}
		for i := range len(t.Text) {
			m = append(m, fnmatch.Token{Kind: fnmatch.Literal, Text: t.Text[i : i+1]})
		}
	}
	if len(m) >= maxMachine {
		return nil
	}
	return m
}

// close adds the positions after stars, which may match nothing.
func (m globMachine) close(places []byte) string {
	for i := 0; i < len(places); i++ {
		at := places[i]
		if int(at) < len(m) && m[at].Kind == fnmatch.Star && !slices.Contains(places, at+1) {
			places = append(places, at+1)
		}
	}
	slices.Sort(places)
	return string(places)
}

func (m globMachine) start() string { return m.close([]byte{0}) }

func (m globMachine) step(state string, c byte) string {
	var next []byte
	add := func(at byte) {
		if !slices.Contains(next, at) {
			next = append(next, at)
		}
	}
	for i := range len(state) {
		at := state[i]
		switch {
		case int(at) == len(m):
		case m[at].Kind == fnmatch.Star:
			add(at)
		case m[at].Consume(string(rune(c))) > 0:
			add(at + 1)
		}
	}
	return m.close(next)
}

func (m globMachine) ranges(f func(from, to rune)) {
	for _, t := range m {
		t.Ranges(f)
		for _, c := range t.Text {
			f(c, c)
		}
	}
}

func (m globMachine) accepts(state string) bool { return strings.IndexByte(state, byte(len(m))) >= 0 }

// listMachine has the names, sorted.
type listMachine struct{ names []string }

func newListMachine(order []string) machine {
	return listMachine{slices.Sorted(slices.Values(order))}
}

// The state is the text read so far, "" for none, and dead when no name begins with it.
const dead = "\x00"

func (m listMachine) start() string { return "" }

func (m listMachine) step(state string, c byte) string {
	if state == dead {
		return dead
	}
	state += string(rune(c))
	if i := sort.SearchStrings(m.names, state); i == len(m.names) || !strings.HasPrefix(m.names[i], state) {
		return dead
	}
	return state
}

func (m listMachine) ranges(f func(from, to rune)) {
	for _, name := range m.names {
		for _, c := range name {
			f(c, c)
		}
	}
}

func (m listMachine) accepts(state string) bool {
	_, ok := slices.BinarySearch(m.names, state)
	return ok
}

// regexpMachine runs all threads of a regular expression in parallel. It matches the beginning of
// the id, as Salt does: after a match, any further text matches too.
type regexpMachine struct{ prog *syntax.Prog }

// The first byte of a state.
const (
	atStart = "s"
	further = "f"
	matched = "m" // and no bytes follow
)

func newRegexpMachine(expr string) machine {
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil || len(prog.Inst) >= maxMachine {
		return nil
	}
	for _, in := range prog.Inst {
		if in.Op == syntax.InstEmptyWidth && syntax.EmptyOp(in.Arg)&(syntax.EmptyWordBoundary|syntax.EmptyNoWordBoundary) != 0 {
			return nil
		}
	}
	return regexpMachine{prog}
}

// threads follows all instructions that read no character. An id has one line.
func (m regexpMachine) threads(state string, ends bool) (reading []uint32, match bool) {
	var holds syntax.EmptyOp
	if state[:1] == atStart {
		holds |= syntax.EmptyBeginText | syntax.EmptyBeginLine
	}
	if ends {
		holds |= syntax.EmptyEndText | syntax.EmptyEndLine
	}
	seen := make([]bool, len(m.prog.Inst))
	var follow func(pc uint32)
	follow = func(pc uint32) {
		if seen[pc] {
			return
		}
		seen[pc] = true
		switch in := m.prog.Inst[pc]; in.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			follow(in.Out)
			follow(in.Arg)
		case syntax.InstCapture, syntax.InstNop:
			follow(in.Out)
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(in.Arg)&^holds == 0 {
				follow(in.Out)
			}
		case syntax.InstMatch:
			match = true
		case syntax.InstFail:
		default:
			reading = append(reading, pc)
		}
	}
	for i := 1; i < len(state); i++ {
		follow(uint32(state[i]))
	}
	return reading, match
}

func (m regexpMachine) start() string { return atStart + string([]byte{byte(m.prog.Start)}) }

func (m regexpMachine) step(state string, c byte) string {
	if state == matched {
		return matched
	}
	reading, match := m.threads(state, false)
	if match {
		return matched
	}
	var next []byte
	for _, pc := range reading {
		in := &m.prog.Inst[pc]
		if in.MatchRune(rune(c)) && !slices.Contains(next, byte(in.Out)) {
			next = append(next, byte(in.Out))
		}
	}
	slices.Sort(next)
	return further + string(next)
}

func (m regexpMachine) ranges(f func(from, to rune)) {
	for _, in := range m.prog.Inst {
		if len(in.Rune) == 1 { // exactly, or in either case
			f(in.Rune[0], in.Rune[0])
			for c := unicode.SimpleFold(in.Rune[0]); c != in.Rune[0]; c = unicode.SimpleFold(c) {
				f(c, c)
			}
			continue
		}
		for i := 0; i+1 < len(in.Rune); i += 2 {
			f(in.Rune[i], in.Rune[i+1])
		}
	}
}

func (m regexpMachine) accepts(state string) bool {
	if state == matched {
		return true
	}
	_, match := m.threads(state, true)
	return match
}
