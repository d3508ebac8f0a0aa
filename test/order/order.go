// Package order checks that tables are sorted, for the tests of others: a failure names the
// one entry that stands wrong, and where it belongs. It sorts nothing.
package order

import (
	"slices"
	"testing"
)

// Check fails the test when the names of a table are not sorted, or one is there twice.
func Check(t testing.TB, table string, names []string) {
	t.Helper()
	sorted := slices.Sorted(slices.Values(names))
	for i := 1; i < len(names); i++ {
		if names[i-1] < names[i] {
			continue
		}
		if names[i-1] == names[i] {
			t.Errorf("%s: %s is there twice", table, names[i])
			return
		}
		wrong := moved(names, i)
		t.Errorf("%s: %s stands wrong: it belongs %s", table, wrong, behind(sorted, wrong))
		return
	}
}

// Of checks a table by the names of its rows.
func Of[T any](t testing.TB, table string, rows []T, name func(T) string) {
	t.Helper()
	names := make([]string, len(rows))
	for i, r := range rows {
		names[i] = name(r)
	}
	Check(t, table, names)
}

// moved is the entry to blame for a step down at i: the one without which the other and its
// neighbours are in order.
func moved(names []string, i int) string {
	if i+1 == len(names) || names[i-1] <= names[i+1] {
		return names[i]
	}
	return names[i-1]
}

// behind says where a name belongs.
func behind(sorted []string, name string) string {
	i, _ := slices.BinarySearch(sorted, name)
	if i == 0 {
		return "first"
	}
	return "behind " + sorted[i-1]
}
