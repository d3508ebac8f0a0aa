package config

import "github.com/brinebus/brine/internal/salt"

// suggest returns the name among names of which s is most likely a misspelling, or "" if none
// is close: one typo in four letters, three at most.
func suggest(s string, names []string) string {
	best, limit := "", min(len(s)/4, 3)+1
	for _, name := range names {
		if diff := len(name) - len(s); diff >= limit || -diff >= limit {
			continue
		}
		if d := salt.Edits(s, name); d < limit {
			best, limit = name, d
		}
	}
	return best
}
