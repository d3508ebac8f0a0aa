// Package pyre matches text with regular expressions as Python's re module reads them, since users
// of Salt have these in their targets and access rules: Unicode \w and \d, lookaround, back
// references, possessive quantifiers, and the same syntax errors.
//
// Our own parser reads a pattern and reports errors with Python's words. It writes the pattern for
// one of two engines: Go's regexp, which takes linear time, for everything that it can express, and
// regexp2, which backtracks, for the rest. The latter has a timeout, so no pattern can hang its
// caller.
//
// The package is not a port of the module: there is no search, no substitution and no access to
// groups; it only reports whether a text matches.
package pyre

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
)

// Limits for input from outside.
const (
	// MaxPattern is the longest pattern in bytes. People write tens of them; the cost of compiling
	// grows faster than the length.
	MaxPattern = 4096
	// MaxSubject is the longest text in bytes for the backtracking engine: it needs four bytes for
	// each character, and its stack besides.
	MaxSubject = 1 << 20
	// Timeout ends one match of the backtracking engine. A normal match takes microseconds; the
	// engine's clock ticks every 100 ms.
	Timeout = 250 * time.Millisecond
)

var (
	// ErrSyntax is wrapped by every error of Compile and CompileFull.
	ErrSyntax = errors.New("invalid regular expression")
	// ErrTooExpensive is wrapped by every error of Match.
	ErrTooExpensive = errors.New("regular expression took too long")
)

// Regexp is a compiled pattern. Its methods may be called concurrently.
type Regexp struct {
	pattern string
	linear  *regexp.Regexp  // nil if the pattern needs the other engine
	backtr  *regexp2.Regexp // nil if the linear one answers for every text
}

// Compile compiles a pattern that Match compares as re.match does: from the beginning of the text,
// not necessarily to its end.
func Compile(pattern string) (*Regexp, error) { return compile(pattern, "") }

// CompileFull compiles a pattern that Match compares as re.fullmatch does: with the whole text.
func CompileFull(pattern string) (*Regexp, error) { return compile(pattern, `\z`) }

func compile(pattern, end string) (*Regexp, error) {
	if len(pattern) > MaxPattern {
		return nil, fmt.Errorf("%w %.40q...: it has %d bytes, the limit is %d", ErrSyntax, pattern, len(pattern), MaxPattern)
	}
	if !utf8.ValidString(pattern) {
		return nil, fmt.Errorf("%w %q: it is not UTF-8", ErrSyntax, pattern)
	}
	p := parser{src: []rune(pattern), names: map[string]int{}, open: map[int]bool{}}
	text, err := p.pattern()
	if err != nil {
		return nil, fmt.Errorf("%w %q: %w", ErrSyntax, pattern, err)
	}
	re := &Regexp{pattern: pattern}
	text = `\A(?:` + text + `)` + end
	if !p.backtracks {
		// It fails at limits of Go itself, for example on a{5000}.
		re.linear, _ = regexp.Compile(text)
	}
	if re.linear == nil || p.dollar {
		if re.backtr, err = regexp2.Compile(text, regexp2.None); err != nil {
			return nil, fmt.Errorf("%w %q: %w", ErrSyntax, pattern, err)
		}
		re.backtr.MatchTimeout = Timeout
	}
	return re, nil
}

// String returns the pattern as it was written.
func (re *Regexp) String() string { return re.pattern }

// Linear returns the expression in the syntax of Go's regexp, anchored as Match is. ok is false if
// only the other engine can express it. For texts that end with a newline the result may differ
// from Match.
func (re *Regexp) Linear() (expr string, ok bool) {
	if re.linear == nil {
		return "", false
	}
	return re.linear.String(), true
}

// Backtracks reports whether the pattern needs the backtracking engine, whose time is limited only
// by the timeout.
func (re *Regexp) Backtracks() bool { return re.linear == nil }

// Match reports whether s matches. An error means that the answer was not found within the limits
// of this package; a caller that decides about access must treat it as a refusal.
func (re *Regexp) Match(s string) (bool, error) {
	// Python's $ also matches before a newline that ends the text; Go's does not.
	if re.linear != nil && (re.backtr == nil || !strings.HasSuffix(s, "\n")) {
		return re.linear.MatchString(s), nil
	}
	if len(s) > MaxSubject {
		return false, fmt.Errorf("%w: %q on a text of %d bytes, the limit is %d", ErrTooExpensive, re.pattern, len(s), MaxSubject)
	}
	ok, err := re.backtr.MatchString(s)
	if err != nil {
		return false, fmt.Errorf("%w: %q on a text of %d bytes", ErrTooExpensive, re.pattern, len(s))
	}
	return ok, nil
}
