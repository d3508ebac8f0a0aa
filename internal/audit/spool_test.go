package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
)

// errLost is why nothing can be stored.
var errLost = errors.New("most members are not reached")

// cut is a world that cannot store anything until it is healed.
type cut struct {
	*world
	path string
	lost atomic.Bool
}

func startCut(t *testing.T) *cut {
	t.Helper()
	c := &cut{path: filepath.Join(t.TempDir(), "unstored")}
	c.lost.Store(true)
	c.world = start(t, func(o *Options) { o.Spool = c.spool(t) })
	return c
}

func (c *cut) spool(t *testing.T) *Spool {
	t.Helper()
	s, err := OpenSpool(SpoolOptions{Path: c.path, Log: bustest.Log(t), Lost: func() error {
		if c.lost.Load() {
			return errLost
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// restart ends the log, and opens it and the spool again.
func (c *cut) restart() {
	c.Helper()
	c.l.Close()
	c.opts.Spool = c.spool(c.T)
	c.open()
}

// heal waits until what is in the spool is stored.
func (c *cut) heal() {
	c.Helper()
	c.lost.Store(false)
	bustest.Until(c.T, "the spool is stored", func() bool {
		_, err := os.Stat(c.path)
		return errors.Is(err, fs.ErrNotExist)
	})
}

func jobID(n int) salt.JID { return salt.JID(fmt.Sprintf("202601010000000000%02d", n)) }

// book spools a job with two events.
func (c *cut) book(n int, operator bool) error {
	c.Helper()
	return c.bookOf(n, 1000, operator)
}

func (c *cut) bookOf(n, uid int, operator bool) error {
	c.Helper()
	jid := jobID(n)
	var events []event.Event
	for _, tag := range []string{string(jid), "salt/job/" + string(jid) + "/new"} {
		e, err := event.New(tag, []byte(fmt.Sprintf(`{"jid":%q,"arg":["<é>"],"minions":["web1"]}`, jid)), "", time.Now())
		if err != nil {
			c.Fatal(err)
		}
		events = append(events, e)
	}
	e := ping(fmt.Sprint("user", n))
	e.JID, e.UID, e.Commands[0].Args = jid, &uid, []any{"secret"}
	return c.l.BookSpooled(e, jid, events, operator)
}

func (c *cut) mustBook(ns ...int) {
	c.Helper()
	for _, n := range ns {
		if err := c.book(n, true); err != nil {
			c.Fatal(err)
		}
	}
}

// users are those of the entries that were spooled, in the order of the chain.
func (c *cut) users() (list []string) {
	c.Helper()
	for _, line := range c.lines(Query{}) {
		var e Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			c.Fatal(err)
		}
		if e.Spooled != "" {
			list = append(list, e.User)
		}
	}
	return list
}

// tags are those of the events in the journal that are about jobs.
func (c *cut) tags() (list []string) {
	c.Helper()
	err := c.opts.Journal.Read(c.Context(), journal.Query{}, func(e event.Event) error {
		if strings.Contains(e.Tag, "20260101") {
			list = append(list, e.Tag)
		}
		return nil
	})
	if err != nil {
		c.Fatal(err)
	}
	return list
}

func tagsOf(ns ...int) (list []string) {
	for _, n := range ns {
		list = append(list, string(jobID(n)), "salt/job/"+string(jobID(n))+"/new")
	}
	return list
}

// TestWhatIsDecidedWithoutTheQuorumIsStoredLater: also after a restart, in order, with the time and the user
// of then. The chain shows no gap, and the file is gone.
func TestWhatIsDecidedWithoutTheQuorumIsStoredLater(t *testing.T) {
	c := startCut(t)
	before := time.Now()
	c.mustBook(1)
	refused := ping("mallory")
	refused.Verdict, refused.Reason = Refused, "no rule"
	if !c.l.Note(refused) {
		t.Error("the refusal has no entry")
	}
	c.mustBook(2)
	state, err := event.New("salt/job/"+string(jobID(1))+"/state", []byte(`{}`), "", time.Now())
	if err == nil {
		err = c.opts.Spool.State(jobID(1), state)
	}
	if err != nil {
		t.Fatal(err)
	}
	after := time.Now()
	if info, err := os.Stat(c.path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if text := c.content(c.path); strings.Contains(text, "secret") {
		t.Errorf("an argument is in the file outside of its event: %s", text)
	}
	if got := c.users(); len(got) > 0 {
		t.Errorf("stored already: %q", got)
	}
	c.restart()
	if !c.opts.Spool.Has(jobID(2)) || c.opts.Spool.Has(jobID(3)) || c.opts.Spool.Jobs() != 2 {
		t.Error("other jobs after a restart")
	}
	c.heal()
	if got, want := c.users(), []string{"user1", "mallory", "user2"}; !slices.Equal(got, want) {
		t.Errorf("entries of %q, want %q", got, want)
	}
	for _, line := range c.lines(Query{}) {
		if e, err := parse([]byte(line)); err != nil || e.Time.Before(before) || e.Time.After(after) || e.User == "user1" && (e.Verdict != Allowed || e.Digest == "" || e.Fun != "test.ping" || *e.UID != 1000 || e.JID != jobID(1)) || e.User == "mallory" && e.Verdict != Refused {
			t.Errorf("%v: %s", err, line)
		}
	}
	if got, want := c.tags(), append(tagsOf(1, 2), state.Tag); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	c.verify()
	if c.opts.Spool.Has(jobID(1)) {
		t.Error("the job counts as not stored")
	}
	c.lost.Store(true) // and again
	c.mustBook(3)
	c.heal()
	if got := c.users(); len(got) != 4 || got[3] != "user3" {
		t.Errorf("the second time: %q", got)
	}
	c.verify()
}

// TestNothingIsStoredTwice: the daemon is killed while what it has done without the quorum is being stored,
// after each step, and its next start goes on. What is done meanwhile is stored, too.
func TestNothingIsStoredTwice(t *testing.T) {
	for entries := range uint64(4) {
		for events := range uint64(4) {
			t.Run(fmt.Sprintf("%d entries, %d records of events", entries, events), func(t *testing.T) {
				t.Parallel()
				c := startCut(t)
				c.mustBook(1, 2, 3)
				c.stored(entries, events)
				if err := c.l.Record(t.Context(), ping("another")); err != nil {
					t.Fatal(err)
				}
				c.mustBook(4)
				c.restart()
				c.mustBook(5)
				c.heal()
				if got, want := c.users(), []string{"user1", "user2", "user3", "user4", "user5"}; !slices.Equal(got, want) {
					t.Errorf("entries of %q, want %q", got, want)
				}
				got := c.tags()
				slices.Sort(got)
				want := tagsOf(1, 2, 3, 4, 5)
				if slices.Sort(want); !slices.Equal(got, want) {
					t.Errorf("events %q, want %q", got, want)
				}
				c.verify()
			})
		}
	}
}

// stored stores the first records, and leaves them in the file.
func (c *cut) stored(entries, events uint64) {
	c.Helper()
	m, again, err := c.opts.Spool.mark(c.l.spoolMark)
	if err != nil || again {
		c.Fatal(again, err)
	}
	list, err := c.l.beginSpooled(c.Context(), m, entries)
	for _, p := range list {
		err = errors.Join(err, p.Wait(c.Context()))
	}
	if err == nil {
		err = c.l.storeSpooled(c.Context(), m, false, events)
	}
	if err != nil || len(list) != int(entries) {
		c.Fatal(len(list), err)
	}
	found, err := c.l.storedEvents(c.Context(), m)
	for n := range events {
		if found[n+1] != 2 {
			c.Errorf("found are %v, %v", found, err)
		}
	}
	if err != nil || len(found) != int(events) {
		c.Errorf("found are %v, %v", found, err)
	}
}

// TestACutRecordIsNone: a kill in the middle of a record leaves those before it, wherever it cuts, and the
// next one is whole.
func TestACutRecordIsNone(t *testing.T) {
	c := startCut(t)
	c.mustBook(1)
	one := c.content(c.path)
	c.mustBook(2)
	two := c.content(c.path)
	c.l.Close()
	for end := len(one); end < len(two); end += 7 {
		c.spoil(c.path, two[:end])
		s := c.spool(t)
		if !s.Has(jobID(1)) || s.Has(jobID(2)) || s.n != 1 {
			t.Fatalf("cut at %d of %d: %d records", end, len(two), s.n)
		}
		if err := s.note(ping("next")); err != nil {
			t.Fatal(err)
		}
		s.close()
		if s = c.spool(t); s.n != 2 || s.Jobs() != 1 {
			t.Errorf("cut at %d, and then: %d records", end, s.n)
		}
		s.close()
	}
	c.spoil(c.path, one[:20])
	if s := c.spool(t); s.pending() != 0 {
		t.Error("a record in a file that was cut in its first line")
	}
	if kept, err := filepath.Glob(c.path + "*"); err != nil || len(kept) > 0 {
		t.Errorf("left are %q, %v", kept, err)
	}
}

// TestDamagedRecordsAreKept: the others are stored, and a copy of the file shows what there was.
func TestDamagedRecordsAreKept(t *testing.T) {
	for name, word := range map[string]string{"a record": `"jid":"20260101000000000002"`, "the first line": `"id":`} {
		t.Run(name, func(t *testing.T) {
			c := startCut(t)
			c.mustBook(1, 2, 3)
			c.l.Close()
			bad := strings.Replace(c.content(c.path), word, strings.ToUpper(word), 1)
			c.spoil(c.path, bad)
			c.restart()
			c.l.Close()
			c.restart() // with the same damage
			c.heal()
			want := []string{"user1", "user2", "user3"}
			if name == "a record" {
				want = []string{"user1", "user3"}
			}
			if got := c.users(); !slices.Equal(got, want) {
				t.Errorf("entries of %q, want %q", got, want)
			}
			kept, err := filepath.Glob(c.path + ".damaged-*")
			if err != nil || len(kept) != 1 || c.content(kept[0]) != bad {
				t.Errorf("kept are %q, %v", kept, err)
			}
			c.verify()
		})
	}
}

// TestTheSpoolIsBounded: refusals leave room for jobs, jobs of users for those of operators, and nothing
// is above the limit. What does not fit is refused, with what to do; after it is stored there is room
// again.
func TestTheSpoolIsBounded(t *testing.T) {
	c := startCut(t)
	s := c.opts.Spool
	s.limits = [...]int64{shareNotes: 4 << 10, shareUsers: 8 << 10, shareOperators: 16 << 10}
	for _, one := range []struct {
		name  string
		share spoolShare
		add   func() error
	}{
		{"refusals", shareNotes, func() error { return s.note(ping("mallory")) }},
		{"jobs of users", shareUsers, func() error { return c.book(1, false) }},
		{"jobs of operators", shareOperators, func() error { return c.book(1, true) }},
	} {
		n, err := 0, error(nil)
		for ; err == nil && n < 1000; n++ {
			err = one.add()
		}
		info, errStat := os.Stat(c.path)
		if !errors.Is(err, errSpoolFull) || salt.Hint(err) == "" || n < 3 || errStat != nil || info.Size() > s.limits[one.share] {
			t.Errorf("%d %s, %d bytes: %v", n, one.name, info.Size(), err)
		}
		if one.share != shareNotes && !errors.Is(err, ErrUnwritten) {
			t.Errorf("%s: %v", one.name, err)
		}
	}
	if err := s.note(Entry{Reason: strings.Repeat("x", spoolLine)}); err == nil || salt.Hint(err) == "" {
		t.Errorf("a record that is too long: %v", err)
	}
	c.heal()
	c.lost.Store(true)
	c.mustBook(2)
}

// TestAUserHasAShareOfTheSpool: the jobs of one user leave room for those of others, also after a restart. What
// happens to jobs that have begun is recorded when their user may begin no more, and that of operators when no
// user may.
func TestAUserHasAShareOfTheSpool(t *testing.T) {
	c := startCut(t)
	const fred, ann, share = 1000, 1001, 8 << 10
	state := func(n int) error {
		t.Helper()
		e, err := event.New("salt/job/"+string(jobID(n))+"/state", []byte(`{}`), "", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return c.opts.Spool.State(jobID(n), e)
	}
	refused := func(who string, err error) {
		t.Helper()
		if !errors.Is(err, errSpoolShare) || salt.Hint(err) == "" {
			t.Errorf("%s: %v", who, err)
		}
	}
	c.opts.Spool.ofUser = share
	if err := errors.Join(c.bookOf(1, 0, true), c.bookOf(2, fred, false)); err != nil {
		t.Fatal(err)
	}
	begun, err := 1, error(nil)
	for ; err == nil && begun < 50; begun++ {
		err = c.bookOf(2, fred, false)
	}
	refused("jobs of one user", err)
	if begun < 3 {
		t.Errorf("one user may begin %d jobs", begun)
	}
	if err := errors.Join(state(2), c.bookOf(3, ann, false), state(3)); err != nil {
		t.Error(err)
	}
	err = nil
	for n := 0; err == nil && n < 50; n++ {
		err = state(2)
	}
	refused("states of one user", err)
	if used := c.opts.Spool.used["1000"]; used > share || used < share*9/10 {
		t.Errorf("one user has %d bytes of %d", used, share)
	}

	before := maps.Clone(c.opts.Spool.used)
	c.restart()
	c.opts.Spool.ofUser = share
	if got := c.opts.Spool.used; !maps.Equal(got, before) {
		t.Errorf("counted are %v after a restart, and before it %v", got, before)
	}
	refused("jobs of one user after a restart", c.bookOf(2, fred, false))
	refused("states of one user after a restart", state(2))
	if err := errors.Join(c.bookOf(4, ann, false), state(4)); err != nil {
		t.Error(err)
	}
	c.opts.Spool.limits[shareUsers] = c.opts.Spool.size
	if err := state(3); !errors.Is(err, errSpoolFull) {
		t.Errorf("users have no room, and yet: %v", err)
	}
	if err := errors.Join(state(1), c.bookOf(5, 0, true), state(5)); err != nil {
		t.Errorf("operators: %v", err)
	}

	c.heal()
	c.lost.Store(true)
	if err := errors.Join(c.bookOf(6, fred, false), state(6)); err != nil {
		t.Errorf("when all is stored: %v", err)
	}
}

// TestASpoolOnAFullDisk: the job is refused with the reason, and nothing of it is recorded.
func TestASpoolOnAFullDisk(t *testing.T) {
	c := startCut(t)
	c.mustBook(1)
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	s := c.opts.Spool
	file := s.file
	s.file = full
	if err := c.book(2, true); !errors.Is(err, syscall.ENOSPC) || !errors.Is(err, ErrUnwritten) || s.Has(jobID(2)) {
		t.Errorf("on a full disk: %v", err)
	}
	s.file = file
	full.Close()
	c.mustBook(3)
	c.heal()
	if got := c.users(); !slices.Equal(got, []string{"user1", "user3"}) {
		t.Errorf("entries of %q", got)
	}
}

// TestNoMasterAloneSpools: without Lost, and where something can be stored, nothing is spooled.
func TestNoMasterAloneSpools(t *testing.T) {
	for name, s := range map[string]*Spool{"none": nil, "alone": {}, "well": {opts: SpoolOptions{Lost: func() error { return nil }}}} {
		if s.Active() != nil || s.Has("1") || s.Jobs() != 0 || s.pending() != 0 || s.EachJob(nil) != nil {
			t.Error(name)
		}
	}
}

// TestWhatIsDecidedBeforeThereIsALeaderIsSpooled: when most members are reached again, they have no leader at once. As long as
// what was under way is not stored, what is done is recorded as before, but not for that alone: an election ends nothing.
func TestWhatIsDecidedBeforeThereIsALeaderIsSpooled(t *testing.T) {
	var lost, stalled error
	leaderless := errors.New("no leader")
	s := &Spool{opts: SpoolOptions{Lost: func() error { return lost }, Stalled: func() error { return stalled }}}
	for n, c := range []struct{ lost, stalled, want error }{
		{nil, leaderless, nil}, {errLost, nil, errLost}, {nil, leaderless, leaderless}, {nil, leaderless, leaderless}, {nil, nil, nil}, {nil, leaderless, nil},
	} {
		lost, stalled = c.lost, c.stalled
		if got := s.Active(); got != c.want {
			t.Errorf("step %d: %v, want %v", n, got, c.want)
		}
	}
}

// FuzzSpool: whatever a file contains, each of its records reads back as it is written, and what
// follows the records changes none of them.
func FuzzSpool(f *testing.F) {
	record := spooled{N: 1, JID: jobID(1), Entry: &Entry{Kind: Publish, Reason: "<é>"}}
	line, err := record.line()
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{"", "\n", "x", string(line), string(line[:20]), string(line) + string(line), "00000000 {}\n", "\x00\x00 \n", strings.Repeat("0", 99)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var all []spooled
		end, bad, err := readSpool(bytes.NewReader(append(slices.Clone(line), text...)), spoolBytes, func(r spooled, _ int) error { all = append(all, r); return nil })
		if err != nil || len(all) == 0 || !reflect.DeepEqual(all[0], record) || end < int64(len(line)) || end > int64(len(line)+len(text)) || bad < 0 {
			t.Fatalf("%+v, the end is %d, %d bad, %v", all, end, bad, err)
		}
		for _, r := range all {
			again, err := r.line()
			if err != nil {
				continue // a time beyond the year 9999
			}
			if got, err := readSpooled(again[:len(again)-1]); err != nil || !reflect.DeepEqual(got, r) {
				t.Errorf("%+v is read back as %+v, %v", r, got, err)
			}
		}
	})
}

// TestALongTargetIsCutInTheSpool: it takes no more space there than in the chain, where it is cut once.
func TestALongTargetIsCutInTheSpool(t *testing.T) {
	c := startCut(t)
	c.mustBook(1)
	before := c.opts.Spool.size
	e := ping("mallory")
	e.Verdict, e.Target = Refused, strings.Repeat("x", 1<<20)
	if !c.l.Note(e) {
		t.Fatal("the refusal has no entry")
	}
	if grown := c.opts.Spool.size - before; grown == 0 || grown > 16<<10 {
		t.Errorf("the spool has grown by %d bytes", grown)
	}
	c.heal()
	for _, line := range c.lines(Query{}) {
		var got Entry
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatal(err)
		}
		if got.User != "mallory" {
			continue
		}
		if want := strings.Repeat("x", maxText) + "... (1048576 bytes, hmac-sha256:"; !strings.HasPrefix(got.Target, want) || strings.Count(got.Target, "bytes") != 1 {
			t.Errorf("the target ends with %q", got.Target[min(len(got.Target), maxText-8):])
		}
		return
	}
	t.Error("the refusal is not in the chain")
}

// TestRefusalsOfOneLeaveRoomForThoseOfOthers: also after a restart.
func TestRefusalsOfOneLeaveRoomForThoseOfOthers(t *testing.T) {
	c := startCut(t)
	const share = 4 << 10
	c.opts.Spool.ofNote = share
	fill := func() {
		t.Helper()
		err := error(nil)
		for n := 0; err == nil && n < 100; n++ {
			err = c.opts.Spool.note(ping("mallory"))
		}
		if !errors.Is(err, errSpoolShare) {
			t.Errorf("refusals of one user: %v", err)
		}
	}
	fill()
	size := c.opts.Spool.size
	c.restart()
	c.opts.Spool.ofNote = share
	if fill(); c.opts.Spool.size != size {
		t.Errorf("%d bytes after a restart, and before it %d", c.opts.Spool.size, size)
	}
	ann, uid := ping("ann"), 1001
	ann.UID = &uid
	if err := c.opts.Spool.note(ann); err != nil {
		t.Errorf("another user: %v", err)
	}
	c.heal()
	c.lost.Store(true)
	if err := c.opts.Spool.note(ping("mallory")); err != nil {
		t.Errorf("when all is stored: %v", err)
	}
}

// TestMinionsWithoutEndLeaveRoomForPeople: whatever names new keys come with, what rules decide about their keys, and that
// these were shown, has one share, also after a restart. What people decide about keys has room even when users' jobs have none.
func TestMinionsWithoutEndLeaveRoomForPeople(t *testing.T) {
	c := startCut(t)
	const share = 4 << 10
	decide := func(e Entry) error {
		t.Helper()
		about, err := event.New("salt/key", []byte(`{}`), "", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		e.Kind, e.Verdict, e.Fun = Key, Allowed, "key.accept"
		return c.opts.Spool.decision(e, about)
	}
	fill := func(add func(Who) error) {
		t.Helper()
		c.opts.Spool.ofNote = share
		err := error(nil)
		for n := 0; err == nil && n < 100; n++ {
			err = add(Who{Minion: fmt.Sprint("m", n), Source: "192.0.2.66:1"})
		}
		if !errors.Is(err, errSpoolShare) || c.opts.Spool.size > 2*share {
			t.Errorf("%d bytes: %v", c.opts.Spool.size, err)
		}
	}
	fill(func(w Who) error { return decide(Entry{Who: w, Rule: "auto_accept"}) })
	fill(func(w Who) error { return c.opts.Spool.note(Entry{Kind: Key, Who: w, Fun: "key.connect"}) })
	c.restart()
	fill(func(w Who) error { return decide(Entry{Who: w, Rule: "auto_accept"}) })
	uid := 1000
	c.opts.Spool.limits[shareUsers] = c.opts.Spool.size
	for name, who := range map[string]Who{"root": {UID: new(int)}, "fred": {UID: &uid}, "of eauth": {User: "fred"}, "by hand": {Source: "a file in the key directory"}} {
		if err := decide(Entry{Who: who}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := decide(Entry{Rule: "auto_accept"}); err == nil {
		t.Error("a decision of a rule has more room than the jobs of users")
	}
}

// TestALongRecordDoesNotHoldUpTheOthers: neither one that is spooled now, nor one of an earlier version, which did not
// shorten it.
func TestALongRecordDoesNotHoldUpTheOthers(t *testing.T) {
	c := startCut(t)
	c.mustBook(1)
	e := ping("mallory")
	e.Verdict, e.Commands = Refused, manyCommands()
	before := c.opts.Spool.size
	if !c.l.Note(e) {
		t.Fatal("the refusal has no entry")
	}
	if grown := c.opts.Spool.size - before; grown == 0 || grown > 16<<10 {
		t.Errorf("the spool has grown by %d bytes", grown)
	}
	e = ping("eve")
	e.Verdict, e.Commands, e.Fun = Refused, nil, strings.Repeat("x", 1<<20)
	if err := c.opts.Spool.note(e); err != nil {
		t.Fatal(err)
	}
	c.mustBook(2)
	c.heal()
	if got, want := c.users(), []string{"user1", "mallory", "eve", "user2"}; !slices.Equal(got, want) {
		t.Errorf("entries of %q, want %q", got, want)
	}
	if got, want := c.tags(), tagsOf(1, 2); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	c.verify()
}

// TestAMarkIsNotBehindTheEnd: after an older backup was restored, or a power cut, the chain and the journal may end before
// the mark. Nothing is stored twice nevertheless, if the daemon is killed again while it stores it.
func TestAMarkIsNotBehindTheEnd(t *testing.T) {
	c := startCut(t)
	c.mustBook(1, 2, 3)
	if _, _, err := c.opts.Spool.mark(func() (spoolMark, error) {
		return spoolMark{Audit: c.l.seq + 2, Journal: c.opts.Journal.Stored() + 4}, nil
	}); err != nil {
		t.Fatal(err)
	}
	c.restart()
	m, again, err := c.opts.Spool.mark(nil)
	if err != nil || !again {
		t.Fatal(again, err)
	}
	list, err := c.l.beginSpooled(t.Context(), m, 2)
	for _, p := range list {
		err = errors.Join(err, p.Wait(t.Context()))
	}
	if err == nil {
		err = c.l.storeSpooled(t.Context(), m, true, 2)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.restart()
	c.heal()
	if got, want := c.users(), []string{"user1", "user2", "user3"}; !slices.Equal(got, want) {
		t.Errorf("entries of %q, want %q", got, want)
	}
	if got, want := c.tags(), tagsOf(1, 2, 3); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	c.verify()
}

// TestAMarkWaitsForWhatIsUnderWay: an entry that is not stored in the end does not count.
func TestAMarkWaitsForWhatIsUnderWay(t *testing.T) {
	begun, goOn := make(chan struct{}, 1000), make(chan struct{})
	w := start(t, func(o *Options) {
		o.Flush = func() error {
			begun <- struct{}{}
			<-goOn
			return nil
		}
	})
	w.write(1)
	deadline.Receive(t, begun, "the head is about to be written, and nobody looks what becomes of other entries")
	w.limit(1)
	p, err := w.l.Begin(ping("fred"))
	if err != nil {
		t.Fatal(err)
	}
	marks := make(chan spoolMark, 1)
	go func() {
		m, err := w.l.spoolMark()
		if err != nil {
			t.Error(err)
		}
		marks <- m
	}()
	for len(marks) == 0 && w.l.mu.TryLock() { // until it waits
		w.l.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
	close(goOn)
	if m := deadline.Receive(t, marks, "the mark"); m.Audit != 1 {
		t.Errorf("the mark is %+v, want 1", m)
	}
	if err := p.Wait(t.Context()); err == nil {
		t.Error("the entry is stored")
	}
}

// failing is a store that cannot be written while it says so.
type failing struct {
	journal.Store
	lost atomic.Bool
}

func (s *failing) Waits() bool                { return false }
func (s *failing) Sync(string) error          { return nil }
func (s *failing) Room(string, uint64) error  { return s.Err() }
func (s *failing) Soon(string)                {}
func (s *failing) Late(string, time.Duration) {}

func (s *failing) Failed() <-chan struct{} {
	if s.Err() == nil {
		return nil
	}
	failed := make(chan struct{})
	close(failed)
	return failed
}

func (s *failing) Err() error {
	if s.lost.Load() {
		return errLost
	}
	return nil
}

// TestAMarkDoesNotWaitForALostQuorum: where the quorum is lost again with entries under way, no mark is waited for.
// Decisions would wait behind it.
func TestAMarkDoesNotWaitForALostQuorum(t *testing.T) {
	store := &failing{}
	w := start(t, nil)
	w.l.Close()
	var err error
	if w.opts.Queue, err = journal.OpenQueue(t.Context(), w.bus.Conn(), "AUDIT", store); err != nil {
		t.Fatal(err)
	}
	w.open()
	w.l.flying.Add(1) // an entry that gets no answer
	store.lost.Store(true)
	deadline.Call(t, func() { _, err = w.l.spoolMark() }, "the mark")
	if !errors.Is(err, errLost) {
		t.Errorf("it is answered with %v", err)
	}
	store.lost.Store(false)
	w.l.flying.Done()
	if _, err := w.l.spoolMark(); err != nil {
		t.Errorf("when it is back: %v", err)
	}
}
