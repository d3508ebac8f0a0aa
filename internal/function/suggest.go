package function

import (
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/salt"
)

// maxSuggestions bounds what an error proposes; more is noise.
const maxSuggestions = 3

// Suggest returns the functions that may have been meant by name: few edits
// away, or of the same name in another module.
func (t Table) Suggest(name string) []string {
	all := t.Functions("")
	near := nearest(name, all)
	_, short, _ := strings.Cut(name, ".")
	for _, f := range all {
		if _, s, _ := strings.Cut(f, "."); s == short && !slices.Contains(near, f) {
			near = append(near, f)
		}
	}
	return near[:min(len(near), maxSuggestions)]
}

// nearest returns the names that are the fewest edits away from name, none if
// that is more than three or a third of its length.
func nearest(name string, names []string) []string {
	var found []string
	limit := min(3, max(1, len(name)/3))
	for _, n := range names {
		if len(n)-len(name) > limit || len(name)-len(n) > limit {
			continue
		}
		d := salt.Edits(name, n)
		switch {
		case d > limit:
			continue
		case d < limit:
			found, limit = nil, d
		}
		found = append(found, n)
	}
	return found[:min(len(found), maxSuggestions)]
}
