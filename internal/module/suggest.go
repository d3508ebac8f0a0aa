package module

import (
	"slices"
	"strings"
)

// maxSuggestions bounds what an error proposes; more is noise.
const maxSuggestions = 3

// suggest returns the functions that may have been meant by name: few edits
// away, or of the same name in another module.
func (t Table) suggest(name string) []string {
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
		d := edits(name, n, limit)
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

// edits counts the insertions, deletions, replacements and swaps of neighbours
// that turn a into b; anything above limit is returned as limit+1.
func edits(a, b string, limit int) int {
	if len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, above, row := rows[0], rows[1], rows[2]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		rows = [3][]int{above, row, before}
	}
	return min(rows[1][len(b)], limit+1)
}
