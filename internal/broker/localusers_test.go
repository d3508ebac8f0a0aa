package broker

import (
	"os"
	"testing"
)

func TestOneUserHasSoManyConnections(t *testing.T) {
	l := newLocalUsers(descriptors{local: maxReserve / 2}, nil)
	const fred = 4_000_000
	for n := range maxPerUser {
		if err := l.enter(fred); err != nil {
			t.Fatalf("connection %d was refused: %v", n+1, err)
		}
	}
	if l.enter(fred) == nil {
		t.Error("there is no limit")
	}
	if l.enter(fred+1) != nil || l.enter(0) != nil {
		t.Error("another user was refused")
	}
	l.leave(fred)
	if err := l.enter(fred); err != nil {
		t.Errorf("the end of a connection freed no place: %v", err)
	}
	for range 2 * maxPerUser {
		if l.enter(0) != nil || l.enter(uint32(os.Geteuid())) != nil {
			t.Fatal("root was refused")
		}
	}
}

// TestManyUIDsHaveSoManyConnections: a user with subordinate uids, each of which is another user for the
// kernel, does not use up what is reserved for the daemon. One with a single uid leaves room for others.
func TestManyUIDsHaveSoManyConnections(t *testing.T) {
	for _, limit := range []int{1024, 20_000, 524_288} {
		d := share(limit, 0)
		if reserve := limit - d.connections; d.local <= 0 || d.local > reserve/2 {
			t.Errorf("of %d descriptors %d are for local users", limit, d.local)
		}
		l := newLocalUsers(d, nil)
		const first, uids = 100_000, 65_536
		all := 0
		for uid := uint32(first); uid < first+uids; uid++ {
			for l.enter(uid) == nil {
				all++
			}
			if uid == first && (all < fewOfUser || all > d.local/2) {
				t.Errorf("%d descriptors: one user has %d connections of %d", limit, all, d.local)
			}
			if uid == first+16 && d.local > maxReserve/4 && l.enter(1000) != nil {
				t.Errorf("%d descriptors: after %d connections of others a user is refused", limit, all)
			}
		}
		if all == 0 || all > d.local {
			t.Errorf("%d descriptors: %d connections, want %d", limit, all, d.local)
		}
		if l.enter(0) != nil || l.enter(uint32(os.Geteuid())) != nil {
			t.Errorf("%d descriptors: root was refused", limit)
		}
		for uid := uint32(first); uid < first+uids; uid++ {
			for l.of[uid].all > 0 {
				l.leave(uid)
			}
		}
		if err := l.enter(1001); err != nil {
			t.Errorf("%d descriptors: when they have ended: %v", limit, err)
		}
	}
}

// TestAnAccountThatLogsOthersInHasItsConnections: however many connections ordinary users have, with however many
// uids, the account of salt-api has as many as one user may have.
func TestAnAccountThatLogsOthersInHasItsConnections(t *testing.T) {
	const api, first = 999, 100_000
	l := newLocalUsers(share(1024, maxPerUser), func(uid uint32) bool { return uid == api })
	for uid := uint32(first); uid < first+1000; uid++ {
		for l.enter(uid) == nil {
		}
	}
	for n := range maxPerUser {
		if err := l.enter(api); err != nil {
			t.Fatalf("connection %d: %v", n+1, err)
		}
	}
	if l.enter(api) == nil {
		t.Error("it has no limit")
	}
	if l.enter(first+2000) == nil {
		t.Error("another uid has a place")
	}
}

// TestAnAccountThatLogsOthersInTakesNoPlaces: however many connections the account of salt-api has, ordinary users have
// theirs. What several such accounts have beyond the part for them counts as theirs do. All places are free in the end.
func TestAnAccountThatLogsOthersInTakesNoPlaces(t *testing.T) {
	const api, second, first = 998, 999, 100_000
	d := share(1024, maxPerUser)
	if d.connections+d.apart+minReserve > 1024 {
		t.Errorf("%+v: nothing is left for the daemon itself", d)
	}
	l := newLocalUsers(d, func(uid uint32) bool { return uid == api || uid == second })
	var entered []uint32
	enter := func(uid uint32) bool {
		if l.enter(uid) != nil {
			return false
		}
		entered = append(entered, uid)
		return true
	}
	for range maxPerUser {
		if !enter(api) {
			t.Fatal("it is refused")
		}
	}
	if !enter(second) || l.all != 1 {
		t.Errorf("of several such accounts, %d count", l.all)
	}
	has := 0
	for uid := uint32(first); uid < first+1000; uid++ {
		for enter(uid) {
			has++
		}
	}
	if has != d.local-1 {
		t.Errorf("ordinary users have %d connections, want %d", has, d.local-1)
	}
	for _, uid := range entered {
		l.leave(uid)
	}
	if l.all != 0 || l.allApart != 0 || len(l.of) != 0 {
		t.Errorf("at the end there are %d, %d apart, of %v", l.all, l.allApart, l.of)
	}
}
