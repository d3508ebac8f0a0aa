package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
)

// system is what members of a cluster have stored, which recognise a message as they do.
type system struct {
	marks sender
	has   []string
}

// member is one of its masters.
type member struct {
	*taking
	of   *system
	full bool
}

func (m *member) Ask(_ context.Context, _ string, body, answer any) error {
	if m.full {
		return rpc.Errorf(rpc.Unavailable, "it cannot store anything")
	}
	batch := body.(Batch).Messages
	for _, k := range batch {
		if m.of.marks.has(k.Epoch, k.N, 0) {
			continue
		}
		m.of.marks.set(Watermark{Epoch: k.Epoch, N: k.N})
		m.of.has = append(m.of.has, string(k.Body))
	}
	answer.(*Delivered).Messages = make([]Delivery, len(batch))
	return nil
}

// wired implements Links.
type wired struct {
	leads       []int
	masters     []Master
	generations []string
	left        map[int]bool // whose masters have left their system
	heir        int          // who gets what was put in earlier generations
}

func (w *wired) Lead(i int) int { return w.leads[i] }
func (w *wired) Generation(i int) string {
	if w.generations == nil {
		return ""
	}
	return w.generations[i]
}
func (w *wired) Heirs(i int, generation string) (lead int, now string, list []Master) {
	lead = w.leads[i]
	if generation != w.Generation(i) {
		lead = w.heir
	}
	for k, m := range w.masters {
		if w.leads[k] == lead && m != nil && !w.left[k] {
			list = append(list, m)
		}
	}
	return lead, w.Generation(lead), list
}

