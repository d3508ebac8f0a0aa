package accord

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// looks tells the member what has changed in its key directory, as the watch on that does.
func (at *seat) looks() {
	at.t.Helper()
	if err := at.keys.Refresh(); err != nil {
		at.t.Fatal(err)
	}
	at.shared.Changed(at.keys.Take())
}

// watched is settled with the watches on the key directories.
func watched(list ...*seat) {
	for range 6 {
		for _, at := range list {
			at.hears()
			at.looks()
			at.rounds()
		}
	}
}

// shown returns the keys of the minions in each state, as salt-key -L lists them.
func (at *seat) shown() string {
	at.t.Helper()
	entries, problems, err := at.keys.Store.List()
	if err != nil || len(problems) > 0 {
		at.t.Fatal(problems, err)
	}
	var lines []string
	for _, e := range entries {
		lines = append(lines, fmt.Sprintf("%s %s %.8s", e.ID, e.State, e.Key.SHA256()))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// alike lets all members hear of everything, and compares their lists of keys.
func alike(list ...*seat) {
	list[0].t.Helper()
	watched(list...)
	for _, at := range list[1:] {
		if got, want := at.shown(), list[0].shown(); got != want {
			at.t.Errorf("%s has the keys\n%s\n%s has\n%s", at.name, got, list[0].name, want)
		}
	}
}

// TestDeniedKeysAreOneList: a key that is denied at one member is denied at all, and can be deleted, rejected and
// accepted at any. It stays denied when the key that held the id is gone, also at a member that joins then.
func TestDeniedKeysAreOneList(t *testing.T) {
	j := openStore(t)
	a, b, c := newSeat(t, j, "a"), newSeat(t, j, "b"), newSeat(t, j, "c")
	list := []*seat{a, b, c}
	holder, other, third := newKey(t).Public(), newKey(t).Public(), newKey(t).Public()
	everywhere := func(key pki.PublicKey, want pki.State) {
		t.Helper()
		alike(list...)
		for _, at := range list {
			at.is("web1", key, want)
		}
	}
	a.act(Accept, "web1", holder)
	everywhere(holder, pki.Accepted)
	a.submit("web1", other)
	everywhere(other, pki.Denied)
	b.act(Delete, "web1", other)
	everywhere(other, pki.Unknown)
	c.submit("web1", other)
	everywhere(other, pki.Denied)
	a.act(Reject, "web1", other)
	everywhere(other, pki.Rejected)

	b.submit("web1", third)
	everywhere(third, pki.Denied)
	c.act(Delete, "web1", holder)
	c.act(Delete, "web1", other)
	d := newSeat(t, j, "d")
	list = append(list, d)
	everywhere(third, pki.Denied)
	d.act(Accept, "web1", third)
	everywhere(third, pki.Accepted)
	for _, at := range list {
		if w := at.shared.waits; len(w.claims)+w.own+len(w.ids) != 0 {
			t.Errorf("%s still knows of %v", at.name, slices.Collect(maps.Keys(w.claims)))
		}
	}
}

// TestADeniedKeyWithoutTheQuorum: what comes to a member that is cut off, and what is decided there, counts there at once,
// and at the others when it is back.
func TestADeniedKeyWithoutTheQuorum(t *testing.T) {
	j := openStore(t)
	a, b, c := newSeat(t, j, "a"), newSeat(t, j, "b"), newSeat(t, j, "c")
	holder, deleted, stays, accepted := newKey(t).Public(), newKey(t).Public(), newKey(t).Public(), newKey(t).Public()
	a.act(Accept, "web1", holder)
	a.act(Accept, "web2", holder)
	watched(a, b, c)
	b.submit("web1", deleted)
	b.submit("web3", deleted)
	alike(a, b, c)
	a.table.cut = true
	a.submit("web1", stays)
	a.act(Delete, "web1", deleted)
	a.act(Delete, "web3", deleted)
	a.submit("web2", accepted)
	a.act(Delete, "web2", holder)
	a.act(Accept, "web2", accepted)
	a.looks()
	a.rounds()
	a.is("web1", stays, pki.Denied)
	a.is("web1", deleted, pki.Unknown)
	a.is("web2", accepted, pki.Accepted)
	a.table.cut = false
	alike(a, b, c)
	c.is("web1", stays, pki.Denied)
	c.is("web1", deleted, pki.Unknown)
	c.is("web3", deleted, pki.Unknown)
	c.is("web2", accepted, pki.Accepted)
	c.is("web2", holder, pki.Unknown)
}

// TestMinionsOfOneIDAtSeveralMembers: they come at the same moment, so that each key is pending where it came. One
// of them stays pending, at all members; the others are denied, and stay so when that one is deleted.
func TestMinionsOfOneIDAtSeveralMembers(t *testing.T) {
	j := openStore(t)
	a, b, c := newSeat(t, j, "a"), newSeat(t, j, "b"), newSeat(t, j, "c")
	list := []*seat{a, b, c}
	watched(list...)
	first, later := newKey(t).Public(), []pki.PublicKey{newKey(t).Public(), newKey(t).Public()}
	b.submit("web1", first)
	a.submit("web1", later[0])
	c.submit("web1", later[1])
	b.looks()
	b.rounds()
	alike(list...)
	a.is("web1", first, pki.Pending)
	for _, key := range later {
		b.is("web1", key, pki.Denied)
	}
	c.act(Delete, "web1", first)
	alike(list...)
	a.is("web1", first, pki.Unknown)
	for _, key := range later {
		b.is("web1", key, pki.Denied)
	}

	// A key is pending where the accepted one of its id is not known yet.
	key, holder := newKey(t).Public(), newKey(t).Public()
	a.act(Accept, "web2", holder)
	a.looks()
	a.rounds()
	c.submit("web2", key)
	c.is("web2", key, pki.Pending)
	alike(list...)
	a.is("web2", key, pki.Denied)
}

// TestAFloodOfDeniedKeys: somebody shows many keys under the ids of accepted minions, at all members at the same moment. The
// bounds of one member hold for all together, and all show the same keys. Nothing is remembered when these are
// deleted.
func TestAFloodOfDeniedKeys(t *testing.T) {
	j := openStore(t)
	a, b, c := newSeat(t, j, "a"), newSeat(t, j, "b"), newSeat(t, j, "c")
	list := []*seat{a, b, c}
	holder := newKey(t).Public()
	ids := []string{"web1", "web2", "web3", "web4"}
	for _, id := range ids {
		a.act(Accept, id, holder)
	}
	watched(list...)
	flood := func(id string, at ...*seat) {
		t.Helper()
		for range pki.MaxRefused {
			for _, one := range at {
				one.submit(id, newKey(t).Public())
			}
		}
	}
	denied := func(at *seat, id string) (n int) {
		t.Helper()
		entries, err := at.keys.Store.Of(salt.MinionID(id))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.State == pki.Denied {
				n++
			}
		}
		return n
	}
	flood("web1", list...)
	for _, at := range list { // each makes its claims before it hears of those of the others
		at.looks()
		at.rounds()
	}
	alike(list...)
	if got := denied(c, "web1"); got != pki.MaxRefused {
		t.Errorf("%d keys of one id are denied, want %d", got, pki.MaxRefused)
	}
	for _, at := range list {
		if n := len(at.shared.waits.claims); n != pki.MaxRefused {
			t.Errorf("%s knows of %d claims, want %d", at.name, n, pki.MaxRefused)
		}
	}

	// What is decided counts nevertheless.
	next := newKey(t).Public()
	a.act(Delete, "web1", holder)
	watched(list...)
	a.submit("web1", next)
	b.act(Accept, "web1", holder)
	alike(list...)
	a.is("web1", holder, pki.Accepted)
	a.is("web1", next, pki.Pending)
	for _, at := range list {
		at.shared.waits.claimable = 2 * pki.MaxRefused
	}
	before := a.last
	watched(list...)
	if a.last != before {
		t.Errorf("the table has %d new entries though nothing has changed", a.last-before)
	}
	for _, id := range ids[1:] {
		flood(id, a)
	}
	watched(list...)
	if all, own, brought := len(b.shared.waits.claims), a.shared.waits.own, denied(b, "web2")+denied(b, "web3")+denied(b, "web4"); own > 2*pki.MaxRefused || brought > own || all > own+pki.MaxRefused {
		t.Errorf("%d keys are claimed, %d of them by the member with the flood, of which another one has %d", all, own, brought)
	}
	for _, id := range ids {
		entries, err := a.keys.Store.Of(salt.MinionID(id))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if waiting(e.State) {
				a.act(Delete, id, e.Key)
			}
		}
	}
	alike(list...)
	for _, at := range list {
		w := at.shared.waits
		if n := len(w.claims) + w.own + len(w.ids) + len(w.evicted) + len(w.dropped) + len(w.taken) + len(w.making) + len(w.brought); n != 0 {
			t.Errorf("%s remembers %d things", at.name, n)
		}
		at.is("web1", holder, pki.Accepted)
	}
}

