package eventbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/clustertest"
	"github.com/brinebus/brine/test/deadline"
)

// memberWorld is the event bus of a member of a cluster.
type memberWorld struct {
	*world
	m       *bustest.Member
	member  *Member
	journal *journal.Journal
	end     func() // everything of it but the broker, in good order
}

// startCluster starts the event buses of three members.
func startCluster(t testing.TB) (*bustest.System, []*memberWorld) {
	t.Helper()
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	list := make([]*memberWorld, 3)
	for i, m := range s.Members {
		list[i] = startMember(t, m)
	}
	for _, w := range list {
		bustest.Until(t, w.m.Name+" knows the others", func() bool { return len(w.member.opts.Others()) == 2 && len(w.events.Mirrors()) == 2 })
	}
	return s, list
}

func startMember(t testing.TB, m *bustest.Member) *memberWorld {
	t.Helper()
	j, x := clustertest.Journal(t, m), clustertest.Exchange(t, m)
	w := &memberWorld{m: m, journal: j, world: &world{t: t, bus: m.Bus, events: New(j, limit, m.Log), user: &atomic.Pointer[string]{}, after: &atomic.Pointer[func()]{}}}
	var err error
	if w.member, err = w.events.Join(clustertest.Starting(t), MemberOptions{Name: m.Name, Others: x.Others}); err != nil {
		t.Fatal(m.Name, err)
	}
	who := func(_ context.Context, i bus.Identity) eventacl.Principal {
		if name := w.user.Load(); name != nil {
			return w.events.Rules().User(i.UID(), *name, false)
		}
		return w.events.Rules().User(i.UID(), "root", true)
	}
	w.events.Register(m.Server, who)
	w.events.RegisterFire(m.Server, who)
	if err := m.Server.Start(); err != nil {
		t.Fatal(err)
	}
	run, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.member.Run(run) }()
	server := m.Server
	w.end = sync.OnceFunc(func() {
		server.Stop()
		stop()
		deadline.Receive(t, done, "the member "+m.Name)
		x.Stop()
		j.Close()
	})
	t.Cleanup(w.end)
	return w
}

// kill ends the member as kill -9 does. What is left of it in this process no longer reaches
// anything.
func (w *memberWorld) kill() {
	w.m.Kill(w.t)
	w.end()
}

// heard reads events until n have come, and returns their tags. It confirms each.
func (w *memberWorld) heard(c *rpc.Conn, q protocol.Listen, n int) []string {
	w.t.Helper()
	q.Mirrors = true
	h := w.mustListen(c, q)
	return h.take(c, q.Durable, n)
}

// take reads n events, and confirms each one under the name of the position, if there is one.
func (h *hearing) take(c *rpc.Conn, durable string, n int) (tags []string) {
	h.w.t.Helper()
	at, seq := event.Position{}, h.ready.Start-1
	for name, start := range h.ready.At {
		at[name] = start - 1
	}
	for len(tags) < n {
		line, err := h.line()
		if err != nil {
			h.w.t.Fatalf("after %d of %d events: %v", len(tags), n, err)
		}
		var e event.Event
		if err := json.Unmarshal(line, &e); err != nil {
			h.w.t.Fatal(err)
		}
		if master := event.MasterOf(line); master != "" {
			at.Pass(master, e.Seq)
		} else {
			seq = e.Seq
		}
		tags = append(tags, e.Tag)
	}
	if durable != "" {
		if err := c.Ask(h.w.bounded(), protocol.OpConfirm, protocol.Confirm{Durable: durable, Seq: seq, At: at}, nil); err != nil {
			h.w.t.Fatal("confirm: ", err)
		}
	}
	return tags
}

// line returns the text of the next event.
func (h *hearing) line() ([]byte, error) {
	for {
		for len(h.left) == 0 {
			b, err := h.stream.Next(h.w.bounded())
			if err != nil {
				return nil, err
			}
			h.left = b
		}
		line, rest, _ := strings.Cut(string(h.left), "\n")
		h.left = []byte(rest)
		if !strings.HasPrefix(line, `{"passed":`) {
			return []byte(line), nil
		}
		if strings.Contains(line, `"end":true`) {
			return nil, io.EOF
		}
	}
}

// tagsOf are the tags that one member has fired, in their order.
func tagsOf(member string, tags []string) []string {
	return slices.DeleteFunc(slices.Clone(tags), func(tag string) bool { return !strings.HasPrefix(tag, member+"/") })
}

