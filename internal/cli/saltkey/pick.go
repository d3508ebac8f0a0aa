package saltkey

import (
	"encoding/hex"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"brine/internal/cli"
	"brine/internal/pki"
	"brine/internal/salt"
)

// minDigits is how many hex digits of a fingerprint name a key: 32 bits, enough
// to tell the keys of one id apart by sight.
const minDigits = 8

// pattern names keys, as one of the words between commas on the command line:
//
//	web1                        all keys of that id
//	web*                        all keys of all ids that match
//	web1@SHA256:0f:5b:13:aa     the one key of web1 whose fingerprint begins so
//	web1@0f:5b:13:aa            the same, by the hash that is in force
type pattern struct {
	text   string
	glob   string // of ids
	hash   string // of the fingerprint
	digits string // its beginning without colons; "" if none is given
}

// pairsOfHex is a fingerprint without the name of its hash. The colons tell it
// from the end of an id such as fred@cafe.
var pairsOfHex = regexp.MustCompile(`^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){3,}:?[0-9A-Fa-f]?$`)

// parsePatterns reads the values of an option. hash is that of fingerprints
// which do not name theirs.
func parsePatterns(values []string, hash string) ([]pattern, error) {
	var patterns []pattern
	for _, value := range values {
		for _, word := range strings.Split(value, ",") {
			p, err := parsePattern(strings.TrimSpace(word), hash)
			if err != nil {
				return nil, cli.Fail(cli.Usage, err)
			}
			patterns = append(patterns, p)
		}
	}
	return patterns, nil
}

// parsePattern takes what can be a fingerprint for one even if a minion has such
// an id: it would otherwise be accepted in the place of the key that is meant.
func parsePattern(word, hash string) (pattern, error) {
	p := pattern{text: word, glob: word, hash: hash}
	if at := strings.LastIndexByte(word, '@'); at >= 0 {
		id, tail := word[:at], word[at+1:]
		label, digits, labelled := strings.Cut(tail, ":")
		switch {
		case labelled && len(label) > 2 && pki.CheckHash(strings.ToLower(label)) == nil:
			p.glob, p.hash, p.digits = id, strings.ToLower(label), digits
			if err := checkDigits(digits); err != nil {
				return pattern{}, fmt.Errorf("key %q: %w", word, err)
			}
		case pairsOfHex.MatchString(tail):
			p.glob, p.digits = id, tail
		}
	}
	p.digits = bareDigits(p.digits)
	p.glob = strings.ReplaceAll(p.glob, "[!", "[^") // the shell's way and path's
	if _, err := path.Match(p.glob, ""); err != nil || p.glob == "" {
		return pattern{}, fmt.Errorf("%q is no id and no pattern of ids", word)
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
func (p pattern) byFingerprint() bool { return p.digits != "" }

func (p pattern) matches(e pki.Entry) bool {
	if ok, err := path.Match(p.glob, string(e.ID)); err != nil || !ok {
		return false
	}
	if !p.byFingerprint() {
		return true
	}
	finger, err := e.Key.Fingerprint(p.hash)
	return err == nil && strings.HasPrefix(bareDigits(finger), p.digits)
}

// pick returns the keys in one of the states that a pattern matches, each once.
// A pattern with a fingerprint names a key whatever its state. A pattern without
// a match, or one with a fingerprint that matches two keys, is an error.
func pick(entries []pki.Entry, patterns []pattern, states []pki.State) ([]pki.Entry, error) {
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
	var picked []pki.Entry
	for i, e := range entries {
		if chosen[i] {
			picked = append(picked, e)
		}
	}
	return picked, nil
}

// noMatchError is Salt's sentence, word for word, as scripts look for it; it
// says in which states the match was looked for.
type noMatchError struct {
	glob string
	kind string // "unaccepted keys"
}

func (e *noMatchError) Error() string {
	return fmt.Sprintf("The key glob '%s' does not match any %s.", e.glob, e.kind)
}

// noMatch returns the error for p, with a hint where there are matches in other
// states.
func noMatch(p pattern, entries []pki.Entry, states []pki.State) error {
	err := &noMatchError{p.text, "keys"}
	if p.byFingerprint() || len(states) >= len(sections) {
		return err // it was looked for everywhere
	}
	err.kind = stateWords(states) + " keys"
	var elsewhere []string
	for _, e := range entries {
		if p.matches(e) {
			elsewhere = append(elsewhere, fmt.Sprintf("%s is %s", e.ID, stateWords([]pki.State{e.State})))
		}
	}
	if len(elsewhere) == 0 {
		return err
	}
	if len(elsewhere) > maxElsewhere {
		elsewhere = append(elsewhere[:maxElsewhere], "...")
	}
	return salt.WithHint(err, strings.Join(elsewhere, ", ")+"; the options --include-accepted, --include-rejected and --include-denied widen the choice")
}

// maxElsewhere is how many keys in other states a hint names.
const maxElsewhere = 3
