package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/cluster"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/mine"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
	"github.com/brinebus/brine/test/bustest"
)

// noJobs implements Jobs for a member without jobs.
type noJobs struct{ Jobs }

func (noJobs) Back(salt.MinionID, string) {}
func (noJobs) Lost(salt.MinionID)         {}

// lines is a log that tests can read while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// count returns how many lines have a word.
func (l *lines) count(word string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), word)
}

// connectedMember is a member that tells the others of its minions, and fetches what they know of theirs.
func connectedMember(t *testing.T, m *bustest.Member) (*Fleet, *lines) {
	t.Helper()
	f, log := openFleet(t, m), &lines{}
	e := &Elsewhere{Fleet: f, Jobs: noJobs{}, Log: slog.New(slog.NewTextHandler(log, nil))}
	x := cluster.New(cluster.Options{Name: m.Name, Conn: m.Conn(), Minions: e, Heartbeat: 400 * time.Millisecond, Log: m.Log})
	e.Ask, e.Others, f.Members = x.Ask, x.Others, x
	e.Serve(x.Handle)
	if err := x.Start(); err != nil {
		t.Fatal(err)
	}
	life, end := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { e.Run(life) })
	wg.Go(func() { f.mine.follow(life, m.Log) })
	wg.Go(func() { f.grains.follow(life, m.Log) })
	t.Cleanup(func() { end(); wg.Wait(); x.Stop() })
	return f, log
}

// joined implements Members: it gets what the others are told of a connected minion.
type joined func(cluster.Minion)

func (j joined) Joined(m cluster.Minion) { j(m) }
func (joined) Left(salt.MinionID)        {}

// TestOneKeyAtTwoMembers: when a minion connects to a member by another process than that which is connected to
// another one, the older connection is cut, and nothing else.
func TestOneKeyAtTwoMembers(t *testing.T) {
	t.Parallel()
	const id = salt.MinionID("web1")
	nothing := func(*Fleet) any { return map[string]any{} }
	b, _ := lonelyMember(nothing)
	a, e := lonelyMember(nothing)
	log, cut := &lines{}, 0
	e.Log = slog.New(slog.NewTextHandler(log, nil))
	e.Cut = func(inbox string) {
		if inbox != a.heldHere(id).inbox {
			t.Errorf("the connection %s is cut", inbox)
		}
		cut++
	}
	// connect returns what the other members are told of a connection of this process.
	connect := func(f *Fleet, process string) (told cluster.Minion) {
		f.Members = joined(func(m cluster.Minion) { told = m })
		f.Join(id, inboxRoot+process, true)
		f.tellMembers(id, held{key: "key", process: process, source: "192.0.2." + process, inbox: inboxRoot + process, since: time.Now()})
		return told
	}
	e.Came("m2", connect(b, "1"))
	connect(a, "1")
	e.Came("m2", connect(b, "1"))                    // it is connected to both
	e.Came("m2", cluster.Minion{ID: id, Key: "key"}) // an older member does not say
	e.Came("m2", cluster.Minion{ID: "web2", Key: "key", Process: "9"})
	if cut != 0 || log.count("two machines") != 0 {
		t.Fatalf("%d connections are cut without need", cut)
	}
	for i := range 10 {
		e.Came("m2", connect(b, fmt.Sprint("twin", i)))
	}
	if cut != 10 {
		t.Errorf("%d of 10 older connections are cut", cut)
	}
	if n := log.count("two machines share its key"); n == 0 || n > maxLines {
		t.Errorf("%d lines about it", n)
	}
	if n := log.count("remote=192.0.2.twin"); n == 0 {
		t.Error("the address of the newer connection is not logged")
	}
	if n := log.count("older_remote=192.0.2.1"); n == 0 {
		t.Error("the address of the older connection is not logged")
	}
	older := connect(b, "4")
	e.Came("m2", older)
	connect(a, "1")
	e.Came("m2", older) // it says so again, of a connection that it cuts itself
	if cut != 11 {
		t.Errorf("the younger connection is cut since the other member says again what it has")
	}
	e.Came("m2", connect(b, cluster.NoProcess)) // a twin that does not say hides nothing
	a.Leave(id, inboxRoot+"1", time.Now())
	a.tellMembers(id, held{})
	e.Came("m2", connect(b, "3"))
	if cut != 12 {
		t.Errorf("%d connections are cut, want 12", cut)
	}
}