// numbered are the tags from the first to the last number of a member.
func numbered(member string, first, last int) (tags []string) {
	for n := first; n <= last; n++ {
		tags = append(tags, fmt.Sprintf("%s/%d", member, n))
	}
	return tags
}

// TestListenersHearAllMembers: a listener at any member hears what is fired at all of them, also
// what is stored in the journal of one that was killed; a token of one member is one of all.
func TestListenersHearAllMembers(t *testing.T) {
	t.Parallel()
	_, list := startCluster(t)
	var conns []*rpc.Conn
	for _, w := range list {
		conns = append(conns, w.dial())
	}
	var token protocol.End
	if err := conns[0].Ask(list[0].bounded(), protocol.OpEnd, nil, &token); err != nil || len(token.At) != 3 {
		t.Fatalf("the end is %v, %v", token, err)
	}
	first := func() (names string) {
		for _, w := range list {
			if first, _ := w.member.First(t.Context()); first {
				names += w.m.Name
			}
		}
		return names
	}
	bustest.Until(t, "m1 alone does what is done by time", func() bool { return first() == "m1" })
	live := list[2].mustListen(conns[2], protocol.Listen{Mirrors: true})
	for i, w := range list {
		w.mustFire(conns[i], numbered(w.m.Name, 1, 5)...)
	}
	check := func(what string, tags []string) {
		t.Helper()
		for _, w := range list {
			if got := tagsOf(w.m.Name, tags); !slices.Equal(got, numbered(w.m.Name, 1, 5)) {
				t.Errorf("%s: of %s it has %q", what, w.m.Name, got)
			}
		}
	}
	check("a listener at m3", live.take(conns[2], "", 15))
	for i, w := range list {
		check("stored, at "+w.m.Name, w.heard(w.dial(), protocol.Listen{FromSeq: 1, UntilEnd: true}, 15))
		after := event.Position{}
		for name, seq := range token.At {
			after[name] = seq + 1
		}
		check("after the token, at "+w.m.Name, w.heard(w.dial(), protocol.Listen{At: after, UntilEnd: true}, 15))
		if got := w.heard(w.dial(), protocol.Listen{Members: true, FromSeq: 1, UntilEnd: true}, 15); i == 0 {
			check("as a member's", got)
		}
	}
	latency(t, list[0], conns[0], live)
	if err := conns[1].Ask(list[1].bounded(), protocol.OpEnd, nil, &token); err != nil { // it remembers the answer
		t.Fatal(err)
	}
	killed := list[0]
	killed.kill()
	begun := time.Now()
	if err := conns[1].Ask(list[1].bounded(), protocol.OpEnd, nil, &token); err != nil || token.At["m1"] < 5 {
		t.Errorf("the end is %v while nobody leads the journal of m1: %v", token, err)
	}
	if took := time.Since(begun); took > 4*briefTime {
		t.Errorf("a member that has lost another one takes %s to answer, and so does not seem to serve", took)
	}
	bustest.Until(t, "m1 counts as gone", func() bool { return !list[1].member.runs("m1") })
	list = list[1:]
	bustest.Until(t, "m2 alone does what is done by time", func() bool { return first() == "m2" })
	list = slices.Insert(list, 0, killed)
	tags := list[1].heard(list[1].dial(), protocol.Listen{FromSeq: 1, UntilEnd: true, Tags: []string{"m1/", "m2/", "m3/"}}, 15)
	check("after m1 was killed", tags)
	list[1].mustFire(conns[1], "m2/6")
	if got := live.take(conns[2], "", 1); !slices.Equal(got, []string{"m2/6"}) {
		t.Errorf("after m1 was killed, a present listener hears %q", got)
	}
}

// latency measures how long an event of one member takes to a listener at another.
func latency(t *testing.T, w *memberWorld, c *rpc.Conn, h *hearing) {
	t.Helper()
	var times []time.Duration
	for n := range 50 {
		begun := time.Now()
		w.mustFire(c, fmt.Sprintf("latency/%d", n))
		h.take(c, "", 1)
		times = append(times, time.Since(begun))
	}
	slices.Sort(times)
	t.Logf("from the fire at m1 to the listener at m3: %s in the median, %s at most", times[len(times)/2], times[len(times)-1])
	if times[len(times)/2] > time.Second {
		t.Errorf("half of the events take longer than %s", times[len(times)/2])
	}
}

