package cli

// Nearest returns the candidate that word was most likely meant to be: the one
// with the fewest typing errors, and the first in the alphabet of equals. It is
// "" when even that one has more errors than a third of its length.
func Nearest(word string, candidates []string) string {
	best, fewest := "", 0
	for _, c := range candidates {
		n := distance(word, c)
		if 3*n > max(len(c), 3) {
			continue
		}
		if best == "" || n < fewest || n == fewest && c < best {
			best, fewest = c, n
		}
	}
	return best
}

// distance counts the typing errors between a and b in bytes: one left out, one
// too many, one wrong, or two neighbours exchanged.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			wrong := 1
			if a[i-1] == b[j-1] {
				wrong = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+wrong)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
