package accord

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// teller is a member whose key store is watched as the master does it.
type teller struct {
	*seat
	entries []string // of its audit log
	events  []string // that it stores
	rules   []string // that its entries name
}

// tellAll returns members that are watched, and have started.
func tellAll(list ...*seat) (all []*teller) {
	for _, at := range list {
		w := &teller{seat: at}
		w.starts()
		all = append(all, w)
	}
	return all
}

// starts starts the daemon again: what has changed meanwhile is not seen.
func (w *teller) starts() {
	w.t.Helper()
	w.openKeys(w.dir)
	w.begin()
	if err := w.keys.Refresh(); err != nil {
		w.t.Fatal(err)
	}
	w.keys.Take()
}

// sees looks at all keys, and tells of what has changed.
func (w *teller) sees() {
	w.t.Helper()
	if err := w.keys.Refresh(); err != nil {
		w.t.Fatal(err)
	}
	changes := w.keys.Take()
	w.shared.Changed(changes)
	for _, c := range changes {
		if c.Act() == "" || c.GaveWay {
			continue
		}
		who, rule := w.keys.TakeAction(c.Name, c.Act())
		one := fmt.Sprintf("%s %s", c.Act(), c.ID)
		w.entries, w.rules = append(w.entries, one), append(w.rules, rule)
		if !who.Elsewhere {
			w.events = append(w.events, one)
		}
	}
}

// together lets members hear of everything, and tell of it.
func together(all ...*teller) {
	for range 6 {
		for _, w := range all {
			w.hears()
			w.rounds()
			w.sees()
		}
	}
}

// told checks which events a member has stored.
func (w *teller) told(want ...string) {
	w.t.Helper()
	if !slices.Equal(w.events, want) {
		w.t.Errorf("%s has the events %q, want %q", w.name, w.events, want)
	}
}

// decides is what a person does at the member, which sees it.
func (w *teller) decides(act Act, id string, key pki.PublicKey) {
	w.t.Helper()
	w.does(act, id, key)
	w.sees()
}

// TestEachDecisionIsOneEvent: of whatever a decision leads to at all members, one member stores the event; each has an entry.
func TestEachDecisionIsOneEvent(t *testing.T) {
	j := openStore(t)
	all := tellAll(newSeat(t, j, "a"), newSeat(t, j, "b"), newSeat(t, j, "c"))
	a, b, c := all[0], all[1], all[2]
	together(all...)
	key := newKey(t).Public()
	a.decides(Accept, "web1", key)
	together(all...)
	b.decides(Reject, "web1", key)
	together(all...)
	c.decides(Delete, "web1", key)
	together(all...)
	a.told("accept web1")
	b.told("reject web1")
	c.told("delete web1")
	for _, w := range all {
		if want := []string{"accept web1", "reject web1", "delete web1"}; !slices.Equal(w.entries, want) {
			t.Errorf("the audit log of %s has %q, want %q", w.name, w.entries, want)
		}
	}
}

// TestAnAcceptanceThatIsTakenBackHasAnEvent of the member that has told of it: no other one has had the key. That is so whichever member
// finds out first that two members have accepted different keys.
func TestAnAcceptanceThatIsTakenBackHasAnEvent(t *testing.T) {
	for _, first := range []string{"yields", "a", "b", "c"} {
		t.Run(first, func(t *testing.T) {
			j := openStore(t)
			all := tellAll(newSeat(t, j, "a"), newSeat(t, j, "b"), newSeat(t, j, "c"))
			a, b, c := all[0], all[1], all[2]
			together(all...)
			one, two := newKey(t).Public(), newKey(t).Public()
			a.decides(Accept, "web1", one)
			b.decides(Accept, "web1", two)
			a.rounds()
			order := all
			switch first {
			case "yields": // it hears of the other key before it publishes its own one
				b.hears()
				b.rounds()
			case "a":
				b.rounds()
				order = []*teller{a, c, b}
			case "b":
				b.rounds()
				order = []*teller{b, a, c}
			case "c":
				b.rounds()
				order = []*teller{c, a, b}
			}
			together(order...)
			for _, w := range all {
				w.is("web1", one, pki.Accepted)
				w.is("web1", two, pki.Unknown)
			}
			a.told("accept web1")
			b.told("accept web1", "delete web1")
			c.told()
		})
	}
}

// TestWhatWasDecidedWhileStoppedHasAnEvent, when the others hear of it, once.
func TestWhatWasDecidedWhileStoppedHasAnEvent(t *testing.T) {
	j := openStore(t)
	all := tellAll(newSeat(t, j, "a"), newSeat(t, j, "b"))
	a, b := all[0], all[1]
	together(all...)
	key, other := newKey(t).Public(), newKey(t).Public()
	for _, id := range []string{"web1", "web2", "web3"} {
		a.decides(Accept, id, key)
	}
	together(all...)
	a.events, b.events = nil, nil
	b.starts() // the file by which the directory is known is renewed
	together(all...)
	b.told()
	b.does(Delete, "web1", key)
	b.does(Reject, "web2", key)
	b.does(Accept, "web4", key)
	b.does(Accept, "web5", other)
	a.decides(Accept, "web5", key) // it counts; nobody hears of the other one
	together(a)
	b.starts()
	together(all...)
	slices.Sort(b.events)
	b.told("accept web4", "delete web1", "reject web2")
	a.told("accept web5")
	b.is("web5", other, pki.Unknown)
	if n := len(b.entries); !slices.Contains(b.entries, "delete web5") {
		t.Errorf("of %d entries none is about the key of web5 that is deleted: %q", n, b.entries)
	}
	b.starts()
	together(all...)
	b.told("accept web4", "delete web1", "reject web2")

	// It is told also if the key is accepted again at once, by a rule for example, before anybody has looked.
	b.does(Delete, "web4", key)
	b.starts()
	b.events = nil
	for range 2 {
		b.hears()
		b.rounds()
	}
	b.does(Accept, "web4", key)
	b.sees()
	together(all...)
	b.told("delete web4", "accept web4")
	b.is("web4", key, pki.Accepted)
}

