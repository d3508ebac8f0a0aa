package config

// suggest returns the name among names that s is most likely a slip of the
// finger for, or "" when none is close: one slip in four letters, three at most.
func suggest(s string, names []string) string {
	best, limit := "", min(len(s)/4, 3)+1
	for _, name := range names {
		if diff := len(name) - len(s); diff >= limit || -diff >= limit {
			continue
		}
		if d := distance(s, name); d < limit {
			best, limit = name, d
		}
	}
	return best
}

// distance counts the slips between a and b: a byte too many, missing, wrong,
// or two neighbours swapped.
func distance(a, b string) int {
	before, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev, row = prev, row, before
	}
	return prev[len(b)]
}
