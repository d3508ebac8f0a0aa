package salt

import "fmt"

// Count returns a number with its noun: "1 event", "2 events".
func Count[N int | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
