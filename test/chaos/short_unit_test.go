package chaos

import (
	"slices"
	"testing"
	"time"
)

// TestTheShortFormHasAnotherBeginningEachDay: each of the kinds that it begins with is the first one within as many days, and
// all are kinds that there are.
func TestTheShortFormHasAnotherBeginningEachDay(t *testing.T) {
	day := time.Date(2026, 1, 31, 23, 59, 0, 0, time.UTC)
	var first []string
	for range firstMemberKinds {
		first = append(first, shortMemberKinds(ofDay(day))[0])
		day = day.Add(24 * time.Hour)
	}
	slices.Sort(first)
	if want := slices.Sorted(slices.Values(firstMemberKinds)); !slices.Equal(first, want) {
		t.Errorf("the first kinds are %v, want %v", first, want)
	}
	all := shortMemberKinds(1)
	if n := len(firstMemberKinds) + len(otherMemberKinds); len(all) != n {
		t.Errorf("%d kinds, want %d", len(all), n)
	}
	for _, name := range all {
		if !slices.ContainsFunc(memberKinds, func(k kind) bool { return k.name == name }) {
			t.Errorf("there is no kind %q", name)
		}
	}
}
