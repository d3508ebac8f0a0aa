package eventbus

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/semaphore"
	"github.com/brinebus/brine/test/bustest"
)

// TestTextsOfAMirrorAreLookedAt: a message that is not an event on one line is skipped before
// anything checks whether the listener wants it, and its reader continues after it.
func TestTextsOfAMirrorAreLookedAt(t *testing.T) {
	l := &listener{q: protocol.Listen{}}
	var err error
	if l.match, err = event.NewMatcher(event.Fnmatch, []string{"nobody/hears"}); err != nil {
		t.Fatal(err)
	}
	m, p := &mirrored{of: l}, &part{l: l}
	for seq, text := range map[uint64]string{
		1: `{"tag":"app/1","from":"web1","data":{}}` + "\n" + `{"tag":"salt/auth","from":"master","data":{}}`,
		2: `{"tag":"app/1","from":"web1","data":{}`,
		3: `no event`,
	} {
		p.next, l.judged = seq, event.Head{}
		if err := m.hear(t.Context(), p, journal.Text{Seq: seq, Body: []byte(text)}); err != nil {
			t.Errorf("%q ends the reading: %v", text, err)
		}
		if l.judged != (event.Head{}) {
			t.Errorf("%q was asked for", text)
		}
		if p.next != seq+1 {
			t.Errorf("after %q it goes on at %d", text, p.next)
		}
	}
	p.next = 9
	if err := m.hear(t.Context(), p, journal.Text{Seq: 9, Body: []byte(`{"tag":"app/1","from":"web1","data":{}}`)}); err != nil || l.judged.Tag != "app/1" {
		t.Errorf("an event was not asked for: %v, %v", l.judged, err)
	}
}

// TestAJournalThatCannotBeReadIsNoEnd: a listener who wants what is stored in all journals is not told that this
// was everything if one of them could not be read.
func TestAJournalThatCannotBeReadIsNoEnd(t *testing.T) {
	b := bustest.StartStore(t)
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	js, err := jetstream.New(b.Conn())
	if err != nil {
		t.Fatal(err)
	}
	of, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "MIRROR_other", Subjects: []string{"other.>"}})
	if err != nil {
		t.Fatal(err)
	}
	list, err := journal.Mirrors(t.Context(), b.Conn(), b.Store())
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	if err := js.DeleteStream(t.Context(), of.CachedInfo().Config.Name); err != nil {
		t.Fatal(err)
	}
	l := &listener{events: New(j, 1<<20, bustest.Log(t)), req: &rpc.Request{}, q: protocol.Listen{Mirrors: true, UntilEnd: true}}
	m := newMirrored(l, 1)
	p := &part{l: l, mirror: list[0], number: 1, next: 1, end: 5}
	m.live.Add(1)
	m.run(t.Context(), p)
	if err := m.wait(t.Context()); rpc.CodeOf(err) != rpc.Unavailable {
		t.Errorf("the end is told with %v", err)
	}
}

// TestAPartThatHasWaitedSendsItsLongEvent: a part that has waited until it may send does so, also if others wait
// for that, too. While its principal has the turn for a long event elsewhere, it holds up nobody.
func TestAPartThatHasWaitedSendsItsLongEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l := &listener{events: &Bus{long: semaphore.New(maxLong)}, req: &rpc.Request{}}
		m := newMirrored(l, 2)
		for _, elsewhere := range []bool{false, true} {
			if err := m.hold(ctx); err != nil {
				t.Fatal(err)
			}
			p := &part{l: &listener{events: l.events, req: l.req}, number: 1}
			var done func()
			go func() { done, _ = p.longTurn(m)(ctx, longEvent) }()
			synctest.Wait()
			if elsewhere {
				end, err := l.events.long.Acquire(ctx, l.req.From.String())
				if err != nil {
					t.Fatal(err)
				}
				m.letGo()
				synctest.Wait()
				if p.holds || len(m.out) > 0 {
					t.Error("a part without a turn keeps others from sending")
				}
				end()
			} else {
				go func() { _ = m.hold(ctx) }()
				synctest.Wait()
				m.letGo()
			}
			synctest.Wait()
			if !p.holds || done == nil {
				t.Fatalf("the part waits in vain; turn elsewhere: %v", elsewhere)
			}
			done()
			synctest.Wait()
			if !elsewhere {
				m.letGo() // of the one that waited behind it
			}
		}
	})
}

