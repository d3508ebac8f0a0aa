package accord

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// openStore starts one server for the tables of several members: what a network does to them is up
// to the test.
func openStore(t *testing.T) *journal.Journal {
	t.Helper()
	j, err := journal.Open(t.Context(), bustest.StartStore(t).Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	return j
}

// line is the way of one member to a table.
type line struct {
	*journal.Table
	cut    bool                                       // nothing gets through
	starts bool                                       // the daemon starts: it waits until it can write
	flaky  func() bool                                // whether the answer to a write is lost
	stored func(key string, value []byte, rev uint64) // called for what was stored
	left   int                                        // writes until the daemon is killed; negative for never

	removes func(context.Context) error // whether an entry can be removed; nil for yes
}

var errCut = errors.New("most members of the cluster are not reached")

func openLine(t *testing.T, j *journal.Journal, name string) *line {
	t.Helper()
	table, err := j.Table(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return &line{Table: table, left: -1, flaky: func() bool { return false }}
}

// wrote handles a write that f makes.
func (l *line) wrote(key string, value []byte, f func() (uint64, error)) (uint64, error) {
	if l.left == 0 {
		panic(errKilled)
	}
	l.left--
	if l.cut && !l.starts {
		return 0, errCut
	}
	rev, err := f()
	if err == nil && l.stored != nil {
		l.stored(key, value, rev)
	}
	if err == nil && !l.starts && l.flaky() {
		err = context.DeadlineExceeded
	}
	return rev, err
}

func (l *line) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	return l.wrote(key, value, func() (uint64, error) { return l.Table.Create(ctx, key, value) })
}

func (l *line) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return l.wrote(key, value, func() (uint64, error) { return l.Table.Update(ctx, key, value, revision) })
}

func (l *line) DeleteAt(ctx context.Context, key string, revision uint64) error {
	_, err := l.wrote(key, nil, func() (uint64, error) { return 0, l.Table.DeleteAt(ctx, key, revision) })
	return err
}

func (l *line) RemoveAt(ctx context.Context, key string, revision uint64) error {
	if l.removes != nil {
		if err := l.removes(ctx); err != nil {
			return err
		}
	}
	return l.Table.RemoveAt(ctx, key, revision)
}

func (l *line) Keep(ctx context.Context, key string, value []byte) error {
	_, err := l.wrote(key, value, func() (uint64, error) { return 0, l.Table.Keep(ctx, key, value) })
	return err
}

func (l *line) Entry(ctx context.Context, key string) (journal.TableEntry, error) {
	if l.cut {
		return journal.TableEntry{}, errCut
	}
	return l.Table.Entry(ctx, key)
}

// seat is one member in a random history.
type seat struct {
	*side
	dir           string
	table, agreed *line
	shared        *Shared
	last          uint64            // the revision up to which it has heard
	known         map[string]uint64 // the revision of the decision in force, of each key
}

// openKeys opens a key directory.
func (at *seat) openKeys(dir string) {
	at.t.Helper()
	cfg := config.NewMaster()
	cfg.PKIDir, at.dir = dir, dir
	var err error
	if at.keys, err = keyring.Open(cfg, slog.New(slog.DiscardHandler)); err != nil {
		at.t.Fatal(err)
	}
}

// sharedRefusal is a rejection or deletion by a person.
type sharedRefusal struct {
	key      string
	at       *seat
	revision uint64 // of the decision that was stored for it, 0 for none
	lifted   bool   // by an acceptance that was made with knowledge of it
}

type named1 struct {
	id  string
	key pki.PublicKey
}

func (n named1) name() string { return named(n.id, n.key) }

// sharedHistory is a random sequence of acts of people at three members, of partitions, of deliveries
// and restarts.
type sharedHistory struct {
	t        *testing.T
	random   *rand.Rand
	begin    uint64 // the revision of the table at the beginning
	seats    []*seat
	keys     []named1
	refusals []*sharedRefusal
	log      []string
}