// TestMembersKnowTheSame: what one member accepts of a minion, the others accept too, also if it is as large
// as it may be and consists of characters that some encoders of JSON make longer. What is too large for the
// others is logged a few times, however often it changes.
func TestMembersKnowTheSame(t *testing.T) {
	t.Parallel()
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	a, _ := connectedMember(t, s.Members[0])
	b, log := connectedMember(t, s.Members[1])
	const id = salt.MinionID("web1")
	a.Join(id, inboxRoot+"1", true)
	a.tellMembers(id, held{key: "key", process: "1"})
	bustest.Until(t, "the minion is known", func() bool { ready, _ := b.Connected(id); return ready })
	for _, c := range []string{"x", "<", ">", "&", "\u2028"} {
		if err := a.grains.store(t.Context(), id, map[string]any{"motd": repeated(c, 250<<10)}); err != nil {
			t.Fatal(err)
		}
		a.pillars.set(id, map[string]any{"motd": repeated(c, 850<<10)})
		if err := a.mine.change(t.Context(), id, mine.Change{Clear: true, Put: map[string]mine.Entry{"motd": {Data: value.Value{V: repeated(c, 120<<10)}, Allow: "web<&>*"}}}); err != nil {
			t.Fatal(err)
		}
		a.tellMembers(id, held{})
		bustest.Until(t, fmt.Sprintf("many %q are known at the other member", c), func() bool {
			return b.grains.sum(id) == a.grains.sum(id) && b.pillars.sum(id) == a.pillars.sum(id) && bytes.Equal(b.mine.of(id)["motd"].Data, a.mine.of(id)["motd"].Data)
		})
	}
	if n := log.count("not known here"); n > 0 {
		t.Errorf("%d facts were not known", n)
	}
	for i := range 20 {
		a.pillars.set(id, map[string]any{"n": int64(i), "motd": strings.Repeat("x", 950<<10)})
		if err := a.grains.store(t.Context(), id, map[string]any{"n": int64(i)}); err != nil {
			t.Fatal(err)
		}
		a.tellMembers(id, held{})
		bustest.Until(t, "the grains are known at the other member", func() bool { return b.grains.sum(id) == a.grains.sum(id) })
	}
	bustest.Until(t, "the loss is logged", func() bool { return log.count("not known here") > 0 })
	if n := log.count("not known here"); n > maxLines {
		t.Errorf("%d lines about one minion", n)
	}
}

// repeated returns that many bytes, as JSON has them without the escapes that nothing demands.
func repeated(c string, size int) string {
	text, _ := value.Encode(c)
	return strings.Repeat(c, size/(len(text)-2))
}

