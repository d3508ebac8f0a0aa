package cli

import "github.com/brinebus/brine/internal/salt"

// Nearest returns the candidate that word was most likely meant to be: the one with the fewest
// typing errors, the alphabetically first of equals. It returns "" if even that one has more
// errors than a third of its length.
func Nearest(word string, candidates []string) string {
	best, fewest := "", 0
	for _, c := range candidates {
		n := salt.Edits(word, c)
		if 3*n > max(len(c), 3) {
			continue
		}
		if best == "" || n < fewest || n == fewest && c < best {
			best, fewest = c, n
		}
	}
	return best
}
