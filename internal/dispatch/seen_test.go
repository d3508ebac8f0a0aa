package dispatch

import (
	"os"
	"testing"
	"time"
)

// TestWhereAMinionWasSeen: a member names the one that the minion was connected to, not itself.
func TestWhereAMinionWasSeen(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	seen := time.Date(2026, 11, 21, 18, 58, 58, 0, time.Local)
	for _, c := range []struct {
		seen           time.Time
		self, at, want string
	}{
		{seen, "", "", "last seen 2026-11-21 18:58:58 at " + host},
		{time.Time{}, "", "", "it was never seen at " + host},
		{seen, "m1", "m2", "last seen 2026-11-21 18:58:58 at m2"},
		{seen, "m1", "m1", "last seen 2026-11-21 18:58:58 at m1"},
		{seen, "m1", "", "last seen 2026-11-21 18:58:58"},
		{time.Time{}, "m1", "", "it was never seen in this cluster"},
	} {
		if got := lastSeen(c.seen, c.self, c.at); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
