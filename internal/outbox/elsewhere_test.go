package outbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/authz/decision"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/cluster"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
)

// keeper is the part of a member that stores what outboxes of minions send.
type keeper struct {
	*Receiver
	bus      *bustest.Member
	exchange *cluster.Exchange
	peers    []*journal.Mirror
}

// plain implements Returns, TagSpaces and cluster.Minions: each return is one event.
type plain struct{}

func (plain) Quick(salt.JID, int) bool { return true }
func (plain) Awaits(context.Context, salt.MinionID, salt.JID, bool) (bool, bool) {
	return false, false
}
func (plain) WithoutQuorum() error                  { return nil }
func (plain) Show(salt.MinionID, salt.JID, Message) {}
func (plain) Arrived(context.Context, salt.MinionID, []salt.JID) func() {
	return func() {}
}
func (plain) ReadReturn(_ context.Context, from salt.MinionID, jid salt.JID, m Message) (Record, error) {
	e, err := event.NewValid("salt/job/"+string(jid)+"/ret/"+string(from), []byte(m.Body), string(from), time.Now())
	return Record{Events: []event.Event{e}, After: func(*journal.Pending) {}}, err
}
func (plain) StoreEarly(context.Context, salt.MinionID, salt.JID, Message, uint64) error {
	return errors.New("nobody waits for it")
}
func (plain) LocalReturnEvent(context.Context, salt.MinionID, protocol.LocalReturn) (e event.Event, err error) {
	return e, rpc.Errorf(rpc.Usage, "there are none")
}
func (plain) MinionFire(salt.MinionID, ...string) (d decision.Decision) { return d }
func (plain) Came(string, cluster.Minion)                               {}
func (plain) Went(string, salt.MinionID)                                {}

// startKeepers starts three members of one cluster.
func startKeepers(t *testing.T) (all []*keeper) {
	t.Helper()
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	ctx, cancel := context.WithTimeout(journal.Starting(t.Context()), 2*time.Minute)
	defer cancel()
	for _, m := range s.Members {
		all = append(all, startKeeper(ctx, t, m))
	}
	for _, k := range all {
		var err error
		if k.peers, err = journal.Peers(ctx, k.bus.Conn(), k.bus.Name, nil); err != nil {
			t.Fatal(err)
		}
		bustest.Until(t, k.bus.Name+" knows the others", func() bool { return len(k.exchange.Others()) == 2 })
	}
	return all
}

func startKeeper(ctx context.Context, t *testing.T, m *bustest.Member) *keeper {
	t.Helper()
	j, err := journal.Open(ctx, m.Conn(), journal.Options{Store: m.Store(), Copies: 3, Name: m.Name, Server: m.Name, Names: filepath.Join(m.Dir, "names")})
	if err != nil {
		t.Fatal(m.Name, err)
	}
	t.Cleanup(j.Close)
	k := &keeper{bus: m, exchange: cluster.New(cluster.Options{Name: m.Name, Conn: m.Conn(), Minions: plain{}, Heartbeat: 400 * time.Millisecond, Log: m.Log})}
	k.Receiver, err = NewReceiver(ctx, ReceiverOptions{
		Journal: j, Returns: plain{}, TagSpaces: plain{}, Durable: func() error { return nil }, Log: m.Log,
		Elsewhere: &Members{Exchange: k.exchange, Journal: j, Journals: func() []*journal.Mirror { return k.peers }},
	})
	if err != nil {
		t.Fatal(m.Name, err)
	}
	var table bus.Endpoints
	for _, e := range bus.MasterEndpoints {
		if e.Handler == "deliver" || e.Handler == "early" {
			table = append(table, e)
		}
	}
	s := rpc.NewServer(m.Conn(), m.Owner, table, m.Log)
	s.Handle("deliver", k.Deliver)
	s.Handle("early", k.Early)
	s.HandleBatches("deliver", k.DeliverEach)
	k.ServeMembers(k.exchange.Handle)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if err := k.exchange.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Stop(); k.exchange.Stop() })
	return k
}