// TestADurableListenerMovesBetweenMembers: a listener that was at one member continues at another
// one: it misses nothing and gets nothing twice, in the order of each sender, also when the member
// where it was is killed. Two members do not have it at the same time.
func TestADurableListenerMovesBetweenMembers(t *testing.T) {
	t.Parallel()
	_, list := startCluster(t)
	m1, m2, m3 := list[0], list[1], list[2]
	fire := func(first, last int, at ...*memberWorld) {
		t.Helper()
		for _, w := range at {
			c := w.dial()
			w.mustFire(c, numbered(w.m.Name, first, last)...)
			c.Close()
		}
	}
	q := protocol.Listen{Durable: "d", Mirrors: true}
	var heard []string
	c := m1.dial()
	h := m1.mustListen(c, q)
	fire(1, 5, list...)
	heard = append(heard, h.take(c, "d", 15)...)
	other := m2.dial()
	if _, err := m2.listen(other, q); rpc.CodeOf(err) != rpc.Busy {
		t.Errorf("a second listener of the name, at another member: %v", err)
	}
	c.Close()
	fire(6, 10, list...)
	c = m2.dial()
	heard = append(heard, m2.mustListen(c, q).take(c, "d", 15)...)
	fire(11, 15, list...)
	m2.kill()
	c.Close()
	fire(16, 20, m1, m3)
	begun := time.Now()
	c = m3.dial()
	h = m3.mustListen(c, q)
	t.Logf("after a kill the position was free after %s", time.Since(begun))
	heard = append(heard, h.take(c, "d", 25)...)
	fire(21, 21, m1, m3)
	heard = append(heard, h.take(c, "d", 2)...)
	for name, last := range map[string]int{"m1": 21, "m2": 15, "m3": 21} {
		if got := tagsOf(name, heard); !slices.Equal(got, numbered(name, 1, last)) {
			t.Errorf("of %s it has heard %q", name, got)
		}
	}
	if len(heard) != 57 {
		t.Errorf("%d events: %q", len(heard), heard)
	}
}

// TestAListenerAheadOfTheJournalWaits: where a journal seems to be shorter than what the listener has read of it,
// since the server that answers lacks the newest events, the listener does not get all of that journal once
// more, at the member of the journal and at another one.
func TestAListenerAheadOfTheJournalWaits(t *testing.T) {
	t.Parallel()
	_, list := startCluster(t)
	m1 := list[0]
	c := m1.dial()
	for i, at := range list[:2] {
		last := m1.mustFire(c, numbered("m1", 8*i+1, 8*i+5)...)
		listening := make(chan *hearing, 1)
		go func() {
			h, err := at.listen(at.dial(), protocol.Listen{Mirrors: true, Resume: true, At: event.Position{"m1": last + 3}})
			if err != nil {
				t.Error(err)
			}
			listening <- h
		}()
		select {
		case <-listening:
			t.Fatalf("at %s it begins before the events are there that it has read", at.m.Name)
		case <-time.After(time.Second):
		}
		m1.mustFire(c, numbered("m1", 8*i+6, 8*i+8)...)
		h := deadline.Receive(t, listening, "the listener begins")
		if got := h.take(c, "", 1); got[0] != fmt.Sprintf("m1/%d", 8*i+8) {
			t.Errorf("at %s it begins with %q", at.m.Name, got)
		}
	}
}

// TestTheJournalOfANewMemberIsNotLeftOut: what a member shows right after another one has joined has the
// events of that one, too, though it looks for new journals only every few seconds.
func TestTheJournalOfANewMemberIsNotLeftOut(t *testing.T) {
	t.Parallel()
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	first := startMember(t, s.Members[0])
	joined := startMember(t, s.Members[1])
	bustest.Until(t, "it is seen", func() bool { return slices.Contains(first.member.opts.Others(), joined.m.Name) })
	if _, err := joined.journal.Append(clustertest.Starting(t), event.Event{Tag: "of/m2", Data: json.RawMessage("{}")}, ""); err != nil {
		t.Fatal(err)
	}
	if got := first.heard(first.dial(), protocol.Listen{FromSeq: 1, UntilEnd: true}, 1); got[0] != "of/m2" {
		t.Errorf("heard is %q", got)
	}
}