// TestRandomHistoriesOfWaitingKeys: minions come to any members, people decide about keys, and members are cut off and
// start again. In the end all show the same keys.
func TestRandomHistoriesOfWaitingKeys(t *testing.T) {
	for n := range uint64(15) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			random := rand.New(rand.NewPCG(n, 15))
			j := openStore(t)
			list := []*seat{newSeat(t, j, "a"), newSeat(t, j, "b"), newSeat(t, j, "c")}
			var keys []pki.PublicKey
			for range 12 {
				keys = append(keys, newKey(t).Public())
			}
			for range 150 {
				at, key, id := list[random.IntN(3)], keys[random.IntN(len(keys))], fmt.Sprint("web", random.IntN(2))
				at.looks() // what the watch misses is noticed only after noticeTime
				switch state := at.entry(id, key).State; random.IntN(11) {
				case 0, 1, 2:
					_, _, _ = at.keys.Store.SubmitFrom(pki.Submission{ID: salt.MinionID(id), Key: key, Host: "192.0.2.1"}) // there may be no room
				case 3:
					if state != pki.Unknown {
						at.does(Delete, id, key)
					}
				case 4:
					if state != pki.Unknown {
						_ = at.keys.Store.Accept(at.entry(id, key)) // another one may be accepted
					}
				case 5:
					if state != pki.Unknown && random.IntN(3) == 0 {
						at.does(Reject, id, key)
					}
				case 7:
					at.table.cut = !at.table.cut
				case 8:
					if random.IntN(3) == 0 {
						at.begin()
					}
				default:
					if !at.table.cut {
						at.hears()
					}
					at.rounds()
				}
				at.looks()
			}
			for _, at := range list {
				at.table.cut = false
			}
			watched(list...)
			watched(list...)
			alike(list...)
		})
	}
}
