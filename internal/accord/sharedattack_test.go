package accord

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// newSeat makes a member whose Run is not started: hears and rounds are up to the test.
func newSeat(t *testing.T, j *journal.Journal, name string) *seat {
	t.Helper()
	at := &seat{side: &side{t: t, name: name}, table: openLine(t, j, "keys"), agreed: openLine(t, j, "agreed-"+name)}
	at.openKeys(t.TempDir())
	at.begin()
	return at
}

// begin starts the member again with what is stored.
func (at *seat) begin() {
	at.t.Helper()
	s, err := OpenShared(at.t.Context(), SharedOptions{Name: at.name, Dir: at.dir, Table: at.table, Agreed: at.agreed, Keys: at.keys, Log: slog.New(slog.NewTextHandler(at.t.Output(), nil))})
	if err != nil {
		at.t.Fatal(err)
	}
	s.workers, at.shared, at.last = 1, s, 0
	s.view.begin()
}

// hears brings everything that is new in the table.
func (at *seat) hears() {
	at.t.Helper()
	stop := errors.New("enough")
	err := at.table.Watch(at.t.Context(), at.last, func(e *journal.TableEntry) error {
		at.shared.hear(e)
		if e == nil {
			return stop
		}
		at.last = e.Revision
		return nil
	})
	if !errors.Is(err, stop) {
		at.t.Fatal(err)
	}
}

func (at *seat) rounds() {
	at.t.Helper()
	at.shared.again(true, false)
	for at.shared.round(at.t.Context(), acceptTime) {
	}
}

// act applies an act of a person, and tells the member, as the watch on the key directory does.
func (at *seat) act(act Act, id string, key pki.PublicKey) {
	at.t.Helper()
	before := at.entry(id, key).State
	at.does(act, id, key)
	at.seen(id, key, before)
}

func (at *seat) seen(id string, key pki.PublicKey, before pki.State) {
	at.t.Helper()
	at.shared.Changed([]keyring.Change{{Name: pki.Name{ID: salt.MinionID(id), Finger: key.SHA256()}, Before: before, After: at.entry(id, key).State}})
}

// settled lets members hear of everything.
func settled(list ...*seat) {
	for range 4 {
		for _, at := range list {
			at.hears()
			at.rounds()
		}
	}
}

func (at *seat) is(id string, key pki.PublicKey, want pki.State) {
	at.t.Helper()
	if got := at.entry(id, key).State; got != want {
		at.t.Errorf("%s is %s at %s, want %s", id, got, at.name, want)
	}
}

// submit makes a key wait, as a minion does that connects.
func (at *seat) submit(id string, key pki.PublicKey) {
	at.t.Helper()
	before := at.entry(id, key).State
	if _, _, err := at.keys.Store.SubmitFrom(pki.Submission{ID: salt.MinionID(id), Key: key, Host: "192.0.2.1"}); err != nil {
		at.t.Fatal(err)
	}
	at.seen(id, key, before)
}

// TestWhatAMemberWritesIsJudged: entries of an attacker who has the key of a member. What has no
// form of a decision has no effect, and what replaces an earlier decision leaves that in force.
func TestWhatAMemberWritesIsJudged(t *testing.T) {
	j := openStore(t)
	a := newSeat(t, j, "a")
	mine, eves := newKey(t).Public(), newKey(t).Public()
	a.act(Accept, "taken", mine)
	a.act(Reject, "refused", eves)
	settled(a)
	write := func(key string, value any) {
		t.Helper()
		text, ok := value.([]byte)
		if !ok {
			var err error
			if text, err = json.Marshal(value); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.table.Put(t.Context(), key, text); err != nil {
			t.Fatal(err)
		}
	}
	text := func(k pki.PublicKey) string { return string(k.PEM()) }
	accept := Decision{Act: Accept, N: 1}
	write(named("taken", eves), entry{Decision: accept, Key: text(eves), By: "eve"}) // the first one counts
	write(named("false", mine), entry{Decision: accept, Key: text(eves)})
	write(named("nokey", eves), entry{Decision: accept, Key: "nonsense"})
	write(named("act", eves), entry{Decision: Decision{Act: "own", N: 1}, Key: text(eves)})
	write(named("zero", eves), entry{Decision: Decision{Act: Accept}, Key: text(eves)})
	write(named("issued", eves), entry{Decision: Decision{Act: Issue, N: 1}, Key: text(eves)})
	write(named("big", eves), entry{Decision: accept, Key: text(eves), By: strings.Repeat("x", maxEntry)})
	write(named("garbage", eves), []byte("{"))
	write(named("refused", eves), []byte(`{"act":"withdrawn","n":1}`))
	for _, id := range []string{"../../x", "a/b", "", ".", "a\x00", "a b", strings.Repeat("x", 300), "web1\n"} {
		write(keyPrefix+eves.SHA256()+" "+id, entry{Decision: accept, Key: text(eves)})
		write(claimPrefix+eves.SHA256()+" "+id, claim{Master: "eve", Key: text(eves)})
	}
	write(claimOf(named("claim", mine)), claim{Master: "eve", Key: text(eves)})
	write(claimOf(named("claimed", eves)), []byte("["))
	write(claimOf(named("long", eves)), claim{Master: strings.Repeat("eve", maxEntry), Key: text(eves)})
	for _, name := range []string{"a", "b", "../a", ""} {
		write(heartbeatPrefix+name, []byte("7"))
		write(heartbeatPrefix+name, []byte(strings.Repeat("9", 1<<16)))
	}
	write("token x", []byte("{}"))
	write(named("good", eves), entry{Decision: accept, Key: text(eves), By: "../eve\n"})
	settled(a)
	entries, problems, err := a.keys.Store.List()
	if err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, fmt.Sprint(e.ID, " ", e.State, " ", e.Key == eves))
	}
	if want := "good accepted true, refused rejected true, taken accepted false"; strings.Join(got, ", ") != want {
		t.Errorf("the store has %q, want %q", got, want)
	}
	if r, _ := a.shared.at(named("good", eves)); r.By != "(unknown)" {
		t.Errorf("the audit log would name %q", r.By)
	}
	if !a.shared.Current().IsZero() {
		t.Error("a heartbeat that this member has not sent makes it current")
	}
	// The entries that cannot be read are in nobody's way.
	for _, id := range []string{"garbage", "refused", "zero"} {
		a.act(Reject, id, eves)
		a.act(Accept, id, eves)
	}
	b := newSeat(t, j, "b")
	settled(a, b)
	for _, id := range []string{"garbage", "refused", "zero"} {
		b.is(id, eves, pki.Accepted)
	}
}