// openBoxes opens an outbox for each of these, for masters that are not known to be of one system.
func openBoxes(t *testing.T, masters ...Master) (*Boxes, *wired) {
	t.Helper()
	dir, log := t.TempDir(), slog.New(slog.NewTextHandler(t.Output(), nil))
	own, err := broker.Start(broker.Options{Name: "test", StoreDir: filepath.Join(dir, "journal"), Log: log, Admit: func(broker.Peer) bus.Identity { return bus.Identity{} }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Stop)
	w := &wired{leads: []int{0, 1, 2}[:len(masters)], masters: masters}
	boxes, err := Open(t.Context(), Options{ID: "web1", Dir: dir, Conn: own.Conn(), Store: own.Store(), MaxBytes: 1 << 20, Log: log}, []string{"a:1", "b:1", "c:1"}[:len(masters)], w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(boxes.Close)
	return boxes, w
}

// drain delivers all of an outbox.
func drain(t *testing.T, b *Box) {
	t.Helper()
	for more := true; more; {
		var err error
		if more, err = b.turn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := b.Waiting(); n > 0 {
		t.Errorf("%d messages still wait", n)
	}
}

func fired(text string) Outgoing {
	return Outgoing{Op: protocol.OpFire, Body: json.RawMessage(fmt.Sprintf("%q", text)), Events: 1}
}

func putAll(t *testing.T, boxes *Boxes, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err := boxes.Put(t.Context(), fired(text)); err != nil {
			t.Fatal(err)
		}
	}
}

func members() (*system, *member, *member) {
	s := &system{marks: sender{all: new(watermarks)}}
	return s, &member{taking: new(taking), of: s}, &member{taking: new(taking), of: s}
}

// TestSeparateMastersGetEachEvent: two masters that have nothing in common both get all events, each in one order, however
// they were put.
func TestSeparateMastersGetEachEvent(t *testing.T) {
	first, a, _ := members()
	second, b, _ := members()
	boxes, _ := openBoxes(t, a, b)
	var putting sync.WaitGroup
	for i := range 100 {
		putting.Go(func() {
			if err := boxes.Put(t.Context(), fired(fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
		})
	}
	putting.Wait()
	drain(t, boxes.At(0))
	drain(t, boxes.At(1))
	if len(first.has) != 100 || !slices.Equal(first.has, second.has) {
		t.Errorf("the first master has %d messages, the second one %d, and they are not the same", len(first.has), len(second.has))
	}
}

// TestAClusterRecognisesAMessageOfSeveralOutboxes: what was put before the minion knows that its masters are members of
// one cluster is stored once, and nothing that only one of the outboxes has is taken for something else.
func TestAClusterRecognisesAMessageOfSeveralOutboxes(t *testing.T) {
	s, a, b := members()
	other, c, _ := members()
	boxes, w := openBoxes(t, a, b, c)
	for i := range 3 {
		if err := boxes.PutOnce(t.Context(), i, 1, fired("start")); err != nil {
			t.Fatal(err)
		}
	}
	putAll(t, boxes, "one", "two")
	if err := boxes.At(0).Put(t.Context(), fired("return")); err != nil {
		t.Fatal(err)
	}
	putAll(t, boxes, "three")
	w.leads = []int{0, 0, 2}
	putAll(t, boxes, "known")
	if n, lead := boxes.At(1).Waiting(), boxes.For(1); n != 4 || lead.Box != boxes.At(0) {
		t.Errorf("%d messages wait in the second outbox, want those that were put before the cluster was known", n)
	}
	w.leads = []int{0, 1, 2} // its key has changed, and the others do not know that yet
	putAll(t, boxes, "again")
	for _, i := range []int{1, 0, 2} {
		drain(t, boxes.At(i))
	}
	if got := strings.Join(s.has, " "); got != `"start" "one" "two" "three" "again" "return" "known"` {
		t.Errorf("the cluster has %s", got)
	}
	if got := strings.Join(other.has, " "); got != `"start" "one" "two" "three" "known" "again"` {
		t.Errorf("the master that is not of the cluster has %s", got)
	}
}

// TestAMessageThatOneOutboxLacks: one that is full gets a message when it has made space. No later message of the
// other outbox makes the cluster take it for a duplicate.
func TestAMessageThatOneOutboxLacks(t *testing.T) {
	s, a, b := members()
	boxes, _ := openBoxes(t, a, b)
	putAll(t, boxes, "one")
	full := fired(strings.Repeat("x", 1<<20-4<<10))
	if err := boxes.At(1).Put(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("y", 8<<10)
	putAll(t, boxes, large, "two")
	drain(t, boxes.At(1))
	drain(t, boxes.At(0))
	s.check(t, large, "two")
}

// check checks that these messages are stored once.
func (s *system) check(t *testing.T, texts ...string) {
	t.Helper()
	count := map[string]int{}
	for _, body := range s.has {
		count[body]++
	}
	wrong := map[int]int{}
	for _, text := range texts {
		if n := count[fmt.Sprintf("%q", text)]; n != 1 {
			wrong[n]++
		}
	}
	for _, n := range slices.Sorted(maps.Keys(wrong)) {
		t.Errorf("%d of %d messages are stored %d times", wrong[n], len(texts), n)
	}
}

// TestAFullOutboxOfACluster: while one of several masters is away, its outbox is filled again and again. When they prove
// to be one cluster, it recognises all that waits there.
func TestAFullOutboxOfACluster(t *testing.T) {
	for _, masters := range []int{2, 3} {
		t.Run(fmt.Sprint(masters), func(t *testing.T) {
			s, a, away := members()
			c := &member{taking: new(taking), of: s}
			boxes, w := openBoxes(t, []Master{a, nil, c}[:masters]...)
			boxes.At(1).limit = SmallBatch
			var texts []string
			for i := range 700 {
				texts = append(texts, fmt.Sprintf("%04d", i)+strings.Repeat("x", 300))
				putAll(t, boxes, texts[i])
				drain(t, boxes.At(0))
				if masters > 2 {
					drain(t, boxes.At(2))
				}
			}
			if lost, waiting := boxes.At(1).Lost(), boxes.At(1).Waiting(); lost == 0 || waiting == 0 {
				t.Errorf("the outbox of the absent master has lost %d messages, and %d wait", lost, waiting)
			}
			w.leads, w.masters[1] = []int{0, 0, 0}, away
			drain(t, boxes.At(1))
			s.check(t, texts...)
		})
	}
}

// TestAMessageThatOneOutboxCannotStore: the next one for the same outboxes is of another epoch, in which none is lacking.
func TestAMessageThatOneOutboxCannotStore(t *testing.T) {
	_, a, b := members()
	boxes, _ := openBoxes(t, a, b)
	putAll(t, boxes, "one")
	boxes.At(1).dir = filepath.Join(t.TempDir(), "missing") // for its large messages
	if err := boxes.Put(t.Context(), fired(strings.Repeat("x", maxInline+1))); err == nil {
		t.Fatal("a large message is stored without a directory")
	}
	for _, of := range boxes.latest {
		t.Errorf("the epoch of a message that one outbox lacks goes on after number %d", of.n)
	}
	putAll(t, boxes, "two")
}

// TestMessagesThatOneOutboxHas: however many come that one of the outboxes has already, the others are recognised.
func TestMessagesThatOneOutboxHas(t *testing.T) {
	s, a, b := members()
	boxes, w := openBoxes(t, a, b, &member{taking: new(taking), of: s})
	var texts []string
	for i := range 2 * maxMarks {
		again := fired("again")
		again.ID = fmt.Sprint(i)
		if err := boxes.At(1).Put(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		if err := boxes.Put(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		texts = append(texts, fmt.Sprint("text ", i))
		putAll(t, boxes, texts[i])
	}
	w.leads = []int{0, 0, 0}
	for i := range 3 {
		drain(t, boxes.At(i))
	}
	s.check(t, texts...)
}

// TestAnyMemberIsDeliveredTo: all outboxes of a system are delivered to one of its masters, and to another one when that
// is gone or stores nothing.
func TestAnyMemberIsDeliveredTo(t *testing.T) {
	s, a, b := members()
	boxes, w := openBoxes(t, nil, b)
	w.leads = []int{0, 0}
	if got := boxes.At(0).master(""); got != Master(b) {
		t.Errorf("while the first one is away the messages for it go to %v", got)
	}
	w.masters[0] = a
	if got := boxes.At(1).master(""); got != Master(b) {
		t.Errorf("another one is used although that one is still connected: %v", got)
	}
	putAll(t, boxes, "one")
	b.full = true
	if _, err := boxes.At(0).turn(t.Context()); err == nil {
		t.Fatal("nothing has failed")
	}
	drain(t, boxes.At(0))
	if got := strings.Join(s.has, " "); got != `"one"` || boxes.At(1).master("") != Master(a) {
		t.Errorf("the cluster has %s", got)
	}
	w.masters[0], w.masters[1] = nil, nil
	if got := boxes.At(0).master(""); got != nil {
		t.Errorf("nobody is connected, and %v is used", got)
	}
}

// TestMembersStoreAMessageOfSeveralOutboxesOnce: so it is with real members, to which the outboxes are delivered at the
// same time.
func TestMembersStoreAMessageOfSeveralOutboxesOnce(t *testing.T) {
	t.Parallel()
	all, key := startKeepers(t), bustest.Key(t)
	boxes, _ := openBoxes(t, session{all[0].connect(t, "web1", key)}, session{all[1].connect(t, "web1", key)})
	for i := range 20 {
		out := Outgoing{Op: "ret.20260101000000000000", Body: i}
		if err := boxes.Put(t.Context(), out); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var draining sync.WaitGroup
	for i := range 2 {
		draining.Go(func() { boxes.At(i).Drain(ctx) })
	}
	bustest.Until(t, "all are delivered", func() bool { return boxes.At(0).Waiting()+boxes.At(1).Waiting() == 0 })
	cancel()
	draining.Wait()
	if got := all[2].stored(t, "web1"); len(got) != 20 {
		t.Errorf("20 messages are stored as %v", got)
	}
}

// TestASlowMasterDelaysNoOther: while a full outbox waits for the answer to its oldest messages, the others have a message
// before it has space.
func TestASlowMasterDelaysNoOther(t *testing.T) {
	_, a, b := members()
	boxes, _ := openBoxes(t, a, b)
	full := boxes.At(1)
	if err := full.Put(t.Context(), fired(strings.Repeat("x", int(full.limit)-4<<10))); err != nil {
		t.Fatal(err)
	}
	full.head.Lock() // as while it is delivered
	unlock := sync.OnceFunc(full.head.Unlock)
	defer unlock()
	put := make(chan error, 1)
	go func() { put <- boxes.Put(t.Context(), fired(strings.Repeat("y", 8<<10))) }()
	begun := time.Now()
	bustest.Until(t, "the other outbox has it", func() bool { return boxes.At(0).Waiting() > 0 })
	if took := time.Since(begun); took >= answerTime {
		t.Errorf("the other outbox has it after %s", took)
	}
	unlock()
	if err := deadline.Receive(t, put, "there is space"); err != nil || full.Waiting() != 1 {
		t.Errorf("the full outbox has %d messages: %v", full.Waiting(), err)
	}
}

// TestTheOthersGetWhatWaitsForAFormerMember: one that has left its system gets nothing of what is in its outbox, also not what is put there
// later for the system; the others do.
func TestTheOthersGetWhatWaitsForAFormerMember(t *testing.T) {
	s, b, c := members()
	former, a, _ := members()
	boxes, w := openBoxes(t, a, nil, nil)
	w.leads, w.masters[0] = []int{0, 0, 0}, nil
	putAll(t, boxes, "one")
	w.left, w.masters = map[int]bool{0: true}, []Master{a, b, c} // it is connected nevertheless
	putAll(t, boxes, "two")
	if err := boxes.For(0).Put(t.Context(), fired("return")); err != nil {
		t.Fatal(err)
	}
	drain(t, boxes.At(0))
	if got := strings.Join(s.has, " "); got != `"one" "two" "return"` || len(former.has) > 0 {
		t.Errorf("the cluster has %s, the former member %s", got, former.has)
	}
}

// TestAMasterInPlaceOfAFormerMember: another master at the address of a member gets what is put for it, and nothing of what was put
// before for the cluster, nor a return that was to be put then.
func TestAMasterInPlaceOfAFormerMember(t *testing.T) {
	s, b, _ := members()
	alone, a, _ := members()
	boxes, w := openBoxes(t, nil, nil, nil)
	w.leads = []int{0, 0, 0}
	putAll(t, boxes, "one")
	before := boxes.For(0)
	w.leads, w.generations, w.heir, w.masters[0] = []int{0, 1, 1}, []string{"second", "", ""}, 1, a
	putAll(t, boxes, "two")
	if err := before.Put(t.Context(), fired("return")); err != nil {
		t.Fatal(err)
	}
	if err := boxes.Since(0, "").Put(t.Context(), fired("later")); err != nil {
		t.Fatal(err)
	}
	if named := boxes.Named(boxes.For(0).Name()); named != boxes.For(0) || boxes.Named(before.Name()) != boxes.For(1) {
		t.Errorf("the destinations are %q and %q", named.Name(), boxes.Named(before.Name()).Name())
	}
	if more, err := boxes.At(0).turn(t.Context()); more || err != nil || len(alone.has) > 0 {
		t.Errorf("what is for the cluster goes to another master: %s, %v", alone.has, err)
	}
	w.masters[1] = b
	drain(t, boxes.At(0))
	drain(t, boxes.At(1))
	if got := strings.Join(alone.has, " "); got != `"two"` {
		t.Errorf("the new master has %s", got)
	}
	s.check(t, "one", "two", "return", "later")
	if len(s.has) != 4 {
		t.Errorf("the cluster has %s", s.has)
	}
}

// TestNothingIsKnownOfAGeneration: if the file with it is lost, what was put in it is for whoever is at that address now.
func TestNothingIsKnownOfAGeneration(t *testing.T) {
	alone, a, _ := members()
	boxes, w := openBoxes(t, a, nil)
	w.generations = []string{"second", ""}
	putAll(t, boxes, "one")
	w.generations = nil
	drain(t, boxes.At(0))
	alone.check(t, "one")
}
