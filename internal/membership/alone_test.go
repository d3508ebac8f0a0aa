package membership

import (
	"testing"
	"time"
)

// TestMinionsAreServedForWantOfTheOthersOnly: with cluster_without_quorum: run a member keeps its minions while it does
// not reach the others, and until it has heard of everything afterwards; at no other time without their decisions.
func TestMinionsAreServedForWantOfTheOthersOnly(t *testing.T) {
	const current, lost = true, true
	type step struct {
		after         time.Duration
		current, lost bool
		serves        bool
	}
	for name, steps := range map[string][]step{
		"it has just started": {
			{0, !current, !lost, false}, {time.Second, current, !lost, true},
		},
		"it has lost the others before it knew anything": {
			{0, !current, lost, false}, {time.Hour, !current, lost, false}, {time.Second, !current, !lost, false}, {time.Second, current, !lost, true},
		},
		"it loses the others, and they come back": {
			{0, current, lost, true}, {time.Second, !current, lost, true}, {time.Hour, !current, lost, true},
			{rejoinTime / 2, !current, !lost, true}, {time.Second, current, !lost, true}, {time.Hour, current, !lost, true}, {lateLoss, !current, !lost, false},
		},
		"its routes end late": {
			{0, current, !lost, true}, {lateLoss / 2, !current, !lost, true}, {time.Second, !current, lost, true}, {time.Hour, !current, lost, true},
		},
		"it cannot carry out a refusal": {
			{0, current, !lost, true}, {lateLoss, !current, !lost, false}, {time.Second, !current, lost, false},
		},
		"the others are back, and it does not hear of what they have decided": {
			{0, current, !lost, true}, {time.Second, !current, lost, true}, {rejoinTime, !current, !lost, false}, {time.Second, !current, lost, false},
		},
	} {
		var a alone
		now := time.Now()
		for i, s := range steps {
			now = now.Add(s.after)
			if got := a.serves(s.current, s.lost, now); got != s.serves {
				t.Errorf("%s: after step %d minions are served: %v", name, i+1, got)
			}
		}
	}
}
