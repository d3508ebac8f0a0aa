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

// TestWhatIsNotKnownOfAJournal: during an election nobody knows what the journal of another member holds, nor who
// handles its events, and no figures are shown in their place. A dead member handles nothing.
func TestWhatIsNotKnownOfAJournal(t *testing.T) {
	const election = "no leader answers at present"
	for _, test := range []struct {
		name   string
		stat   brine.Stat
		want   string
		reason bool
	}{
		{"known", brine.Stat{Mirrors: []brine.MirrorStat{{Master: "m2", Linked: true, Last: 7, Handler: "m2"}}}, "m2, running, to seq 7, 0 B, its events are handled there", false},
		{"nobody", brine.Stat{Mirrors: []brine.MirrorStat{{Master: "m2", Linked: true, Last: 7}}}, "m2, running, to seq 7, 0 B, its events are not handled at present", false},
		{"election", brine.Stat{Mirrors: []brine.MirrorStat{{Master: "m2", Linked: true, Unread: true, HandlerUnknown: true}}},
			"m2, running, how much it holds is not known, who handles its events is not known", true},
		{"dead", brine.Stat{Mirrors: []brine.MirrorStat{{Master: "m2", Last: 7, Handler: "m2"}}},
			"m2, its member is away, to seq 7, 0 B, its events were handled there, and no other member has taken over yet", false},
		{"own", brine.Stat{HandlerUnknown: true}, "of the member m1, who handles its events is not known", true},
	} {
		test.stat.Name = "m1"
		var out strings.Builder
		if err := writeStat(&out, &test.stat); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), test.want+"\n") || strings.Contains(out.String(), election) != test.reason {
			t.Errorf("%s: %q lacks %q", test.name, out.String(), test.want)
		}
	}
	var out strings.Builder
	if err := writeStat(&out, &brine.Stat{Mirrors: []brine.MirrorStat{{Master: "a", Linked: true, Unread: true}, {Master: "b", Unread: true}}}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "seq 0") || strings.Count(out.String(), unread) != 2 {
		t.Errorf("of mirrors that cannot be read: %q", out.String())
	}
}
