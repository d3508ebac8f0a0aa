package event

import (
	"fmt"
	"strings"

	"github.com/brinebus/brine/internal/target/fnmatch"
	"github.com/brinebus/brine/internal/target/pyre"
)

// MatchType is the way a pattern is compared with a tag. The names are Salt's.
type MatchType string

// The match types. The empty MatchType is StartsWith.
const (
	StartsWith MatchType = "startswith"
	EndsWith   MatchType = "endswith"
	Find       MatchType = "find"    // anywhere in the tag
	Regex      MatchType = "regex"   // a regular expression of Python, with a ^ before it
	Fnmatch    MatchType = "fnmatch" // a shell pattern for the whole tag; * also matches slashes
)

// MatchTypes lists all match types, for error messages.
const MatchTypes = "startswith, endswith, find, regex, fnmatch"

// Matcher compares tags with patterns. Its methods may be called concurrently.
type Matcher struct {
	all      bool // there are no patterns: every tag matches
	prefixes []string
	tests    []func(tag string) (bool, error)
	back     bool
}

// Backtracks reports whether a pattern may need backtracking, which can take long.
func (m *Matcher) Backtracks() bool { return m.back }

// NewMatcher compiles patterns; a tag matches if one of them does. Without patterns every tag
// matches.
func NewMatcher(t MatchType, patterns []string) (*Matcher, error) {
	m := &Matcher{all: len(patterns) == 0}
	for _, p := range patterns {
		if t == StartsWith || t == "" {
			m.prefixes = append(m.prefixes, p)
			continue
		}
		test, err := compile(t, p)
		if err != nil {
			return nil, err
		}
		m.tests = append(m.tests, test)
		if t == Regex {
			re, err := pyre.Compile(p)
			m.back = m.back || err != nil || re.Backtracks()
		}
	}
	if _, err := compile(t, ""); err != nil { // check the type even if there is no pattern
		return nil, err
	}
	return m, nil
}

// Match reports whether tag matches. An error means that a regular expression took too long.
func (m *Matcher) Match(tag string) (bool, error) {
	if m.all {
		return true, nil
	}
	for _, p := range m.prefixes {
		if strings.HasPrefix(tag, p) {
			return true, nil
		}
	}
	for _, test := range m.tests {
		if ok, err := test(tag); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

func compile(t MatchType, pattern string) (func(string) (bool, error), error) {
	switch t {
	case StartsWith, "":
		return func(tag string) (bool, error) { return strings.HasPrefix(tag, pattern), nil }, nil
	case EndsWith:
		return func(tag string) (bool, error) { return strings.HasSuffix(tag, pattern), nil }, nil
	case Find:
		return func(tag string) (bool, error) { return strings.Contains(tag, pattern), nil }, nil
	case Fnmatch:
		g := fnmatch.Compile(pattern)
		return func(tag string) (bool, error) { return g.Match(tag), nil }, nil
	case Regex:
		return compileRegex(pattern)
	}
	return nil, fmt.Errorf("%q is not a way to match a tag: there are %s", t, MatchTypes)
}

// compileRegex compiles pattern as Salt does: it puts ^ before the pattern and then searches for
// it, so only the first of several alternatives is anchored.
func compileRegex(pattern string) (func(string) (bool, error), error) {
	anchored := "^" + pattern
	if _, err := pyre.Compile(anchored); err != nil {
		return nil, fmt.Errorf("regular expression %q: %w", pattern, err)
	}
	re, err := pyre.Compile(`[\s\S]*?(?:` + anchored + `)`)
	if err != nil {
		return nil, fmt.Errorf("regular expression %q: %w", pattern, err)
	}
	return re.Match, nil
}