// TestAFloodOfSharedDecisions: what is remembered of others, and what this member makes the others
// remember, is limited; what exists here can still be refused.
func TestAFloodOfSharedDecisions(t *testing.T) {
	j := openStore(t)
	a, b := newSeat(t, j, "a"), newSeat(t, j, "b")
	const most = 40
	var log bytes.Buffer
	a.shared.most, b.shared.most = most, most
	a.shared.opts.Log, b.shared.opts.Log = slog.New(slog.NewTextHandler(&log, nil)), slog.New(slog.NewTextHandler(&log, nil))
	key := newKey(t).Public()
	a.act(Accept, "here", key)
	settled(a, b)
	for i := range 3 * most { // as rules do that reject what anybody brings
		a.act(Reject, fmt.Sprint("m", i), key)
	}
	settled(a, b)
	a.act(Reject, "here", key)
	settled(a, b)
	count := func(at *seat) (n int) {
		t.Helper()
		entries, _, err := at.keys.Store.List()
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	if got, most := count(b), most/shares*5/4; got < most || got > most+1 {
		t.Errorf("the others have %d keys of this member", got)
	}
	b.is("here", key, pki.Rejected)
	for i := range 3 * most {
		e, err := json.Marshal(entry{Decision: Decision{Act: Accept, N: newN()}, Key: string(key.PEM()), By: "eve"})
		if err == nil {
			err = b.table.Put(t.Context(), named(fmt.Sprint("e", i), key), e)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	settled(b)
	if n, m := len(b.shared.view.rulings), count(b); n > most+1 || m > most+1 {
		t.Errorf("%d decisions are remembered, %d keys are stored", n, m)
	}
	if text := log.String(); !strings.Contains(text, "more keys than are remembered") || !strings.Contains(text, "that no other one knows") || strings.Count(text, "\n") > 6*maxComplaints {
		t.Errorf("the log has %d lines: %.500s", strings.Count(text, "\n"), text)
	}
}

// TestRulesLeaveRoomForPeople: new keys that a rule accepts use up the part of rules, and no more: what
// people decide goes on to count at all members.
func TestRulesLeaveRoomForPeople(t *testing.T) {
	j := openStore(t)
	a, b := newSeat(t, j, "a"), newSeat(t, j, "b")
	const most = 40
	a.shared.most = most
	if err := a.keys.Configure(&config.Master{AutoAccept: true}); err != nil {
		t.Fatal(err)
	}
	settled(a, b)
	key := newKey(t).Public()
	accepted := 0
	for i := range most {
		id := salt.MinionID(fmt.Sprint("m", i))
		v, err := a.keys.Admit(id, key, "192.0.2.66:1", "192.0.2.66")
		if err != nil {
			t.Fatal(err)
		}
		if v.State == pki.Accepted {
			accepted++
		} else if v.State != pki.Pending || !errors.Is(v.Limited, keyring.ErrLimited) {
			t.Errorf("%s: %+v", id, v)
		}
		a.seen(string(id), key, pki.Unknown)
		settled(a)
	}
	if accepted != most/shares {
		t.Errorf("rules have accepted %d keys, want %d", accepted, most/shares)
	}
	settled(a, b)
	a.act(Accept, "m20", key)
	a.act(Reject, "m21", key)
	settled(a, b)
	b.is("m20", key, pki.Accepted)
	b.is("m21", key, pki.Rejected)
}

// TestAFloodOfWaitingKeys: of the keys that wait at one member the others see no more than its share,
// and later ones only slowly; a key that waits at another member is seen at once. What no longer waits
// leaves the table.
func TestAFloodOfWaitingKeys(t *testing.T) {
	j := openStore(t)
	a, b, c := newSeat(t, j, "a"), newSeat(t, j, "b"), newSeat(t, j, "c")
	const most, others = 20, "web1"
	a.shared.waits.claimable = most
	key := newKey(t).Public()
	settled(a, b, c)
	for i := range 5 * most {
		a.submit(fmt.Sprint("m", i), key)
	}
	b.submit(others, key)
	settled(a, b, c)
	a.is(others, key, pki.Pending)
	c.is(others, key, pki.Pending)
	count := func(at *seat) (n int) {
		for i := range 5 * most {
			if at.entry(fmt.Sprint("m", i), key).State == pki.Pending {
				n++
			}
		}
		return n
	}
	if got := count(b); got != most {
		t.Errorf("%d of the keys that wait at one member wait at another one", got)
	}
	for i := range 5 * most {
		a.act(Delete, fmt.Sprint("m", i), key)
	}
	settled(a, b, c)
	if got := count(b) + count(c); got != 0 || len(c.shared.waits.claims) != 1 {
		t.Errorf("%d keys still wait, and the table has %d", got, len(c.shared.waits.claims))
	}
	c.shared.waits.ages(1)
	marked := func() (n int) {
		t.Helper()
		d := newSeat(t, j, "d")
		d.hears()
		return len(d.shared.waits.deleted)
	}
	before := marked()
	c.shared.waits.forget(t.Context())
	if got := marked(); got != before-1 || before != most {
		t.Errorf("%d marks of %d are left after one was old", got, before)
	}
}

// ages makes some marks of deleted entries old.
func (w *waits) ages(marks int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, d := range w.deleted {
		if marks--; marks >= 0 {
			d.at = d.at.Add(-2 * forgetTime)
			w.deleted[name] = d
		}
	}
}

// TestRemovalsDelayNoDecision: the marks of deleted entries are removed one after the other, which may take
// long. Refusals are applied meanwhile, and a mark that could not be removed is removed later.
func TestRemovalsDelayNoDecision(t *testing.T) {
	j := openStore(t)
	a, b := newSeat(t, j, "a"), newSeat(t, j, "b")
	key := newKey(t).Public()
	a.act(Accept, "web1", key)
	for i := range 3 {
		a.submit(fmt.Sprint("m", i), key)
	}
	settled(a, b)
	for i := range 3 {
		a.act(Delete, fmt.Sprint("m", i), key)
	}
	settled(a, b)
	b.shared.waits.ages(3)
	b.table.removes = func(context.Context) error { return errCut }
	b.shared.waits.forget(t.Context())
	if n := len(b.shared.waits.deleted); n != 3 {
		t.Fatalf("%d marks of 3 are known after none was removed", n)
	}
	begun, slow := make(chan bool), make(chan bool)
	b.table.removes = func(context.Context) error {
		close(begun)
		<-slow
		return errKilled
	}
	ctx, cancel := context.WithCancel(t.Context())
	b.shared.waits.pause = time.Millisecond
	ended := make(chan bool)
	go func() { b.shared.Run(ctx); close(ended) }()
	<-begun
	a.act(Delete, "web1", key)
	a.rounds()
	b.comes("web1", key, pki.Unknown)
	cancel()
	close(slow)
	<-ended
	b.table.removes = nil
	b.shared.waits.forget(t.Context())
	c := newSeat(t, j, "c")
	c.hears()
	if n, m := len(b.shared.waits.deleted), len(c.shared.waits.deleted); n+m > 0 {
		t.Errorf("%d marks are known, and %d left", n, m)
	}
}

// TestOldDeletionsAreForgottenInSteps: however many there are, one call takes only its time.
func TestOldDeletionsAreForgottenInSteps(t *testing.T) {
	j := openStore(t)
	a := newSeat(t, j, "a")
	key := newKey(t).Public()
	for i := range 3 {
		a.act(Accept, fmt.Sprint("m", i), key)
		settled(a)
		a.act(Delete, fmt.Sprint("m", i), key)
	}
	settled(a)
	a.shared.most = 0
	for want := 2; want >= 0; want-- {
		left := a.shared.forgetOld(t.Context(), time.Now())
		if n := len(a.shared.view.rulings); n != want || left != (want > 0) {
			t.Errorf("%d deletions are left, want %d, and it says %v", n, want, left)
		}
	}
}

// TestForgettingKeepsWhatIsDecidedMeanwhile: keys that were deleted long ago are accepted while their deletions
// are forgotten, before and during their turn.
func TestForgettingKeepsWhatIsDecidedMeanwhile(t *testing.T) {
	j := openStore(t)
	a, b := newSeat(t, j, "a"), newSeat(t, j, "b")
	key := newKey(t).Public()
	for _, id := range []string{"during", "before"} {
		a.act(Accept, id, key)
		settled(a, b)
		a.act(Delete, id, key)
		settled(a, b)
	}
	once := false
	a.table.removes = func(context.Context) error {
		if once {
			return nil
		}
		once = true
		for _, id := range []string{"during", "before"} {
			b.submit(id, key)
			b.act(Accept, id, key)
		}
		b.rounds()
		a.hears()
		return nil
	}
	a.shared.most = 0
	if a.shared.forgetOld(t.Context(), time.Now().Add(time.Minute)) || !once {
		t.Error("something is left to be forgotten, or nothing was forgotten")
	}
	a.shared.most = b.shared.most
	for range 2 {
		settled(a, b)
		for _, id := range []string{"during", "before"} {
			a.is(id, key, pki.Accepted)
			b.is(id, key, pki.Accepted)
		}
		a.begin()
		b.begin()
	}
}

// TestAClaimThatAnotherMemberDeletesFirst: this member hears that before it deletes the claim, too. A later claim of
// its own that another member deletes is not taken for one that it has deleted itself.
func TestAClaimThatAnotherMemberDeletesFirst(t *testing.T) {
	j := openStore(t)
	a, b := newSeat(t, j, "a"), newSeat(t, j, "b")
	key := newKey(t).Public()
	name := named("web1", key)
	a.submit("web1", key)
	settled(a, b)
	w := a.shared.waits
	c := w.claims[name]
	if err := b.table.DeleteAt(t.Context(), claimOf(name), c.revision); err != nil {
		t.Fatal(err)
	}
	a.hears()
	if err := w.dropClaim(t.Context(), name, c); err != nil {
		t.Fatal(err)
	}
	if len(w.undone) > 0 {
		t.Errorf("it is still deleting %v", w.undone)
	}
}

// TestAClaimThatIsDeletedBeforeItsAnswer: another member deletes a claim of this one, and this one hears of both
// before it has the answer to its own write. The claim does not come back, and the key is deleted here, too. Nor
// does a claim come back that a server tells which lacks the deletion.
func TestAClaimThatIsDeletedBeforeItsAnswer(t *testing.T) {
	j := openStore(t)
	a, b := newSeat(t, j, "a"), newSeat(t, j, "b")
	key := newKey(t).Public()
	claimed := claimOf(named("web1", key))
	var old journal.TableEntry
	a.table.stored = func(stored string, value []byte, revision uint64) {
		if stored != claimed {
			return
		}
		old = journal.TableEntry{Key: stored, Value: value, Revision: revision}
		if err := b.table.DeleteAt(t.Context(), stored, revision); err != nil {
			t.Error(err)
		}
		a.hears()
	}
	a.submit("web1", key)
	settled(a, b)
	if old.Revision == 0 {
		t.Fatal("nothing was claimed")
	}
	a.is("web1", key, pki.Unknown)
	for _, at := range []*seat{a, b} {
		at.shared.hear(&old)
		if n, own := len(at.shared.waits.claims), at.shared.waits.own; n+own > 0 {
			t.Errorf("%s knows %d claims, and counts %d as its own", at.name, n, own)
		}
	}
}

// TestAFloodOfKeysLeavesNothing: of keys that wait only until others take their room, and of those that wait at
// another member and have no room here, nothing is remembered.
func TestAFloodOfKeysLeavesNothing(t *testing.T) {
	j := openStore(t)
	a, b := newSeat(t, j, "a"), newSeat(t, j, "b")
	const most, claimable = 10, 4
	a.shared.waits.claimable = claimable
	a.keys.Store.MostOfHost, b.keys.Store.Most = most, 1
	b.keys.Here = func(string) bool { return true } // its keys do not give way
	key := newKey(t).Public()
	settled(a, b)
	b.submit("web1", key)
	tried := 0
	for i := range 10 * most {
		a.submit(fmt.Sprint("m", i), key)
		if err := a.keys.Refresh(); err != nil { // as the watch on the directory does
			t.Fatal(err)
		}
		a.shared.Changed(a.keys.Take())
		a.rounds()
		if w := a.shared.waits; i%most == 0 {
			settled(a, b)
			tried = max(tried, len(b.shared.waits.brought))
		} else if len(w.evicted) > len(w.claims) {
			t.Fatalf("%d keys that made room are remembered, and %d claims, after %d keys", len(w.evicted), len(w.claims), i)
		}
	}
	if tried == 0 {
		t.Error("the other member has heard of no key that it has no room for")
	}
	for i := range 10 * most {
		a.act(Delete, fmt.Sprint("m", i), key)
	}
	settled(a, b)
	if err := a.keys.Refresh(); err != nil {
		t.Fatal(err)
	}
	a.shared.Changed(a.keys.Take())
	settled(a, b)
	delete(a.shared.waits.brought, named("web1", key)) // it waits
	for _, at := range []*seat{a, b} {
		w := at.shared.waits
		if len(w.claims) != 1 || len(w.evicted)+len(w.dropped)+len(w.taken)+len(w.making)+len(w.brought) > 0 {
			t.Errorf("%s has %d claims, and remembers %d evicted, %d dropped, %d taken and %d brought keys", at.name, len(w.claims), len(w.evicted), len(w.dropped), len(w.taken), len(w.brought))
		}
	}
}

// TestClaimsAreCounted: the number of claims of a member is right after whatever has happened to them.
func TestClaimsAreCounted(t *testing.T) {
	j := openStore(t)
	a, b := newSeat(t, j, "a"), newSeat(t, j, "b")
	key := newKey(t).Public()
	settled(a, b)
	check := func(ofA, ofB int) {
		t.Helper()
		settled(a, b)
		for _, at := range []*seat{a, b} {
			own := map[string]int{}
			for _, c := range at.shared.waits.claims {
				own[c.Master]++
			}
			if got := at.shared.waits.own; own["a"] != ofA || own["b"] != ofB || got != own[at.name] || len(at.shared.waits.making) > 0 {
				t.Errorf("%s has the claims %v, and counts %d of its own and %d that it makes", at.name, own, got, len(at.shared.waits.making))
			}
		}
	}
	for i := range 4 {
		a.submit(fmt.Sprint("m", i), key)
	}
	b.submit("web1", key)
	check(4, 1)
	a.act(Delete, "m0", key)
	b.act(Delete, "m1", key)
	a.act(Accept, "m2", key)
	check(1, 1)
	a.table.flaky = func() bool { return true } // it is stored, and the answer is lost
	a.submit("m4", key)
	a.rounds()
	a.table.flaky = func() bool { return false }
	a.table.cut = true
	a.submit("m5", key)
	a.rounds()
	check(2, 1)
	a.table.cut = false
	check(3, 1)
	text, err := json.Marshal(claim{Master: "b", Key: string(key.PEM())})
	if err == nil {
		err = a.table.Put(t.Context(), claimOf(named("m4", key)), text) // the same key, at another member
	}
	if err != nil {
		t.Fatal(err)
	}
	check(2, 2)
}

// TestNothingIsCollectedBeforeTheTableIsRead: a member that starts without the others, and hears of nothing,
// does not remember each key that comes and goes. What has changed meanwhile is handled when the table is
// read.
func TestNothingIsCollectedBeforeTheTableIsRead(t *testing.T) {
	j := openStore(t)
	a, b := newSeat(t, j, "a"), newSeat(t, j, "b")
	a.keys.Store.MostOfHost = 1
	key := newKey(t).Public()
	b.submit("m19", key)
	settled(b)
	for i := range 20 {
		a.submit(fmt.Sprint("m", i), key)
		if err := a.keys.Refresh(); err != nil {
			t.Fatal(err)
		}
		a.shared.Changed(a.keys.Take())
		a.rounds()
	}
	for _, id := range []string{"m19", "gone"} {
		a.submit(id, key)
		a.act(Delete, id, key)
	}
	a.submit("web1", key)
	if n := len(a.shared.due.keys) + len(a.shared.todo) + len(a.shared.waits.dropped); n > 2 {
		t.Errorf("%d things are remembered", n)
	}
	settled(a, b)
	b.is("web1", key, pki.Pending)
	b.is("m19", key, pki.Unknown) // a person has deleted it
	if n := len(a.shared.waits.dropped); n > 0 {
		t.Errorf("%d deleted keys are remembered", n)
	}
}

// TestWaitingKeysAreOneList: a key that waits at one member can be deleted at another one, is not
// brought back, and can be submitted again; when it is decided about, nobody has it waiting.
func TestWaitingKeysAreOneList(t *testing.T) {
	j := openStore(t)
	a, b, c := newSeat(t, j, "a"), newSeat(t, j, "b"), newSeat(t, j, "c")
	list := []*seat{a, b, c}
	key := newKey(t).Public()
	everywhere := func(want pki.State) {
		t.Helper()
		settled(list...)
		for _, at := range list {
			at.is("web1", key, want)
		}
	}
	a.submit("web1", key)
	everywhere(pki.Pending)
	b.act(Delete, "web1", key)
	everywhere(pki.Unknown)
	for _, at := range []*seat{a, c} {
		at.seen("web1", key, pki.Pending) // the watch on the directory, as below
	}
	everywhere(pki.Unknown)
	c.submit("web1", key)
	everywhere(pki.Pending)
	a.act(Accept, "web1", key)
	everywhere(pki.Accepted)
	for _, at := range []*seat{b, c} {
		at.seen("web1", key, pki.Pending)
	}
	if n := len(b.shared.waits.claims); n != 0 {
		t.Errorf("%d keys wait", n)
	}
	a.act(Delete, "web1", key)
	everywhere(pki.Unknown)
	b.submit("web1", key)
	everywhere(pki.Pending)
}

// TestAWaitingKeyThatWasDeletedStaysDeleted: a member was stopped when a waiting key was deleted, or accepted and
// then deleted, whether its minion had come there or to another member. The key waits again only if its minion
// is there again.
func TestAWaitingKeyThatWasDeletedStaysDeleted(t *testing.T) {
	for _, there := range []bool{true, false} {
		j := openStore(t)
		a, b := newSeat(t, j, "a"), newSeat(t, j, "b")
		key, back := newKey(t).Public(), newKey(t).Public()
		at := a
		if there {
			at = b
		}
		for _, id := range []string{"deleted", "accepted", "waits"} {
			at.submit(id, key)
		}
		at.submit("back", back)
		settled(a, b)
		a.act(Delete, "deleted", key)
		a.act(Accept, "accepted", key)
		a.act(Delete, "back", back)
		settled(a)
		a.act(Delete, "accepted", key)
		settled(a)
		b.keys.Here = func(token string) bool { return token == bus.KeyToken(back.Key()) }
		b.begin()
		settled(b, a)
		for _, s := range []*seat{a, b} {
			s.is("deleted", key, pki.Unknown)
			s.is("accepted", key, pki.Unknown)
			s.is("waits", key, pki.Pending)
			s.is("back", back, pki.Pending)
		}
	}
}

// TestAWaitingKeyComesAndGoesUnnoticed: the watch on a key directory may miss a file that is there only
// for a moment. When the key waits again, it is shown everywhere, and can be deleted everywhere.
func TestAWaitingKeyComesAndGoesUnnoticed(t *testing.T) {
	j := openStore(t)
	a, b, c := newSeat(t, j, "a"), newSeat(t, j, "b"), newSeat(t, j, "c")
	key := newKey(t).Public()
	everywhere := func(want pki.State) {
		t.Helper()
		settled(a, b, c)
		for _, at := range []*seat{a, b, c} {
			at.is("web1", key, want)
		}
	}
	for range 3 {
		a.submit("web1", key)
		everywhere(pki.Pending)
		a.act(Delete, "web1", key) // b and c have it no more, and are not told of that
		everywhere(pki.Unknown)
	}
	a.submit("web1", key)
	everywhere(pki.Pending)
	b.act(Delete, "web1", key)
	everywhere(pki.Unknown)
}

// TestAnOldKeyDirectoryBringsNothingBack: a member joins, or comes back, with a key directory in which
// keys are accepted that the others have deleted or rejected meanwhile. Its other keys come along.
func TestAnOldKeyDirectoryBringsNothingBack(t *testing.T) {
	j := openStore(t)
	a, b := newSeat(t, j, "a"), newSeat(t, j, "b")
	key := newKey(t).Public()
	for _, id := range []string{"deleted", "rejected", "stays"} {
		a.act(Accept, id, key)
	}
	settled(a, b)
	copied := t.TempDir() // the key directory of b as it is now
	if err := os.CopyFS(copied, os.DirFS(b.dir)); err != nil {
		t.Fatal(err)
	}
	a.act(Delete, "deleted", key)
	a.act(Reject, "rejected", key)
	settled(a, b)
	check := func(at *seat) {
		t.Helper()
		settled(a, at)
		for _, s := range []*seat{a, at} {
			s.is("deleted", key, pki.Unknown)
			s.is("rejected", key, pki.Rejected)
			s.is("stays", key, pki.Accepted)
		}
	}
	check(b)

	// A backup of the directory, under the same name.
	b.openKeys(copied)
	b.does(Accept, "own", key)
	b.begin()
	if !b.shared.directory.fresh {
		t.Error("a directory from a backup is taken for the present one")
	}
	check(b)
	a.is("own", key, pki.Accepted)

	// The directory is not there for some time, while the daemon runs: nothing is deleted at the
	// others.
	away := b.dir + "-away"
	if err := os.Rename(b.dir, away); err != nil {
		t.Fatal(err)
	}
	b.shared.due.markAll()
	settled(a, b)
	a.is("stays", key, pki.Accepted)
	if err := errors.Join(os.RemoveAll(b.dir), os.Rename(away, b.dir)); err != nil {
		t.Fatal(err)
	}
	b.shared.due.markAll()
	check(b)

	// The directory is lost: nothing is deleted at the others.
	b.openKeys(t.TempDir())
	b.begin()
	check(b)

	// The present one, after a start with the daemon stopped for some time: what was deleted
	// meanwhile is deleted everywhere.
	b.does(Delete, "own", key)
	b.begin()
	if b.shared.directory.fresh {
		t.Error("the present directory is taken for another one")
	}
	check(b)
	a.is("own", key, pki.Unknown)

	// A new member, whose directory has keys.
	c := newSeat(t, j, "c")
	for _, id := range []string{"deleted", "rejected", "of-c"} {
		c.does(Accept, id, key)
	}
	c.begin()
	check(c)
	a.is("of-c", key, pki.Accepted)
}

// TestARejectionInAnOldKeyDirectoryCounts: whether a person has rejected the key since, while the member was stopped,
// cannot be told from the directory. It can be accepted again.
func TestARejectionInAnOldKeyDirectoryCounts(t *testing.T) {
	j := openStore(t)
	a, b := newSeat(t, j, "a"), newSeat(t, j, "b")
	key := newKey(t).Public()
	a.act(Reject, "web1", key)
	settled(a, b)
	old := b.copied()
	everywhere := func(want pki.State) {
		t.Helper()
		settled(b, a)
		a.is("web1", key, want)
		b.is("web1", key, want)
	}
	a.act(Accept, "web1", key)
	everywhere(pki.Accepted)
	b.openKeys(old)
	b.begin()
	everywhere(pki.Rejected)
	a.act(Accept, "web1", key)
	everywhere(pki.Accepted)
}

// TestAReplacedKeyDirectoryBringsNothingBack: an older copy of the key directory takes its place while the
// daemon runs. A key that was refused since is accepted at no member, not even at that one, and what a person
// refuses then still counts.
func TestAReplacedKeyDirectoryBringsNothingBack(t *testing.T) {
	j := openStore(t)
	a, b := newSeat(t, j, "a"), newSeat(t, j, "b")
	key := newKey(t).Public()
	for _, id := range []string{"deleted", "rejected", "stays"} {
		a.act(Accept, id, key)
	}
	settled(a, b)
	b.does(Accept, "unknown", key)
	old := b.copied()
	b.act(Delete, "unknown", key)
	settled(a, b)
	a.act(Delete, "deleted", key)
	a.act(Reject, "rejected", key)
	settled(a, b)
	if err := errors.Join(os.RemoveAll(b.dir), os.CopyFS(b.dir, os.DirFS(old))); err != nil {
		t.Fatal(err)
	}
	b.shared.due.markAll()
	settled(b, a)
	for _, at := range []*seat{a, b} {
		at.is("deleted", key, pki.Unknown)
		at.is("rejected", key, pki.Rejected)
		at.is("stays", key, pki.Accepted)
	}
	a.is("unknown", key, pki.Unknown)
	b.act(Reject, "stays", key)
	settled(b, a)
	a.is("stays", key, pki.Rejected)
}

// TestForgottenDeletionsBringNothingBack: after old deletions are forgotten, a member that comes with
// such a key has it deleted if it once knew of the decisions about it; otherwise the key waits until
// somebody accepts it again. A rejection that nobody remembers is published again.
func TestForgottenDeletionsBringNothingBack(t *testing.T) {
	j := openStore(t)
	a, b := newSeat(t, j, "a"), newSeat(t, j, "b")
	key := newKey(t).Public()
	for _, id := range []string{"web1", "web2", "web3"} {
		a.act(Accept, id, key)
	}
	a.act(Reject, "bad", key)
	settled(a, b)
	for _, id := range []string{"web1", "web2", "bad"} { // b is away
		a.act(Delete, id, key)
	}
	settled(a)
	a.shared.forgetOld(t.Context(), time.Now().Add(time.Minute))
	if r, _ := a.shared.at(named("web1", key)); r.Act != Delete {
		t.Fatalf("of a few deletions, one is forgotten already: %+v", r)
	}
	a.shared.most = 0
	a.shared.forgetOld(t.Context(), time.Now().Add(time.Minute))
	a.shared.most = mostThings
	if r, base := a.shared.at(named("web1", key)); r.Act != "" || base.Act != "" {
		t.Fatalf("left are %+v and %+v", r, base)
	}
	b.begin()
	settled(a, b)
	for _, s := range []*seat{a, b} {
		s.is("web1", key, pki.Unknown)
		s.is("web3", key, pki.Accepted)
		s.is("bad", key, pki.Rejected)
	}
	c := newSeat(t, j, "c")
	c.does(Accept, "web2", key)
	c.begin()
	settled(a, b, c)
	for _, s := range []*seat{a, b, c} {
		s.is("web2", key, pki.Pending)
	}
	b.act(Accept, "web2", key)
	settled(a, b, c)
	for _, s := range []*seat{a, b, c} {
		s.is("web2", key, pki.Accepted)
	}
	// Keys that are accepted now, while the member runs, are new.
	c.act(Accept, "web4", key)
	settled(a, b, c)
	a.is("web4", key, pki.Accepted)
}

// TestANewTableIsFilled: the table was lost, with the store of all members: it gets what the members
// have, and no key is deleted.
func TestANewTableIsFilled(t *testing.T) {
	j := openStore(t)
	a := newSeat(t, j, "a")
	key := newKey(t).Public()
	a.act(Accept, "web1", key)
	a.act(Reject, "bad", key)
	settled(a)
	a.table = openLine(t, j, "keys2")
	a.begin()
	b := newSeat(t, j, "b")
	b.table = a.table
	b.begin()
	settled(a, b)
	for _, s := range []*seat{a, b} {
		s.is("web1", key, pki.Accepted)
		s.is("bad", key, pki.Rejected)
	}
}

// TestARefusalIsEnforcedWhateverFails: nothing can be stored, or there is no room for one more rejected
// key of an id.
func TestARefusalIsEnforcedWhateverFails(t *testing.T) {
	j := openStore(t)
	a, b := newSeat(t, j, "a"), newSeat(t, j, "b")
	key := newKey(t).Public()
	for _, id := range []string{"rejected", "deleted", "full"} {
		a.act(Accept, id, key)
	}
	settled(a, b)
	b.agreed.cut, b.table.cut = true, true
	a.act(Reject, "rejected", key)
	a.act(Delete, "deleted", key)
	settled(a, b)
	b.is("rejected", key, pki.Rejected)
	b.is("deleted", key, pki.Unknown)
	b.agreed.cut, b.table.cut = false, false
	settled(a, b)
	b.is("rejected", key, pki.Rejected)

	// There is no room for one more rejected key of that id: it is not accepted either.
	for range 8 {
		b.does(Reject, "full", newKey(t).Public())
	}
	a.act(Reject, "full", key)
	settled(a, b)
	b.is("full", key, pki.Denied)
	a.is("full", key, pki.Rejected)
}

// TestTwoKeysOfOneID: two members accept different keys for an id, and neither knows of the other. The
// one that was stored first counts at all, until somebody deletes it.
func TestTwoKeysOfOneID(t *testing.T) {
	j := openStore(t)
	a, b, c := newSeat(t, j, "a"), newSeat(t, j, "b"), newSeat(t, j, "c")
	one, two := newKey(t).Public(), newKey(t).Public()
	settled(a, b, c)
	a.act(Accept, "web1", one)
	b.act(Accept, "web1", two)
	a.rounds()
	b.rounds()
	settled(a, b, c)
	for _, s := range []*seat{a, b, c} {
		s.is("web1", one, pki.Accepted)
		s.is("web1", two, pki.Unknown)
	}
	b.act(Delete, "web1", one)
	b.act(Accept, "web1", two)
	settled(b, a, c)
	for _, s := range []*seat{a, b, c} {
		s.is("web1", one, pki.Unknown)
		s.is("web1", two, pki.Accepted)
	}
}

// TestALostAnswer: an acceptance was stored although the answer did not come, and is taken back before
// that is known: it does not take effect again, also if the daemon is started in between.
func TestALostAnswer(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint(restart), func(t *testing.T) {
			j := openStore(t)
			a, b := newSeat(t, j, "a"), newSeat(t, j, "b")
			key := newKey(t).Public()
			settled(a, b)
			a.begin() // with a directory that it knows
			settled(a, b)
			a.table.flaky = func() bool { return true }
			a.act(Accept, "web1", key)
			a.rounds()
			a.table.flaky = func() bool { return false }
			b.hears()
			b.rounds()
			b.is("web1", key, pki.Accepted)
			a.act(Delete, "web1", key)
			if restart {
				a.begin()
			}
			settled(a, b)
			for _, s := range []*seat{a, b} {
				s.is("web1", key, pki.Unknown)
			}
		})
	}
}

// TestTwoRefusalsAreTwo: two members reject a key. Who knows of the one refusal only does not lift the
// other one.
func TestTwoRefusalsAreTwo(t *testing.T) {
	j := openStore(t)
	a, b, c := newSeat(t, j, "a"), newSeat(t, j, "b"), newSeat(t, j, "c")
	list := []*seat{a, b, c}
	key := newKey(t).Public()
	a.act(Accept, "web1", key)
	settled(list...)
	a.act(Reject, "web1", key)
	a.rounds()
	b.act(Reject, "web1", key)
	for _, s := range []*seat{c, b} { // c does not hear of the refusal of b
		s.hears()
		s.rounds()
	}
	c.act(Accept, "web1", key)
	c.rounds()
	settled(c, a, b)
	for _, s := range list {
		s.is("web1", key, pki.Rejected)
	}
	c.act(Accept, "web1", key)
	settled(list...)
	for _, s := range list {
		s.is("web1", key, pki.Accepted)
	}
}

// TestARefusalThatWasFollowedIsNotDecidedAgain: a member applies a refusal of another one, and cannot record that, or ends before it
// has. Meanwhile the key is accepted again. The member does not take the refusal for one of its own, which would count more;
// one that is made there after that does.
func TestARefusalThatWasFollowedIsNotDecidedAgain(t *testing.T) {
	cases := map[string]struct {
		first     Act
		how       func(b *seat) // before b hears of the refusal
		restarted bool
	}{
		"deleted, not recorded":   {Accept, func(b *seat) { b.agreed.cut = true }, false},
		"deleted, killed":         {Accept, func(b *seat) { b.agreed.left = 1 }, true},
		"no longer rejected":      {Reject, func(b *seat) { b.agreed.left = 1 }, true},
		"no longer rejected, cut": {Reject, func(b *seat) { b.agreed.cut = true }, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			j := openStore(t)
			a, b := newSeat(t, j, "a"), newSeat(t, j, "b")
			key := newKey(t).Public()
			settled(a, b)
			a.begin() // with directories that they know
			b.begin()
			a.act(Accept, "web1", key)
			settled(a, b)
			if c.first == Reject {
				a.act(Reject, "web1", key)
				settled(a, b)
			}
			a.act(Delete, "web1", key)
			a.rounds()
			c.how(b)
			func() {
				defer func() {
					if r := recover(); r != nil && r != errKilled {
						panic(r)
					}
				}()
				b.hears()
				b.rounds()
			}()
			a.act(Accept, "web1", key)
			a.rounds()
			if !c.restarted {
				b.hears()
				b.rounds()
			}
			b.agreed.cut, b.agreed.left = false, -1
			if c.restarted {
				b.begin()
			}
			settled(b, a)
			for _, s := range []*seat{a, b} {
				s.is("web1", key, pki.Accepted)
			}
			b.act(Delete, "web1", key)
			settled(b, a)
			for _, s := range []*seat{a, b} {
				s.is("web1", key, pki.Unknown)
			}
		})
	}
}
