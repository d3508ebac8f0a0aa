package pki

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target/fnmatch"
)

// minDigits is the minimum number of hex digits for a fingerprint on the command line: 32 bits,
// enough to tell the keys of one id apart.
const minDigits = 8

// Pattern selects keys. It is one of the comma-separated words on the command line:
//
//	web1                        all keys of that id
//	web*                        all keys of all ids that match
//	web1@SHA256:0f:5b:13:aa     the key of web1 whose fingerprint begins with this
//	web1@0f:5b:13:aa            the same, with the configured hash
type Pattern struct {
	text   string
	glob   string // of ids
	hash   string // of the fingerprint
	digits string // its beginning without colons; "" if none is given
}

// pairsOfHex is a fingerprint without the name of its hash. The colons distinguish it from the
// end of an id such as fred@cafe.
func pairsOfHex(s string) bool {
	return regexp.MustCompile(`^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){3,}:?[0-9A-Fa-f]?$`).MatchString(s)
}

// ParsePatterns parses comma-separated patterns. hash is for fingerprints without the name of
// theirs.
func ParsePatterns(values []string, hash string) ([]Pattern, error) {
	var patterns []Pattern
	for _, value := range values {
		for _, word := range strings.Split(value, ",") {
			p, err := parsePattern(strings.TrimSpace(word), hash)
			if err != nil {
				return nil, err
			}
			patterns = append(patterns, p)
		}
	}
	return patterns, nil
}

// parsePattern reads what may be a fingerprint as one, even if a minion has that text as its
// id: otherwise that id would be accepted instead of the intended key.
func parsePattern(word, hash string) (Pattern, error) {
	p := Pattern{text: word, glob: word, hash: hash}
	if at := strings.LastIndexByte(word, '@'); at >= 0 {
		id, tail := word[:at], word[at+1:]
		label, digits, labelled := strings.Cut(tail, ":")
		switch {
		case labelled && len(label) > 2 && CheckHash(strings.ToLower(label)) == nil:
			p.glob, p.hash, p.digits = id, strings.ToLower(label), digits
			if err := checkDigits(digits); err != nil {
				return Pattern{}, fmt.Errorf("key %q: %w", word, err)
			}
		case pairsOfHex(tail):
			p.glob, p.digits = id, tail
		}
	}
	p.digits = bareDigits(p.digits)
	if p.glob == "" {
		return Pattern{}, fmt.Errorf("%q is neither an id nor a pattern of ids", word)
	}
	return p, nil
}

func checkDigits(digits string) error {
	bare := bareDigits(digits)
	if _, err := hex.DecodeString(bare + strings.Repeat("0", len(bare)%2)); err != nil || len(bare) < minDigits {
		return fmt.Errorf("a fingerprint is named by its first %d hex digits or more", minDigits)
	}
	return nil
}

func bareDigits(s string) string { return strings.ToLower(strings.ReplaceAll(s, ":", "")) }

// byFingerprint reports whether the pattern selects one key by its fingerprint.
func (p Pattern) byFingerprint() bool { return p.digits != "" }

func (p Pattern) matches(e Entry) bool {
	if !fnmatch.Match(p.glob, string(e.ID)) {
		return false
	}
	if !p.byFingerprint() {
		return true
	}
	finger, err := e.Key.Fingerprint(p.hash)
	return err == nil && strings.HasPrefix(bareDigits(finger), p.digits)
}

// Pick returns the keys that the patterns match in one of the states, each once. A pattern with
// a fingerprint matches a key in any state. It is an error if a pattern has no match, or one
// with a fingerprint matches two keys.
func Pick(entries []Entry, patterns []Pattern, states []State) ([]Entry, error) {
	chosen := make([]bool, len(entries))
	for _, p := range patterns {
		var found []int
		for i, e := range entries {
			if p.matches(e) && (p.byFingerprint() || slices.Contains(states, e.State)) {
				found = append(found, i)
				chosen[i] = true
			}
		}
		if len(found) == 0 {
			return nil, noMatch(p, entries, states)
		}
		if len(found) > 1 && p.byFingerprint() {
			return nil, salt.WithHint(fmt.Errorf("the fingerprint in %q is that of %d keys", p.text, len(found)),
				"give more of its digits, and the id without wildcards; salt-key -L -v shows both")
		}
	}
	var picked []Entry
	for i, e := range entries {
		if chosen[i] {
			picked = append(picked, e)
		}
	}
	return picked, nil
}

// NoMatchError means that a pattern matches nothing in the given states. Its text is Salt's,
// word for word, since scripts search for it.
type NoMatchError struct {
	Pattern   string
	States    []State // that were searched; nil means all
	Elsewhere []Entry // what matches in other states
}

func (e *NoMatchError) Error() string {
	kind := "keys"
	if e.States != nil {
		kind = StateWords(e.States) + " keys"
	}
	return fmt.Sprintf("The key glob '%s' does not match any %s.", e.Pattern, kind)
}

func noMatch(p Pattern, entries []Entry, states []State) error {
	e := &NoMatchError{Pattern: p.text}
	if p.byFingerprint() || len(states) >= len(sections) {
		return e // all states were searched
	}
	e.States = states
	for _, entry := range entries {
		if p.matches(entry) {
			e.Elsewhere = append(e.Elsewhere, entry)
		}
	}
	return e
}
