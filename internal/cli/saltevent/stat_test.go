package saltevent

import (
	"strings"
	"testing"

	brine "github.com/brinebus/brine/client"
)

// TestHowFarAMirrorIs: what nobody can know without a link is not said.
func TestHowFarAMirrorIs(t *testing.T) {
	for _, test := range []struct {
		name    string
		mirrors []brine.MirrorStat
		want    []string
	}{
		{"linked", []brine.MirrorStat{{Master: "m2-a", Linked: true, Last: 7, Lag: 2}}, []string{"m2-a, linked, to seq 7, 2 behind, 0 B"}},
		{"away", []brine.MirrorStat{{Master: "m2-a", Last: 7}}, []string{"m2-a, its master is away, to seq 7, unknown how far behind, 0 B"}},
		{"away, and something was missing", []brine.MirrorStat{{Master: "m2-a", Last: 7, Lag: 2}}, []string{"m2-a, its master is away, to seq 7, at least 2 behind, 0 B"}},
		{"another journal", []brine.MirrorStat{{Master: "m2-a", Last: 7}, {Master: "m2-b", Linked: true, Last: 3}},
			[]string{"m2-a, its master has another journal now, to seq 7, unknown how far behind, 0 B", "m2-b, linked, to seq 3, 0 behind, 0 B"}},
	} {
		var out strings.Builder
		if err := writeStat(&out, &brine.Stat{Mirrors: test.mirrors}); err != nil {
			t.Fatal(err)
		}
		for _, want := range test.want {
			if !strings.Contains(out.String(), want+"\n") {
				t.Errorf("%s: %q lacks %q", test.name, out.String(), want)
			}
		}
	}
}