// TestARestartRepeatsNoEvent: a decision that cannot be published is told at once, and not once more when it is published, after
// a restart, or after two of which the first one does not reach the others either.
func TestARestartRepeatsNoEvent(t *testing.T) {
	j := openStore(t)
	all := tellAll(newSeat(t, j, "a"), newSeat(t, j, "b"))
	a, b := all[0], all[1]
	together(all...)
	key := newKey(t).Public()
	for _, id := range []string{"web1", "web2"} {
		a.decides(Accept, id, key)
	}
	together(all...)
	b.starts()
	together(all...)
	cut := func(is bool) { b.table.cut, b.agreed.cut = is, is }
	cut(true)
	b.decides(Delete, "web1", key)
	b.rounds()
	b.told("delete web1")
	saveMade(b.shared, true)
	cut(false) // a daemon does not start without its own table
	b.starts()
	cut(true)
	b.rounds()
	b.decides(Delete, "web2", key) // before the table is read
	saveMade(b.shared, true)
	if _, err := os.Stat(filepath.Join(b.dir, madeFile)); err != nil {
		t.Error(err)
	}
	cut(false)
	b.starts()
	together(all...)
	b.told("delete web1", "delete web2")
	for _, w := range all {
		w.is("web1", key, pki.Unknown)
		w.is("web2", key, pki.Unknown)
	}
	saveMade(b.shared, false)
	if _, err := os.Stat(filepath.Join(b.dir, madeFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file stays: %v", err)
	}
}

// TestAKeyThatAnOldDirectoryBringsBackHasEvents: one of that, and one when it is refused again.
func TestAKeyThatAnOldDirectoryBringsBackHasEvents(t *testing.T) {
	j := openStore(t)
	all := tellAll(newSeat(t, j, "a"), newSeat(t, j, "b"))
	a, b := all[0], all[1]
	together(all...)
	key := newKey(t).Public()
	a.decides(Accept, "web1", key)
	together(all...)
	old := b.copied()
	a.decides(Reject, "web1", key)
	together(all...)
	b.told()
	if err := errors.Join(os.RemoveAll(b.dir), os.CopyFS(b.dir, os.DirFS(old))); err != nil {
		t.Fatal(err)
	}
	b.sees()
	together(all...)
	b.told("accept web1", "reject web1")
	a.told("accept web1", "reject web1")
}

// TestAKeyThatMustBeAcceptedAgainHasAnEvent: it was accepted before the member joined, and may have been deleted since.
func TestAKeyThatMustBeAcceptedAgainHasAnEvent(t *testing.T) {
	j := openStore(t)
	a := tellAll(newSeat(t, j, "a"))[0]
	together(a)
	key := newKey(t).Public()
	a.decides(Accept, "web1", key)
	together(a)
	a.decides(Delete, "web1", key)
	together(a)
	a.shared.most = 0
	a.shared.forgetOld(t.Context(), time.Now().Add(time.Minute))
	a.shared.most = mostThings
	at := newSeat(t, j, "c")
	at.openKeys(t.TempDir()) // that of a master that was no member
	at.does(Accept, "web1", key)
	c := tellAll(at)[0]
	together(a, c)
	c.is("web1", key, pki.Pending)
	c.told("delete web1")
	a.told("accept web1", "delete web1")
}

// TestADecisionOfARuleIsKnownAsThatElsewhere, whether it is published before or after its change was seen, and also after a restart
// without the quorum: anybody can cause such decisions, and they are gathered. What people decide is known as theirs.
func TestADecisionOfARuleIsKnownAsThatElsewhere(t *testing.T) {
	j := openStore(t)
	all := tellAll(newSeat(t, j, "a"), newSeat(t, j, "b"))
	a, b := all[0], all[1]
	together(all...)
	key := newKey(t).Public()
	admit := func(id salt.MinionID) {
		t.Helper()
		if err := a.keys.Configure(&config.Master{AutoAccept: true}); err != nil {
			t.Fatal(err)
		}
		if v, err := a.keys.Admit(id, key, "192.0.2.66:1", "192.0.2.66"); err != nil || v.State != pki.Accepted {
			t.Fatalf("%+v, %v", v, err)
		}
	}
	admit("web1")
	a.sees()
	together(all...)
	admit("web2")
	a.shared.due.markAll()
	a.rounds()
	together(all...)
	a.table.cut, a.agreed.cut = true, true
	admit("web3")
	a.sees()
	a.rounds()
	saveMade(a.shared, true)
	a.table.cut, a.agreed.cut = false, false
	a.starts()
	together(all...)
	a.decides(Accept, "web4", key)
	together(all...)
	a.decides(Reject, "web1", key)
	together(all...)
	rule := "a rule of the master a"
	if want := []string{rule, rule, rule, "", ""}; len(b.entries) != 5 || !slices.Equal(b.rules, want) {
		t.Errorf("the entries %q are by %q, want %q", b.entries, b.rules, want)
	}
	if want := []string{"auto_accept", "auto_accept", "auto_accept", "", ""}; !slices.Equal(a.rules, want) {
		t.Errorf("where it was decided, they are by %q, want %q", a.rules, want)
	}
}
