package accord

import "testing"

func TestCounts(t *testing.T) {
	for _, test := range []struct {
		name       string
		own, other Decision
		want       Act
	}{
		{"nobody", Decision{}, Decision{}, ""},
		{"only this one", Decision{Act: Accept, N: 1}, Decision{}, Accept},
		{"only the other one", Decision{}, Decision{Act: Accept, N: 1}, Accept},
		{"an act that there is none of", Decision{Act: Accept, N: 1}, Decision{Act: "own", N: 9, Seen: 1, Of: "a"}, Accept},

		{"the refusal of two", Decision{Act: Accept, N: 1}, Decision{Act: Reject, N: 1}, Reject},
		{"and the other way round", Decision{Act: Reject, N: 1}, Decision{Act: Accept, N: 1}, Reject},
		{"however often the other one has accepted", Decision{Act: Reject, N: 1}, Decision{Act: Accept, N: 99}, Reject},
		{"deletion before acceptance", Decision{Act: Accept, N: 3}, Decision{Act: Delete, N: 2}, Delete},
		{"rejection before deletion", Decision{Act: Delete, N: 3}, Decision{Act: Reject, N: 2}, Reject},
		{"revoked tokens", Decision{Act: Issue, N: 1}, Decision{Act: Revoke, N: 1}, Revoke},

		{"the later one", Decision{Act: Reject, N: 1}, Decision{Act: Accept, N: 1, Seen: 1, Of: "a"}, Accept},
		{"the later one is this", Decision{Act: Accept, N: 1, Seen: 4, Of: "b"}, Decision{Act: Reject, N: 4}, Accept},
		{"later than one, not than the next", Decision{Act: Reject, N: 2}, Decision{Act: Accept, N: 7, Seen: 1, Of: "a"}, Reject},
		{"this one knew less than there is", Decision{Act: Accept, N: 1, Seen: 3, Of: "b"}, Decision{Act: Reject, N: 4}, Reject},

		{"who claims to know what is to come", Decision{Act: Reject, N: 1}, Decision{Act: Accept, N: 1, Seen: 1 << 60, Of: "a"}, Reject},
		{"who claims to know of another journal", Decision{Act: Reject, N: 1}, Decision{Act: Accept, N: 1, Seen: 1, Of: "old"}, Reject},
		{"who has known nothing of nothing", Decision{Act: Reject}, Decision{Act: Accept, N: 1, Of: "a"}, Reject},
		{"each claims to be the later one", Decision{Act: Accept, N: 2, Seen: 2, Of: "b"}, Decision{Act: Delete, N: 2, Seen: 2, Of: "a"}, Delete},
	} {
		a, b := Side{"a", test.own}, Side{"b", test.other}
		if got := Counts(a, b).Act; got != test.want {
			t.Errorf("%s: %q counts, want %q", test.name, got, test.want)
		}
		if got := Counts(b, a).Act; got != test.want && test.want != "" {
			t.Errorf("%s: seen from the other side %q counts, want %q", test.name, got, test.want)
		}
	}
}
