package salt

import "testing"

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 events", 1: "1 event", 2: "2 events"} {
		if got := Count(n, "event"); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
	}
}