// TestADeadLetterOfAUserIsTakenAtOneMember: what a program handles again at one member, another one
// leaves alone. If that member is killed, the dead letter is still there, and can be taken elsewhere.
func TestADeadLetterOfAUserIsTakenAtOneMember(t *testing.T) {
	t.Parallel()
	_, list := startCluster(t)
	m1, m2 := list[0], list[1]
	c1, c2 := m1.dial(), m2.dial()
	letter := protocol.DeadLetter{Name: "hands", Seq: 7, Journal: "m1", Tag: "t", Event: json.RawMessage(`{"n":0}`)}
	if err := c1.Ask(m1.bounded(), protocol.OpDead, protocol.Dead{Do: protocol.DeadPut, Letter: &letter}, nil); err != nil {
		t.Fatal(err)
	}
	known := func() bool {
		m2.events.dead.mu.Lock()
		defer m2.events.dead.mu.Unlock()
		return len(m2.events.dead.known) == 1
	}
	bustest.Until(t, "m2 knows it", known)
	if l, err := m1.takeLetter(c1, letter); err != nil || l == nil {
		t.Fatal(l, err)
	}
	if l, err := m2.takeLetter(c2, letter); rpc.CodeOf(err) != rpc.Busy {
		t.Errorf("taken by m2 while m1 has it: %v, %v", l, err)
	}
	m1.kill()
	bustest.Until(t, "m2 takes it after the kill of m1", func() bool { l, err := m2.takeLetter(c2, letter); return err == nil && l != nil })
	if err := m2.endLetter(c2, letter, protocol.DeadHandled); err != nil {
		t.Error(err)
	}
	bustest.Until(t, "it is gone", func() bool { return !known() })
}

// TestDeadLettersThatGaveWayStayAway: a member hears late of what it has stored and dropped itself. What it has dropped
// does not count again, so the limit holds, and each dead letter that gives way is one that is there.
func TestDeadLettersThatGaveWayStayAway(t *testing.T) {
	t.Parallel()
	_, list := startCluster(t)
	m1, m2 := list[0], list[1]
	const more = 100
	for n := range maxOfSender + more {
		if err := m1.events.dead.Add(m1.bounded(), &protocol.DeadLetter{Name: "deploy", Seq: uint64(n + 1), Journal: "m1", From: "eve"}); err != nil {
			t.Fatal(err)
		}
	}
	if got := m1.events.dead.gaveWay.Load(); got != more {
		t.Errorf("%d gave way, want %d", got, more)
	}
	for _, w := range list {
		bustest.Until(t, w.m.Name+" knows of all", func() bool {
			w.events.dead.mu.Lock()
			defer w.events.dead.mu.Unlock()
			_, first := w.events.dead.known[letterKey(daemonOwner, "deploy", "m1", more)]
			_, last := w.events.dead.known[letterKey(daemonOwner, "deploy", "m1", maxOfSender+more)]
			return !first && last
		})
		letters, err := w.events.dead.List(w.bounded(), "deploy", 0)
		if err != nil || len(letters) != maxOfSender {
			t.Errorf("%s has %d dead letters, want %d: %v", w.m.Name, len(letters), maxOfSender, err)
		}
	}
	m2.events.dead.mu.Lock()
	defer m2.events.dead.mu.Unlock()
	if n := len(m2.events.dead.known); n != maxOfSender {
		t.Errorf("m2 counts %d dead letters, want %d", n, maxOfSender)
	}
}

// TestWhatIsHeardLateOfDeadLetters: what a member hears of a dead letter that it has stored anew or dropped since changes
// nothing; what others have done after that counts.
func TestWhatIsHeardLateOfDeadLetters(t *testing.T) {
	t.Parallel()
	w := start(t)
	joined(t, w.events)
	dead := w.events.dead
	close(dead.synced) // nobody watches here but this test
	letter := protocol.DeadLetter{Name: "deploy", Seq: 7, Journal: "m1", From: "eve"}
	key, value := letterKey(daemonOwner, "deploy", "m1", 7), []byte(`{"name":"deploy","seq":7,"journal":"m1","from":"eve"}`)
	check := func(when string, want bool, hear journal.TableEntry) {
		t.Helper()
		hear.Key = key
		dead.learn(&hear)
		if _, known := dead.known[key]; known != want {
			t.Errorf("%s: known is %t, want %t", when, known, want)
		}
	}
	add := func() uint64 {
		t.Helper()
		if err := dead.Add(t.Context(), &letter); err != nil {
			t.Fatal(err)
		}
		return dead.known[key].revision
	}
	first := add()
	if err := dead.forget(t.Context(), daemonOwner, letter); err != nil {
		t.Fatal(err)
	}
	check("stored before it was dropped here", false, journal.TableEntry{Value: value, Revision: first})
	second := add()
	check("dropped before it was stored again", true, journal.TableEntry{Revision: second - 1})
	check("stored by this member", true, journal.TableEntry{Value: value, Revision: second})
	if len(dead.dropped) > 0 {
		t.Errorf("%v are remembered as dropped", dead.dropped)
	}
	check("dropped by another member", false, journal.TableEntry{Revision: second + 1})
	check("stored by another member", true, journal.TableEntry{Value: value, Revision: second + 2})
}

