// Package pyre matches text against regular expressions as Python's re module
// reads them, since that is what users of Salt have in their targets and access
// rules: Unicode \w and \d, lookaround, back references, possessive quantifiers,
// and Python's own idea of what is a mistake.
//
// A pattern is read by a parser of our own, which reports mistakes with Python's
// words, and is written out for one of two engines: Go's regexp, which is linear,
// for all that it can express, and regexp2, which backtracks, for the rest. The
// latter works against a clock, so that no pattern can hang its caller.
//
// It is not a port of the module: there is no search, no substitution and no
// access to groups, only the question whether a text matches.
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

// Bounds on what comes from outside.
const (
	// MaxPattern is the longest pattern in bytes. People write tens of them;
	// the cost of compiling grows faster than the length.
	MaxPattern = 4096
	// MaxSubject is the longest text in bytes that the backtracking engine is
	// given: it holds four bytes for each character, and its stack beside them.
	MaxSubject = 1 << 20
	// Timeout ends one match of the backtracking engine. An honest match takes
	// microseconds; the engine's clock ticks every 100 ms.
	Timeout = 250 * time.Millisecond
)

var (
	// ErrSyntax is wrapped by every error of Compile and CompileFull.
	ErrSyntax = errors.New("invalid regular expression")
	// ErrTooExpensive is wrapped by every error of Match.
	ErrTooExpensive = errors.New("regular expression took too long")
)

// Regexp is a compiled pattern; it may be used by many goroutines at once.
type Regexp struct {
	pattern string
	linear  *regexp.Regexp  // nil when the pattern needs the other engine
	backtr  *regexp2.Regexp // nil when the linear one answers every text
}

// Compile reads a pattern that Match compares as re.match does: from the
// beginning of the text, not necessarily to its end.
func Compile(pattern string) (*Regexp, error) { return compile(pattern, "") }

// CompileFull reads a pattern that Match compares as re.fullmatch does: with the
// whole text.
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
		// It fails where Go sets bounds of its own, on a{5000} for example.
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

// Linear returns the expression in the syntax of Go's regexp, anchored as Match is.
// It is false for what only the other engine can express. Of texts that end with a
// newline it may say something else than Match.
func (re *Regexp) Linear() (expr string, ok bool) {
	if re.linear == nil {
		return "", false
	}
	return re.linear.String(), true
}

// Backtracks says whether the pattern needs the engine that goes back, whose time is
// bounded by a clock alone.
func (re *Regexp) Backtracks() bool { return re.linear == nil }

// Match tells whether s matches. An error means that the answer is not known
// within the bounds of this package; a caller that decides about access must
// take it as a refusal.
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