func (k *keeper) connect(t *testing.T, id string, key *pki.PrivateKey) *rpc.Conn {
	t.Helper()
	k.bus.Accept(salt.MinionID(id), key)
	c, err := k.bus.Dial(bustest.Claim{ID: id, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return rpc.NewConn(c.Conn, c.Self)
}

// deliver sends messages of an outbox.
func deliver(t *testing.T, over *rpc.Conn, numbers ...uint64) error {
	t.Helper()
	return deliverOf(t, "e", over, numbers...)
}

// deliverOf sends messages of one epoch.
func deliverOf(t *testing.T, epoch string, over *rpc.Conn, numbers ...uint64) error {
	t.Helper()
	var q Batch
	for _, n := range numbers {
		q.Messages = append(q.Messages, Message{Epoch: epoch, N: n, Op: "ret.20260101000000000000", Body: fmt.Appendf(nil, "%d", n)})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return over.Ask(ctx, OpDeliver, q, nil)
}

// deliverAgain sends them again until they are stored, as a minion does.
func deliverAgain(t *testing.T, over *rpc.Conn, numbers ...uint64) {
	t.Helper()
	bustest.Until(t, "the messages are stored", func() bool {
		err := deliver(t, over, numbers...)
		if refused := (*rpc.Error)(nil); errors.As(err, &refused) && refused.Permanent() {
			t.Fatal(err)
		}
		return err == nil
	})
}

// stored returns the messages of a minion in all journals, from their names: a mark behind them
// shows that all have come, whichever copy is read.
func (k *keeper) stored(t *testing.T, id string) (list []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(journal.Starting(t.Context()), time.Minute)
	defer cancel()
	add := func(_ uint64, name string, _ int) {
		if minion, _, n, ok := parseMessageName(name); ok && string(minion) == id {
			list = append(list, strconv.FormatUint(n, 10))
		}
	}
	err := k.Journal.Names(ctx, 1, k.Journal.Stored(), add)
	for _, p := range k.peers {
		var behind journal.Ended
		bustest.Until(t, "the journal of "+p.Name+" has a mark", func() bool {
			e, err := p.EndTerm(ctx, journal.Ended{})
			behind = e
			return err == nil
		})
		err = errors.Join(err, p.Names(ctx, 1, behind.Mark, add))
	}
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

func (k *keeper) check(t *testing.T, id string, want ...string) {
	t.Helper()
	if got := k.stored(t, id); !slices.Equal(got, want) {
		t.Errorf("of %s is stored %v, want %v", id, got, want)
	}
}

// TestAMessageIsStoredByOneMember: a minion whose messages were not confirmed sends them again to
// another member, and what it sent to the first one may come even later.
func TestAMessageIsStoredByOneMember(t *testing.T) {
	all, key := startKeepers(t), bustest.Key(t)
	first, second := all[0].connect(t, "web1", key), all[1].connect(t, "web1", key)
	for _, step := range []struct {
		over    *rpc.Conn
		numbers []uint64
	}{{first, []uint64{1, 2}}, {second, []uint64{1, 2, 3}}, {first, []uint64{2, 3, 4}}, {second, []uint64{3, 4}}} {
		if err := deliver(t, step.over, step.numbers...); err != nil {
			t.Fatal(err)
		}
	}
	all[2].check(t, "web1", "1", "2", "3", "4")
}

// TestTheNewestEpochsAreKnownElsewhere: each start of a minion begins an epoch, and a member knows the newest ones of the
// others, however many there were, and whoever it was that stored them.
func TestTheNewestEpochsAreKnownElsewhere(t *testing.T) {
	all, key := startKeepers(t), bustest.Key(t)
	for n := range uint64(2*maxMarks + 6) {
		for range 2 { // the second time as by a minion that had no answer before it was killed
			over := all[rand.N(len(all))].connect(t, "web1", key)
			if err := deliverOf(t, fmt.Sprint("e", n), over, n); err != nil {
				t.Fatal(err)
			}
			over.Close()
		}
	}
	seen := map[string]int{}
	for _, n := range all[0].stored(t, "web1") {
		if seen[n]++; seen[n] > 1 {
			t.Errorf("the message of start %s is stored %d times", n, seen[n])
		}
	}
	if len(seen) != 2*maxMarks+6 {
		t.Errorf("%d messages are stored, want %d", len(seen), 2*maxMarks+6)
	}
}

// TestManyFormerMembers: however many members there were, the latest epochs of each count.
func TestManyFormerMembers(t *testing.T) {
	all := make([][]Watermark, 20)
	for i := range all {
		for n := range maxMarks {
			all[i] = append(all[i], Watermark{Epoch: fmt.Sprint(i, " ", n), N: 1})
		}
	}
	all[7] = append(all[7], Watermark{Epoch: "0 63", N: 2})
	marks := latest(all)
	for i := range all {
		for n := maxMarks - maxEpochs; n < maxMarks; n++ {
			if one := (Watermark{Epoch: fmt.Sprint(i, " ", n), N: 1}); !covers(marks, one) {
				t.Errorf("%v is not known", one)
			}
		}
	}
	if !covers(marks, all[7][maxMarks]) {
		t.Error("of an epoch that two members have stored only the beginning is known")
	}
}

// TestTwoMembersAtOnce: of two members that get the same messages at the same moment, one stores
// them.
func TestTwoMembersAtOnce(t *testing.T) {
	all, key := startKeepers(t), bustest.Key(t)
	const rounds = 20
	for n := range uint64(rounds) {
		errs := make(chan error, len(all))
		for _, k := range all {
			over := k.connect(t, "web1", key)
			go func() { errs <- deliver(t, over, n+1) }()
		}
		for range all {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := all[0].stored(t, "web1"); len(got) != rounds {
		t.Errorf("%d messages are stored, want %d: %v", len(got), rounds, got)
	}
}

// meanwhile does something once, after another member was asked.
type meanwhile struct {
	Elsewhere
	once sync.Once
	do   func()
}

func (m *meanwhile) Stored(ctx context.Context, id salt.MinionID) ([]Watermark, error) {
	marks, err := m.Elsewhere.Stored(ctx, id)
	m.once.Do(m.do)
	return marks, err
}

// TestQuestionsLeaveNothing: a member that asks for ever new minions, as whoever has stolen its key can,
// does not fill the memory of the others.
func TestQuestionsLeaveNothing(t *testing.T) {
	t.Parallel()
	keepers := startKeepers(t)
	asked := keepers[0]
	before := len(asked.watermarks.senders)
	for n := range 100 {
		marks := []Watermark{{}}
		err := keepers[1].exchange.Ask(t.Context(), asked.bus.Name, kindStored, question{salt.MinionID(fmt.Sprint("m", n))}, &marks)
		if err != nil || len(marks) != 0 {
			t.Fatalf("%d marks, %v", len(marks), err)
		}
	}
	asked.watermarks.mu.Lock()
	defer asked.watermarks.mu.Unlock()
	if n := len(asked.watermarks.senders); n != before {
		t.Errorf("it keeps something for %d minions", n)
	}
}

// counting counts how many questions a member has under way at another one.
type counting struct {
	Exchange
	mu        sync.Mutex
	now, most map[string]int
}

func (c *counting) add(member string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now[member] += n
	c.most[member] = max(c.most[member], c.now[member])
}

func (c *counting) Ask(ctx context.Context, member, kind string, body, answer any) error {
	c.add(member, 1)
	defer c.add(member, -1)
	return c.Exchange.Ask(ctx, member, kind, body, answer)
}

// begun is plain that counts the requests that have begun.
type begun struct {
	plain
	n atomic.Int64
}

func (b *begun) WithoutQuorum() error { b.n.Add(1); return nil }

// TestOneMinionAsksOnce: while a member stores for a minion, many requests of that minion to another
// member cause one question. A member that asks more nevertheless is refused.
func TestOneMinionAsksOnce(t *testing.T) {
	all, key := startKeepers(t), bustest.Key(t)
	first, second := all[0], all[1]
	asked := &counting{Exchange: second.exchange, now: map[string]int{}, most: map[string]int{}}
	second.Elsewhere.(*Members).Exchange = asked
	requests := &begun{}
	second.Returns = requests
	storing := first.watermarks.begin("web1")
	over := second.connect(t, "web1", key)
	const many = 40
	errs := make(chan error, many)
	for range many {
		go func() { errs <- deliver(t, over, 1) }()
	}
	bustest.Until(t, "they have begun", func() bool { return requests.n.Load() >= many })
	storing.end()
	for range many {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	asked.mu.Lock()
	if n := asked.most[first.bus.Name]; n != 1 {
		t.Errorf("%d questions about one minion at a time", n)
	}
	asked.mu.Unlock()
	all[2].check(t, "web1", "1")

	storing = first.watermarks.begin("web1")
	answers := make(chan error, maxAsked+3)
	for range cap(answers) {
		go func() {
			answers <- second.exchange.Ask(t.Context(), first.bus.Name, kindStored, question{"web1"}, nil)
		}()
	}
	for range 3 {
		if err := <-answers; rpc.CodeOf(err) != rpc.Busy {
			t.Errorf("more questions than may wait: %v", err)
		}
	}
	storing.end()
	for range maxAsked {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
}

// TestAnAnswerIsOutOfDateWhenAsked: a member that has asked is asked itself before it knows.
func TestAnAnswerIsOutOfDateWhenAsked(t *testing.T) {
	all, key := startKeepers(t), bustest.Key(t)
	first := all[0].connect(t, "web1", key)
	all[1].Elsewhere = &meanwhile{Elsewhere: all[1].Elsewhere, do: func() {
		if err := deliver(t, first, 1); err != nil {
			t.Error(err)
		}
	}}
	if err := deliver(t, all[1].connect(t, "web1", key), 1); err != nil {
		t.Fatal(err)
	}
	all[2].check(t, "web1", "1")
}

// TestWhatAKilledMemberHasStored: a part of it is in its checkpoint, the rest only in its journal.
func TestWhatAKilledMemberHasStored(t *testing.T) {
	all, key := startKeepers(t), bustest.Key(t)
	over := all[0].connect(t, "web1", key)
	if err := deliver(t, over, 1, 2); err != nil {
		t.Fatal(err)
	}
	if err := deliver(t, all[0].connect(t, "old", key), 1); err != nil {
		t.Fatal(err)
	}
	if err := all[0].watermarks.checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := deliver(t, over, 3, 4); err != nil {
		t.Fatal(err)
	}
	all[0].bus.Kill(t)
	deliverAgain(t, all[1].connect(t, "web1", key), 2, 3, 4, 5)
	all[1].check(t, "web1", "1", "2", "3", "4", "5")
	deliverAgain(t, all[2].connect(t, "old", key), 1)
	all[2].check(t, "old", "1")
}

// TestWhatCannotBeKnownIsNotStored: another member does not tell what it has stored.
func TestWhatCannotBeKnownIsNotStored(t *testing.T) {
	all, key := startKeepers(t), bustest.Key(t)
	storing := all[0].watermarks.begin("web1")
	over := all[1].connect(t, "web1", key)
	if err := deliver(t, over, 1); rpc.CodeOf(err) != rpc.Unavailable {
		t.Errorf("a message that may be stored elsewhere: %v", err)
	}
	all[1].check(t, "web1")
	storing.end()
	if err := deliver(t, over, 1); err != nil {
		t.Fatal(err)
	}
	all[1].check(t, "web1", "1")
}

// TestWhatIsInDoubtIsLookedUp: a member did not hear in time whether it has stored a message.
func TestWhatIsInDoubtIsLookedUp(t *testing.T) {
	all, key := startKeepers(t), bustest.Key(t)
	first := all[0].watermarks.begin("web1")
	e, err := event.NewValid("a/b", []byte("1"), "web1", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	in := &incoming{Message: Message{Epoch: "e", N: 1}, Record: Record{Events: []event.Event{e}}}
	if err := in.begin(all[0].Journal, "web1", first); err != nil {
		t.Fatal(err)
	}
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := in.wait(late, first); err == nil {
		t.Fatal("it was heard in no time")
	}
	first.end()
	if err := deliver(t, all[1].connect(t, "web1", key), 1, 2); err != nil {
		t.Fatal(err)
	}
	all[1].check(t, "web1", "1", "2")
}

// lead waits until each of these members leads its journal: if the first one is killed, what it may have
// stored is known after an election, and another one that stores waits for none.
func lead(t *testing.T, all ...*keeper) {
	t.Helper()
	for _, k := range all {
		bustest.Until(t, k.bus.Name+" leads its journal", func() bool {
			leader, err := k.Journal.Leader(t.Context())
			return err == nil && leader == k.bus.Name
		})
	}
}

// waiting is plain where every return is one of a job that this member follows.
type waiting struct{ plain }

func (waiting) Awaits(context.Context, salt.MinionID, salt.JID, bool) (bool, bool) { return true, true }

// TestAnAwaitedReturnWaitsForNobody: after a member was killed, the return of a job that another one
// follows is stored at once, although nobody knows yet what the killed one has stored; the messages
// after it are stored once, and when that is known.
func TestAnAwaitedReturnWaitsForNobody(t *testing.T) {
	all, key := startKeepers(t), bustest.Key(t)
	k := all[1]
	lead(t, all[:2]...)
	all[0].bus.Kill(t)
	bustest.Until(t, "the others know", func() bool { return len(k.exchange.Others()) == 1 })
	over := k.connect(t, "web1", key)
	k.Returns = waiting{}
	begun := time.Now()
	if err := deliver(t, over, 1); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 2*time.Second { // a moment; an election takes four seconds at least
		t.Errorf("it is stored after %s", took)
	}
	k.Returns = plain{}
	bustest.Until(t, "the rest is stored", func() bool { return deliver(t, over, 1, 2) == nil })
	k.check(t, "web1", "1", "2")
}

// awaiting is plain where this member follows one job.
type awaiting struct {
	plain
	*keeper
	jid salt.JID
}

func earlyName(id salt.MinionID, jid salt.JID) string { return string(id) + "/ret:" + string(jid) }

func (a awaiting) Awaits(_ context.Context, _ salt.MinionID, jid salt.JID, ask bool) (awaits, here bool) {
	here = jid == a.jid && !ask // a batch with it is not stored at once
	return here, here
}

func (a awaiting) ReadReturn(ctx context.Context, id salt.MinionID, jid salt.JID, m Message) (Record, error) {
	r, err := a.plain.ReadReturn(ctx, id, jid, m)
	r.Also = earlyName(id, jid)
	return r, err
}

func (a awaiting) StoreEarly(ctx context.Context, id salt.MinionID, jid salt.JID, m Message, term uint64) error {
	r, err := a.ReadReturn(ctx, id, jid, m)
	if err != nil {
		return err
	}
	p, err := a.Journal.BeginAll(journal.Single(r.Events[0], r.Also, term))
	if err == nil {
		_, err = p.Wait(ctx)
	}
	return err
}

// TestAReturnIsStoredEarly: after a member was killed, nobody knows yet what it has stored of the outbox
// of a minion. The return of a job that another one follows is stored at once, although it is behind
// messages that wait for that, and all is stored once. Nothing else is stored early.
func TestAReturnIsStoredEarly(t *testing.T) {
	all, key := startKeepers(t), bustest.Key(t)
	k := all[1]
	lead(t, all[:2]...)
	jid := salt.JID("20260101000000000002")
	k.Returns = awaiting{keeper: k, jid: jid}
	messages := []Message{
		{Epoch: "e", N: 1, Op: "ret.20260101000000000001", Body: []byte("1")},
		{Epoch: "e", N: 2, Op: "ret." + string(jid), Body: []byte("2")},
		{Epoch: "e", N: 3, Op: "ret.20260101000000000003", Body: []byte("3")},
	}
	over := k.connect(t, "web1", key)
	send := func(op string, body any) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return over.Ask(ctx, op, body, nil)
	}
	if err := send(OpEarly, messages[1]); rpc.CodeOf(err) != rpc.Unavailable {
		t.Errorf("in front of nothing that waits: %v", err)
	}
	all[0].bus.Kill(t)
	bustest.Until(t, "the others know", func() bool { return len(k.exchange.Others()) == 1 })
	begun, done := time.Now(), make(chan struct{})
	go func() {
		defer close(done)
		bustest.Until(t, "all is stored", func() bool { return send(OpDeliver, Batch{Messages: messages}) == nil })
	}()
	bustest.Until(t, "the messages wait", func() bool { return k.watermarks.waits("web1") })
	if err := send(OpEarly, messages[1]); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 2*time.Second { // a moment; an election takes four seconds at least
		t.Errorf("it is stored after %s", took)
	}
	k.holds(t, "2")
	for m, want := range map[*Message]rpc.Code{
		&messages[0]: rpc.NotFound, &messages[2]: rpc.NotFound, {Epoch: "e", N: 4, Op: protocol.OpFire, Body: []byte("{}")}: rpc.Usage, {N: 2, Op: messages[1].Op}: rpc.Usage,
	} {
		if err := send(OpEarly, *m); rpc.CodeOf(err) != want {
			t.Errorf("%s: %v, want %s", m.Op, err, want)
		}
	}
	<-done
	k.holds(t, "2", "1", "3")
	k.check(t, "web1", "1", "3") // by their names as messages of the outbox
}

// holds checks the data of all returns in the own journal.
func (k *keeper) holds(t *testing.T, want ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []string
	err := k.Journal.Read(ctx, journal.Query{}, func(e event.Event) error {
		if strings.HasPrefix(e.Tag, "salt/job/") {
			got = append(got, string(e.Data))
		}
		return nil
	})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("the returns %v are stored, want %v: %v", got, want, err)
	}
}

// TestWhatAnIsolatedMemberWasStoring: a member had a message under way when it was cut off. The minion
// sent it again to another member, which stored it. When the first member is back, it stores neither
// that message nor what it still receives of the minion.
func TestWhatAnIsolatedMemberWasStoring(t *testing.T) {
	all, key := startKeepers(t), bustest.Key(t)
	first := all[0].connect(t, "web1", key)
	if err := deliver(t, first, 1); err != nil {
		t.Fatal(err)
	}
	s := all[0].bus.System
	s.Isolate(t, all[0].bus)
	late := make(chan error, 1)
	go func() { late <- deliver(t, first, 2, 3) }()
	bustest.Until(t, "the messages are under way", func() bool { return all[0].watermarks.isBusy("web1") })
	deliverAgain(t, all[1].connect(t, "web1", key), 1, 2, 3)
	s.Rejoin(all[0].bus)
	if err := <-late; err == nil {
		t.Error("the member that was cut off has confirmed messages that another one has stored")
	}
	deliverAgain(t, first, 2, 3, 4)
	all[2].check(t, "web1", "1", "2", "3", "4")
}

// isBusy reports whether messages of a minion are being stored.
func (w *watermarks) isBusy(id salt.MinionID) bool {
	s := w.sender(id)
	w.mu.Lock()
	defer w.mu.Unlock()
	return s.busy
}