// TestListenersOfAMemberShareAReader: however many listeners a member has, it reads the journal of another
// one once for all of them. Each hears everything in order, with long events between short ones, and what was
// stored while it was behind.
func TestListenersOfAMemberShareAReader(t *testing.T) {
	t.Parallel()
	const listeners, rounds = 6, 3
	_, list := startCluster(t)
	from, at := list[0], list[1]
	c := from.dial()
	from.mustFire(c, "m1/0")
	readers := func() int {
		t.Helper()
		e, err := from.journal.Extent(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return e.Readers
	}
	before := readers()
	all, conns := make([]*hearing, listeners), make([]*rpc.Conn, listeners)
	for i := range all {
		conns[i] = at.dial()
		all[i] = at.mustListen(conns[i], protocol.Listen{Members: true, Lines: true, Tags: []string{"m1/"}})
	}
	long := json.RawMessage(`"` + strings.Repeat("y", 3<<20) + `"`)
	for round := range rounds {
		from.mustFire(c, numbered("m1", 4*round+1, 4*round+3)...)
		if _, err := from.fire(c, event.Item{Tag: fmt.Sprintf("m1/%d", 4*round+4), Data: long}); err != nil {
			t.Fatal(err)
		}
		if round > 0 {
			continue
		}
		for i, h := range all {
			if got, want := h.take(c, "", 4), numbered("m1", 1, 4); !slices.Equal(got, want) {
				t.Errorf("listener %d hears %q", i, got)
			}
		}
		bustest.Until(t, "one of them reads for all", func() bool { return readers() <= before+1 })
	}
	for i, h := range all {
		if got, want := h.take(c, "", 4*(rounds-1)), numbered("m1", 5, 4*rounds); !slices.Equal(got, want) {
			t.Errorf("listener %d hears %q", i, got)
		}
	}
	for _, one := range conns {
		one.Close()
	}
	bustest.Until(t, "nobody reads", func() bool {
		at.events.windows.mu.Lock()
		defer at.events.windows.mu.Unlock()
		return len(at.events.windows.of) == 0 && readers() <= before
	})
}

// TestAWindowBeginsAtTheEnd: a listener who is far behind does not delay the others, and one whose position is beyond
// the end does not make them skip anything: what all share begins where the journal ends.
func TestAWindowBeginsAtTheEnd(t *testing.T) {
	t.Parallel()
	_, list := startCluster(t)
	from, at := list[0], list[1]
	last := from.mustFire(from.dial(), numbered("m1", 1, 100)...)
	mirrors := at.events.Mirrors()
	mirror := mirrors[slices.IndexFunc(mirrors, func(m *journal.Mirror) bool { return m.Name == "m1" })]
	window, leave, err := at.events.windows.join(t.Context(), mirror, at.m.Log)
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	if begin, _ := window.span(); begin != last+1 {
		t.Errorf("it begins at %d, and the journal ends at %d", begin, last)
	}
	l := &listener{events: at.events, req: &rpc.Request{}, q: protocol.Listen{Tags: []string{"nobody/"}}}
	if l.match, err = event.NewMatcher(event.StartsWith, l.q.Tags); err != nil {
		t.Fatal(err)
	}
	m, p := newMirrored(l, 0), &part{l: l, mirror: mirror, next: 3, passed: last}
	if err := m.read(t.Context(), p, &tail{from: 1_000_000, next: 1_000_000}); !errors.Is(err, errShort) || p.next != last+1 {
		t.Errorf("of a window beyond the end: %v, and the listener goes on at %d", err, p.next)
	}
}

// TestCostlyPatternsEndAListenerOfAllJournals: a listener whose pattern takes too long for an event of another
// member is ended with that reason. It does not go on without the event.
func TestCostlyPatternsEndAListenerOfAllJournals(t *testing.T) {
	t.Parallel()
	_, list := startCluster(t)
	from, at := list[0], list[1]
	c := from.dial()
	tags := make([]string, 400)
	for i := range tags {
		tags[i] = fmt.Sprintf("a/%s/%d!", strings.Repeat("a", 16), i)
	}
	q := protocol.Listen{Members: true, Lines: true, Match: event.Regex, Tags: []string{`a/(?=(a+)+$)x`}}
	fresh := at.mustListen(at.dial(), q)
	from.mustFire(c, tags...)
	q.FromSeq = 1
	for what, h := range map[string]*hearing{"of new events": fresh, "of stored events": at.mustListen(at.dial(), q)} {
		if line, err := h.line(); rpc.CodeOf(err) != rpc.Usage {
			t.Errorf("a costly listener %s gets %q, %v", what, line, err)
		}
	}
}

// TestAUserLearnsThatEventsWaitForAnElection: another member leads the journal of one, as it does for some seconds after
// that was started, and is killed. Who fires an event at that moment is told what it waits for, and gets the result when
// there is a new leader; who has not asked for that gets the result alone.
func TestAUserLearnsThatEventsWaitForAnElection(t *testing.T) {
	t.Parallel()
	_, list := startCluster(t)
	alive, leads := list[1], list[0].m.Name
	stream := journal.Place{Kind: journal.EventsKind, Member: alive.m.Name}.Stream()
	leader := func() string {
		var info struct{ Cluster struct{ Leader string } }
		m, err := alive.m.Conn().Request("$JS.API.STREAM.INFO."+stream, nil, time.Second)
		if err != nil || json.Unmarshal(m.Data, &info) != nil {
			return ""
		}
		return info.Cluster.Leader
	}
	bustest.Until(t, alive.m.Name+" leads its journal", func() bool { return leader() == alive.m.Name })
	alive.journal.Yield()
	bustest.Until(t, leads+" leads it", func() bool { // the server may choose another one than the preferred one, or none
		at := leader()
		if at != "" && at != leads {
			_, _ = alive.m.Conn().Request("$JS.API.STREAM.LEADER.STEPDOWN."+stream, []byte(`{"placement": {"preferred": "`+leads+`"}}`), 5*time.Second)
		}
		return at == leads
	})
	plain, informed := alive.dial(), alive.dial()
	list[0].kill()
	answer := make(chan error, 1)
	go func() {
		var fired protocol.Fired
		err := plain.Ask(alive.bounded(), protocol.OpFire, protocol.FireOne("", "some/tag", nil), &fired)
		if err == nil && (fired.Waiting != "" || fired.Outcome != protocol.Stored) {
			err = fmt.Errorf("the first answer is %+v", fired)
		}
		answer <- err
	}()
	q := protocol.FireOne("", "some/tag", nil)
	q.Waiting = true
	s, err := informed.Call(protocol.OpFire, q)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var told, fired protocol.Fired
	if err := s.Decode(alive.bounded(), &told); err != nil || told.Waiting != protocol.Electing || told.Outcome != "" {
		t.Errorf("the user is told %+v, %v", told, err)
	}
	if err := s.Decode(alive.bounded(), &fired); err != nil || fired.Outcome != protocol.Stored || fired.Waiting != "" || fired.Seq == 0 {
		t.Errorf("the event in the election: %+v, %v", fired, err)
	}
	if err := deadline.Receive(t, answer, "the result of the other event"); err != nil {
		t.Error("a user who has not asked what it waits for: ", err)
	}
}

// TestWhatCannotBeReadIsNotZero: where no leader answers, the figures of the journals of others and their handlers are
// not known, which is not the same as none.
func TestWhatCannotBeReadIsNotZero(t *testing.T) {
	t.Parallel()
	_, list := startCluster(t)
	at := list[0]
	bustest.Until(t, "all is known", func() bool {
		by, unknown := at.member.handler(t.Context(), "m1")
		all := at.events.mirrorStats(t.Context())
		return by == "m1" && !unknown && len(all) == 2 && !slices.ContainsFunc(all, func(s protocol.MirrorStat) bool { return s.Unread || s.HandlerUnknown || s.Handler == "" })
	})
	nobody, end := context.WithCancel(t.Context())
	end()
	if by, unknown := at.member.handler(nobody, "m1"); by != "" || !unknown {
		t.Errorf("the own journal is handled by %q, unknown: %t", by, unknown)
	}
	all := at.events.mirrorStats(nobody)
	if len(all) != 2 {
		t.Fatalf("there are %v", all)
	}
	for _, s := range all {
		if !s.Unread || !s.HandlerUnknown {
			t.Errorf("%+v", s)
		}
	}
}