// mirror adds the mirror of another master's journal, which says with put what is stored there.
func (w *world) mirror(name string) (put func(tag string)) {
	w.t.Helper()
	js, err := jetstream.New(w.bus.Conn())
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := js.CreateStream(w.t.Context(), jetstream.StreamConfig{Name: "MIRROR_" + name, Subjects: []string{name + ".>"}, AllowDirect: true}); err != nil {
		w.t.Fatal(err)
	}
	list, err := journal.Mirrors(w.t.Context(), w.bus.Conn(), w.bus.Store())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, m := range list {
		if m.Name == name {
			w.events.AddMirror(m)
		}
	}
	return func(tag string) {
		w.t.Helper()
		e, err := event.New(tag, nil, "web1", time.Now())
		if err == nil {
			_, err = js.Publish(w.t.Context(), name+".event", e.Text())
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// TestRecentEventsComeInTheOrderOfTheirStamps: what is stored is merged with another journal also if it is
// still in the window, because somebody listens.
func TestRecentEventsComeInTheOrderOfTheirStamps(t *testing.T) {
	w := start(t)
	w.events.SetMirrors("own-0a", func(string) bool { return true })
	put := w.mirror("other-0b")
	c := w.dial()
	w.mustFire(c, "t/own")
	put("t/other")
	w.mustListen(w.dial(), protocol.Listen{})
	for range 4 {
		w.mustFire(c, "t/own")
		put("t/other")
	}
	want := strings.Repeat("t/own t/other ", 5)
	for _, q := range []protocol.Listen{{FromSeq: 1}, {FromSeq: 3, At: event.Position{"other-0b": 3}}} {
		q.Mirrors, q.UntilEnd = true, true
		h := w.mustListen(w.dial(), q)
		if got := strings.Join(h.tags(), " ") + " "; got != want {
			t.Errorf("from %d: heard %q, want %q", q.FromSeq, got, want)
		}
		want = strings.Repeat("t/own t/other ", 3)
	}
	// Whoever goes on listening gets new events once those are sent.
	h := w.mustListen(w.dial(), protocol.Listen{FromSeq: 1, Mirrors: true})
	for range 5 {
		h.wantTag("t/own")
		h.wantTag("t/other")
	}
	for range 2 {
		put("t/other")
		h.wantTag("t/other")
	}
	w.mustFire(c, "t/own")
	h.wantTag("t/own")
}

// TestAJournalThatIsGoneDoesNotEndAListener: whoever reconnects goes on without a journal that is not mirrored
// any more, and is told; a position that a user gives must be right.
func TestAJournalThatIsGoneDoesNotEndAListener(t *testing.T) {
	w := start(t)
	w.events.SetMirrors("own-0a", func(string) bool { return true })
	put := w.mirror("other-0b")
	put("t/1")
	put("t/2")
	seq := w.mustFire(w.dial(), "t/own")
	at := func() event.Position { return event.Position{"gone-0d": 7, "other-0b": 2, "gone-0c": 9} }
	for _, q := range []protocol.Listen{{Mirrors: true, FromSeq: seq + 1, At: at()}, {Mirrors: true, Durable: "given", At: at()}, {At: at()}} {
		if _, err := w.listen(w.dial(), q); rpc.CodeOf(err) != rpc.Usage || !strings.Contains(err.Error(), "gone-0c") {
			t.Errorf("a position that a user gave: %v", err)
		}
	}
	for _, durable := range []string{"", "d"} {
		c := w.dial()
		h := w.mustListen(c, protocol.Listen{Mirrors: true, Resume: true, FromSeq: seq + 1, At: at(), Durable: durable, UntilEnd: true})
		if want := []string{"gone-0c", "gone-0d"}; !slices.Equal(h.ready.Gone, want) {
			t.Errorf("gone are %q, want %q", h.ready.Gone, want)
		}
		if want := (event.Position{"other-0b": 2}); !maps.Equal(h.ready.At, want) {
			t.Errorf("it begins at %v, want %v", h.ready.At, want)
		}
		h.wantTag("t/2")
		if durable == "" {
			continue
		}
		// What was handled before and is not confirmed yet names the journals that are gone.
		if err := c.Ask(w.bounded(), protocol.OpConfirm, protocol.Confirm{Durable: durable, Seq: seq, At: at()}, nil); err != nil {
			t.Error(err)
		}
		stored := w.events.positions.holder(positionKey(w.events.Rules().User(os.Getuid(), "root", true).Owner, durable)).at
		if want := (event.Position{"other-0b": 2}); !maps.Equal(stored, want) {
			t.Errorf("stored is %v, want %v", stored, want)
		}
	}
}

// TestAMirrorThatCannotBeRead: the daemon serves all the same, as it finds itself, and whoever needs the mirror
// is told to ask again.
func TestAMirrorThatCannotBeRead(t *testing.T) {
	w := start(t)
	w.events.SetMirrors("own-0a", func(string) bool { return true })
	w.mirror("other-0b")
	self := w.events.Self(w.bus.Socket, w.bus.Store())
	defer self.Close()
	js, err := jetstream.New(w.bus.Conn())
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), "MIRROR_other-0b"); err != nil {
		t.Fatal(err)
	}
	if err := self.Check(t.Context()); err != nil {
		t.Errorf("the daemon does not serve itself: %v", err)
	}
	c := w.dial()
	if err := c.Ask(w.bounded(), protocol.OpEnd, nil, nil); rpc.CodeOf(err) != rpc.Unavailable || !strings.Contains(err.Error(), "other-0b") {
		t.Errorf("the ends of all journals: %v", err)
	}
	for _, q := range []protocol.Listen{{Mirrors: true}, {Mirrors: true, Durable: "d"}, {Mirrors: true, Resume: true, FromSeq: 1, At: event.Position{"other-0b": 3}}} {
		if _, err := w.listen(w.dial(), q); rpc.CodeOf(err) != rpc.Unavailable {
			t.Errorf("%+v: %v", q, err)
		}
	}
	if _, err := w.listen(w.dial(), protocol.Listen{}); err != nil {
		t.Errorf("a listener to the own journal: %v", err)
	}
}
