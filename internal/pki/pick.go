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

// minDigits is how many hex digits of a fingerprint name a key: 32 bits, enough
// to tell the keys of one id apart by sight.
const minDigits = 8

// Pattern names keys, as one of the words between commas on the command line:
//
//	web1                        all keys of that id
//	web*                        all keys of all ids that match
//	web1@SHA256:0f:5b:13:aa     the one key of web1 whose fingerprint begins so
//	web1@0f:5b:13:aa            the same, by the hash that is in force
type Pattern struct {
	text   string
	glob   string // of ids
	hash   string // of the fingerprint
	digits string // its beginning without colons; "" if none is given
}

// pairsOfHex is a fingerprint without the name of its hash. The colons tell it
// from the end of an id such as fred@cafe.
func pairsOfHex(s string) bool {
	return regexp.MustCompile(`^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){3,}:?[0-9A-Fa-f]?$`).MatchString(s)
}

// ParsePatterns reads patterns, several of them between commas. hash is that of
// fingerprints which do not name theirs.
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

// parsePattern takes what can be a fingerprint for one even if a minion has such
// an id: it would otherwise be accepted in the place of the key that is meant.
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
		return Pattern{}, fmt.Errorf("%q is no id and no pattern of ids", word)
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

// byFingerprint tells that one key is meant and not an id.
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

// Pick returns the keys in one of the states that a pattern matches, each once.
// A pattern with a fingerprint names a key whatever its state. A pattern without
// a match, or one with a fingerprint that matches two keys, is an error.
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

// NoMatchError says that a pattern has no match in the states in which it was
// looked for. Its text is Salt's sentence, word for word, as scripts look for it.
type NoMatchError struct {
	Pattern   string
	States    []State // in which it was looked for; nil is everywhere
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
		return e // it was looked for everywhere
	}
	e.States = states
	for _, entry := range entries {
		if p.matches(entry) {
			e.Elsewhere = append(e.Elsewhere, entry)
		}
	}
	return e
}