func (h *sharedHistory) tell(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

func (h *sharedHistory) fail(format string, args ...any) {
	h.t.Helper()
	for _, line := range h.log {
		h.t.Log(line)
	}
	h.t.Fatalf(format, args...)
}

func (h *sharedHistory) state(at *seat, k named1) Act { return stateOf(at.entry(k.id, k.key)) }

// acts applies an act of a person, unless another key of the id is accepted.
func (h *sharedHistory) acts(at *seat, act Act, k named1) bool {
	if act == Delete && at.entry(k.id, k.key).State == pki.Unknown {
		return false
	}
	for _, other := range h.keys {
		if act == Accept && other.id == k.id && other != k && h.state(at, other) == Accept {
			return false
		}
	}
	h.tell("%s: %s %s", at.name, act, h.short(k))
	at.does(act, k.id, k.key)
	if at.shared != nil {
		at.shared.Changed([]keyring.Change{{Name: pki.Name{ID: salt.MinionID(k.id), Finger: k.key.SHA256()}}})
	}
	if act != Accept {
		h.refusals = append(h.refusals, &sharedRefusal{key: k.name(), at: at})
		return true
	}
	for _, r := range h.refusals {
		if r.key == k.name() && (r.at == at || r.revision > 0 && r.revision <= at.known[r.key]) {
			r.lifted = true
		}
	}
	return true
}

func (h *sharedHistory) short(k named1) string { return fmt.Sprintf("%s@%.8s", k.id, k.key.SHA256()) }

// round runs a round of a member, which may be killed after some writes.
func (h *sharedHistory) round(at *seat) {
	h.tell("%s: round", at.name)
	if !at.shared.view.complete {
		return
	}
	same := map[string]bool{} // an act that was undone since the latest round is not a decision
	for _, k := range h.keys {
		r, base := at.shared.at(k.name())
		if at.shared.ours(k.name(), r, base) {
			base.Act = r.Act
		}
		same[k.name()] = h.state(at, k) == base.Act.inForce()
	}
	func() {
		defer func() {
			if r := recover(); r != nil && r != errKilled {
				panic(r)
			}
		}()
		at.shared.again(true, false)
		for at.shared.round(h.t.Context(), acceptTime) {
		}
	}()
	for _, r := range h.refusals {
		if r.at == at && r.revision == 0 && same[r.key] {
			r.lifted = true
		}
	}
	for _, k := range h.keys {
		r, base := at.shared.at(k.name())
		followed := at.shared.done.of(k.name()).n == r.N && h.state(at, k) == r.Act.inForce() // the answer to its record was lost
		if followed || at.shared.knows(k.name(), r, base) || at.shared.ours(k.name(), r, base) {
			at.known[k.name()] = max(at.known[k.name()], r.revision)
		}
	}
}

// deliver brings a member some of the entries that it has not heard of, in their order.
func (h *sharedHistory) deliver(to *seat, most int) {
	if to.table.cut {
		return
	}
	stop := errors.New("enough")
	err := to.table.Watch(h.t.Context(), to.last, func(e *journal.TableEntry) error {
		if e == nil {
			to.shared.hear(nil)
			return stop
		}
		if most--; most < 0 {
			return stop
		}
		to.last = e.Revision
		to.shared.hear(e)
		return nil
	})
	if !errors.Is(err, stop) {
		h.t.Fatal(err)
	}
	h.tell("%s has heard all up to %d", to.name, to.last)
}

// restart ends a member, and begins it again with what is stored.
func (h *sharedHistory) restart(at *seat) {
	h.tell("%s: restart", at.name)
	at.table.left, at.agreed.left, at.agreed.starts = -1, -1, true
	s, err := OpenShared(h.t.Context(), SharedOptions{Name: at.name, Dir: at.dir, Table: at.table, Agreed: at.agreed, Keys: at.keys, Log: slog.New(slog.NewTextHandler(&logLines{h}, nil))})
	if err != nil {
		h.t.Fatal(err)
	}
	at.agreed.starts = false
	s.workers, at.shared, at.last = 1, s, h.begin
	s.view.begin()
}

type logLines struct{ h *sharedHistory }

func (l *logLines) Write(b []byte) (int, error) {
	l.h.tell("  %s", strings.TrimSpace(string(b)))
	return len(b), nil
}

func (h *sharedHistory) step() {
	at := h.seats[h.random.IntN(len(h.seats))]
	switch n := h.random.IntN(24); {
	case n < 8:
		h.acts(at, []Act{Accept, Accept, Reject, Delete}[h.random.IntN(4)], h.keys[h.random.IntN(len(h.keys))])
	case n < 13:
		h.round(at)
	case n < 19:
		h.deliver(at, h.random.IntN(6))
	case n < 21:
		at.table.cut = !at.table.cut
		at.agreed.cut = at.table.cut
		h.tell("%s is cut off: %v", at.name, at.table.cut)
	case n < 22: // it is killed in the middle of a round
		at.table.left, at.agreed.left = h.random.IntN(4), h.random.IntN(4)
		h.round(at)
		h.restart(at)
	default:
		h.restart(at)
	}
}

// settle lets all hear of everything until nothing changes any more.
func (h *sharedHistory) settle() {
	h.t.Helper()
	h.tell("all hear everything")
	for _, at := range h.seats {
		at.table.cut, at.agreed.cut = false, false
	}
	for range 20 {
		before := h.end()
		for range 2 {
			for _, at := range h.seats {
				h.deliver(at, 1<<30)
				h.round(at)
			}
		}
		if h.end() == before && !h.left() {
			return
		}
	}
	h.fail("the members never come to rest")
}

// left reports whether a member has something to do that it could not do, since answers were lost.
func (h *sharedHistory) left() bool {
	for _, at := range h.seats {
		if len(at.shared.failed)+len(at.shared.soon) > 0 {
			return true
		}
	}
	return false
}

// end is the newest revision of the table.
func (h *sharedHistory) end() (last uint64) {
	h.t.Helper()
	stop := errors.New("enough")
	err := h.seats[0].table.Watch(h.t.Context(), h.begin, func(e *journal.TableEntry) error {
		if e == nil {
			return stop
		}
		last = e.Revision
		return nil
	})
	if !errors.Is(err, stop) {
		h.t.Fatal(err)
	}
	return last
}

// check compares all members, and the accepted keys with the refusals.
func (h *sharedHistory) check() {
	h.t.Helper()
	for _, k := range h.keys {
		one := h.state(h.seats[0], k)
		for _, at := range h.seats[1:] {
			if got := h.state(at, k); got != one {
				h.fail("%s is %q at %s and %q at %s", h.short(k), one, h.seats[0].name, got, at.name)
			}
		}
		for _, r := range h.refusals {
			if one == Accept && r.key == k.name() && !r.lifted {
				h.fail("%s is accepted, though %s has refused it (stored at %d) and nobody who knew has lifted that", h.short(k), r.at.name, r.revision)
			}
		}
	}
}

// newHistory makes three members that know nothing.
func newHistory(t *testing.T, j *journal.Journal, n uint64) *sharedHistory {
	t.Helper()
	h := &sharedHistory{t: t, random: rand.New(rand.NewPCG(n, 2))}
	for _, id := range []string{"web0", "web0", "web1", "web2"} {
		h.keys = append(h.keys, named1{fmt.Sprintf("h%d-%s", n, id), newKey(t).Public()})
	}
	open := func(name string) *line {
		l := openLine(t, j, name)
		l.flaky = func() bool { return h.random.IntN(10) == 0 }
		return l
	}
	shared := open("keys")
	h.seats = []*seat{{side: &side{}, table: shared}}
	h.begin = h.end()
	h.seats = nil
	for _, name := range []string{"a", "b", "c"} {
		at := &seat{side: &side{t: t, name: name}, table: open("keys"), agreed: open(fmt.Sprintf("agreed%d%s", n, name)), known: map[string]uint64{}}
		at.openKeys(t.TempDir())
		at.table.stored = func(key string, value []byte, rev uint64) {
			h.tell("  %s stores %.20s %.60s at %d", name, key[len(key)-14:], value, rev)
			var e entry
			if json.Unmarshal(value, &e) != nil || !e.Act.refuses() {
				return
			}
			for _, r := range h.refusals {
				if r.key == key && r.at == at && r.revision == 0 {
					r.revision = rev
				}
			}
		}
		h.seats = append(h.seats, at)
		h.restart(at)
	}
	return h
}

// refuses reports whether it is a refusal of a key.
func (a Act) refuses() bool { return a == Delete || a == Reject }

// TestSharedRandomHistories: whatever people do at three members, however these are cut off, killed
// and started again, whatever answers are lost: once all have heard everything they have the same keys,
// a refusal is lifted only by an act that was made with knowledge of it, and the next decision counts
// at all.
func TestSharedRandomHistories(t *testing.T) { trySharedHistories(t, 0, 20) }

// trySharedHistories tries those of a range of seeds, in groups that share a store.
func trySharedHistories(t *testing.T, from, to uint64) {
	t.Parallel()
	const groups, steps = 20, 60
	for g := range uint64(groups) {
		t.Run(fmt.Sprint(g), func(t *testing.T) {
			t.Parallel()
			j := openStore(t)
			for n := from + g; n < to; n += groups {
				h := newHistory(t, j, n)
				for range steps {
					h.step()
				}
				h.settle()
				h.check()
				for _, act := range []Act{Accept, Reject, Accept, Delete} {
					k := h.keys[2]
					if !h.acts(h.seats[h.random.IntN(3)], act, k) {
						continue
					}
					h.settle()
					h.check()
					if got := h.state(h.seats[h.random.IntN(3)], k); got != act.inForce() {
						h.fail("%s was decided last, and the state is %q", act, got)
					}
				}
			}
		})
	}
}