// TestFactsOfAnOlderMember: it sends the same with escapes, and is understood. What is too large is refused in
// either form, and so is what has too many values.
func TestFactsOfAnOlderMember(t *testing.T) {
	f := &Fleet{grains: &grains{byID: map[salt.MinionID]fact{}}}
	escaped := func(size int) []byte {
		b, err := json.Marshal(map[string]any{"motd": strings.Repeat("<", size)})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if err := f.learn("web1", ofGrains, escaped(140<<10), 0); err != nil {
		t.Error(err)
	}
	if motd, _ := f.grains.of("web1")["motd"].(string); len(motd) != 140<<10 {
		t.Errorf("%d bytes of the grain are known", len(motd))
	}
	for name, text := range map[string][]byte{
		"escaped": escaped(maxGrains + 1),
		"long":    []byte(`{"motd":"` + strings.Repeat("<", maxGrains) + `"}`),
		"many":    []byte(`{"motd":[` + strings.Repeat("0,", maxGrainItems) + `0]}`),
	} {
		if err := f.learn("web1", ofGrains, text, 0); rpc.CodeOf(err) != rpc.Usage {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// lonelyMember is a member without a journal, that asks others through ask.
func lonelyMember(ask func(f *Fleet) any) (*Fleet, *Elsewhere) {
	f := &Fleet{Options: Options{Keys: noKeys{}, Members: others{}}, Presence: newPresence(), gone: make(chan struct{}, 1)}
	f.grains = &grains{byID: map[salt.MinionID]fact{}, later: newLaterGrains(), void: newDeletions(nil), deferred: map[salt.MinionID]journal.TableEntry{}, places: f.places}
	e := &Elsewhere{Fleet: f, Jobs: noJobs{}, Log: slog.New(slog.DiscardHandler)}
	e.Ask = func(_ context.Context, _, _ string, _, answer any) error {
		b, err := value.Encode(ask(f))
		*answer.(*json.RawMessage) = b
		return err
	}
	e.Serve(func(string, func(context.Context, string, []byte) (any, error)) {})
	return f, e
}

// A minion moves to another member, and its old connection ends after it has told that one its facts:
// they count here, too. If it comes back, what it says here counts.
func TestFactsOfAMinionThatMoves(t *testing.T) {
	was, is := map[string]any{"role": "web"}, map[string]any{"role": "db"}
	text, err := value.Encode(is)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{}, 10)
	f, e := lonelyMember(func(*Fleet) any { asked <- struct{}{}; return is })
	a := &Arrivals{Fleet: f, Jobs: &nobodysJobs{}, Log: slog.New(slog.DiscardHandler)}
	here := bus.Identity{Role: bus.RoleMinion, Name: "web1", Nonce: "n"}
	f.Join("web1", here.Inbox(), false)
	f.pillars.set("web1", was)
	e.Came("b", cluster.Minion{ID: "web1", Pillar: checksum(text)})
	if n := len(e.take()); n > 0 {
		t.Errorf("%d facts of a minion that is connected here are asked for", n)
	}
	ctx, end := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() { end(); wg.Wait() })
	a.Gone(here)
	if len(f.gone) == 0 {
		t.Error("nobody hears that it is not connected here any more")
	}
	wg.Go(func() { e.Run(ctx) })
	bustest.Until(t, "the pillar is known", func() bool { return f.pillars.of("web1")["role"] == "db" })
	if n := len(asked); n != 1 {
		t.Errorf("the other member was asked %d times", n)
	}
	end()
	wg.Wait()
	f.Join("web1", here.Inbox(), false)
	e.Came("b", cluster.Minion{ID: "web1", Pillar: "another"})
	e.Went("b", "web1")
	f.Join("web1", placeAt("c"), false)
	f.Leave("web1", here.Inbox(), time.Now())
	if n := len(e.take()); n > 0 {
		t.Errorf("%d facts are asked for that were those before it came here", n)
	}
}

// A minion says hello here while another member is asked for what it has said before.
func TestAHelloOvertakesAnAnswer(t *testing.T) {
	was, is := map[string]any{"role": "web"}, map[string]any{"role": "db"}
	f, e := lonelyMember(func(f *Fleet) any {
		f.Join("web1", inboxRoot+"1", false)
		f.pillars.set("web1", is)
		return was
	})
	f.Join("web1", placeAt("b"), false)
	if err := e.fetch(t.Context(), wanted{"web1", ofPillar}, due{"b", "sum"}); err != nil {
		t.Fatal(err)
	}
	if role := f.pillars.of("web1")["role"]; role != "db" {
		t.Errorf("it has the role %v", role)
	}
}

// A minion tells its grains here, and its pillar is compiled, while another member is asked and before it is
// connected here: a hello waits until the grains are stored.
func TestAnAnswerComesDuringAHello(t *testing.T) {
	is := map[string]any{"role": "db"}
	noWait, cancel := context.WithCancel(t.Context())
	cancel()
	for name, known := range map[string]map[string]any{"others": {"role": "web"}, "the same again": is} {
		f, e := lonelyMember(func(f *Fleet) any {
			if err := f.grains.store(noWait, "web1", is); err != nil {
				t.Error(err)
			}
			f.pillars.set("web1", is)
			return map[string]any{"role": "old"}
		})
		f.Join("web1", placeAt("b"), false)
		for _, fact := range []string{ofGrains, ofPillar} {
			text, err := value.Encode(known)
			if err == nil {
				err = f.learn("web1", fact, text, f.lastUpdate("web1", fact))
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := e.fetch(t.Context(), wanted{"web1", fact}, due{"b", "sum"}); !errors.Is(err, errUpdated) {
				t.Errorf("%s: %s that came too late: %v", name, fact, err)
			}
			if role := map[string]map[string]any{ofGrains: f.grains.of("web1"), ofPillar: f.pillars.of("web1")}[fact]["role"]; role != "db" {
				t.Errorf("%s: it has the role %v by its %s", name, role, fact)
			}
		}
		if name == "others" && len(f.grains.later.take()) != 1 {
			t.Error("what it has told is not stored")
		}
	}
}

// TestAnAnswerDuringAnOldHello: what a minion has told here while another member was asked may come from before
// it has moved there. That member is asked again.
func TestAnAnswerDuringAnOldHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		is := map[string]any{"role": "db"}
		text, err := value.Encode(is)
		if err != nil {
			t.Fatal(err)
		}
		log, asked := &lines{}, 0
		f, e := lonelyMember(func(f *Fleet) any {
			if asked++; asked == 1 {
				f.pillars.set("web1", map[string]any{"role": "old"})
			}
			return is
		})
		e.Log = slog.New(slog.NewTextHandler(log, nil))
		ctx, end := context.WithCancel(t.Context())
		go e.Run(ctx)
		e.Came("b", cluster.Minion{ID: "web1", Pillar: checksum(text)})
		time.Sleep(time.Minute)
		synctest.Wait()
		if role := f.pillars.of("web1")["role"]; role != "db" || asked != 2 {
			t.Errorf("it has the role %v after %d questions", role, asked)
		}
		if n := log.count("not known here"); n > 0 {
			t.Errorf("%d lines about it", n)
		}
		end()
		synctest.Wait()
	})
}

// TestAPillarIsForgottenAtAllMembers: a target does not match by it anywhere, until the minion has requested it again.
func TestAPillarIsForgottenAtAllMembers(t *testing.T) {
	t.Parallel()
	s := bustest.StartSystem(t, 3)
	s.Leader(t)
	var fleets []*Fleet
	for _, m := range s.Members {
		f, _ := connectedMember(t, m)
		fleets = append(fleets, f)
	}
	a, b := fleets[0], fleets[1]
	same := func(what string, id salt.MinionID, role any) {
		t.Helper()
		bustest.Until(t, what, func() bool {
			return !slices.ContainsFunc(fleets, func(f *Fleet) bool { return f.pillars.of(id)["role"] != role })
		})
	}
	compiled := func(id salt.MinionID) {
		t.Helper()
		b.pillars.set(id, map[string]any{"role": "front"})
		b.tellMembers(id, held{})
		same("all know it", id, "front")
	}
	for _, id := range []salt.MinionID{"web1", "web2"} {
		b.Join(id, inboxRoot+string(id), true)
		b.tellMembers(id, held{key: "key", process: "1"})
		compiled(id)
	}
	b.Leave("web2", inboxRoot+"web2", time.Now())
	b.tellMembers("web2", held{})
	for range 2 {
		if err := a.DropPillar(t.Context(), "web1"); err != nil {
			t.Fatal(err)
		}
		same("all have forgotten it", "web1", nil)
		compiled("web1")
	}
	same("that of another minion is known", "web2", "front")
	if err := a.DropPillar(t.Context(), "web2"); err != nil {
		t.Fatal(err)
	}
	same("that of a minion that is away is forgotten, too", "web2", nil)
}

// TestAPillarIsForgottenMeanwhile: a member that was cut off, or has fetched the pillar just before, hears from the
// member that the minion is connected to that it was forgotten.
func TestAPillarIsForgottenMeanwhile(t *testing.T) {
	old := map[string]any{"role": "old"}
	text, err := value.Encode(old)
	if err != nil {
		t.Fatal(err)
	}
	gone := cluster.Minion{ID: "web1", NoPillar: true}
	f, e := lonelyMember(func(*Fleet) any { return old })
	e.Came("b", cluster.Minion{ID: "web1", Pillar: checksum(text)})
	for q, d := range e.take() {
		if err := e.fetch(t.Context(), q, d); err != nil || f.pillars.of("web1") == nil {
			t.Fatalf("it is not known: %v", err)
		}
	}
	e.Came("b", gone)
	if data := f.pillars.of("web1"); data != nil {
		t.Errorf("it is %v", data)
	}
	ask := e.Ask
	e.Ask = func(ctx context.Context, member, kind string, body, answer any) error {
		err := ask(ctx, member, kind, body, answer)
		e.Came("b", gone)
		return err
	}
	e.Came("b", cluster.Minion{ID: "web1", Pillar: checksum(text)})
	for q, d := range e.take() {
		if err := e.fetch(t.Context(), q, d); !errors.Is(err, errUpdated) || f.pillars.of("web1") != nil {
			t.Errorf("it is %v: %v", f.pillars.of("web1"), err)
		}
	}
	f.Join("web1", inboxRoot+"1", true)
	f.pillars.set("web1", old)
	e.Came("b", gone)
	if f.pillars.of("web1") == nil {
		t.Error("what was compiled for its connection here is forgotten")
	}
}

// TestAPillarOfNobodyIsNotForgotten: a member that names minions without end, of whom nothing is known here, leaves
// nothing.
func TestAPillarOfNobodyIsNotForgotten(t *testing.T) {
	f, e := lonelyMember(func(*Fleet) any { return map[string]any{} })
	f.pillars.byID, f.pillars.updates = map[salt.MinionID]map[string]any{}, map[salt.MinionID]uint64{}
	var forget func(context.Context, string, []byte) (any, error)
	e.Serve(func(kind string, h func(context.Context, string, []byte) (any, error)) {
		if kind == kindClear {
			forget = h
		}
	})
	f.Join("web1", inboxRoot+"1", true)
	for _, id := range []string{"web1", "web2", "no/id"} {
		if _, err := forget(t.Context(), "m2", []byte(`{"id":"`+id+`","fact":"pillar"}`)); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	if !f.pillars.cleared("web1") || len(f.pillars.updates) != 1 {
		t.Errorf("forgotten are %v", f.pillars.updates)
	}
}
