package eventbus

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
)

// world is an event bus behind a real broker. Each connection is the user that as has set.
type world struct {
	t      testing.TB
	bus    *bustest.Bus
	events *Bus
	user   *atomic.Pointer[string] // a nil pointer inside is the operator
	after  *atomic.Pointer[func()] // runs once after the next principal was checked
}

const limit = 4 << 20 // bytes of an event

func start(t testing.TB) *world { return startWith(t, func(*rpc.Server) {}) }

func startWith(t testing.TB, set func(*rpc.Server)) *world {
	t.Helper()
	b := bustest.StartStore(t)
	set(b.Server)
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{MaxAge: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, bus: b, events: New(j, limit, b.Log), user: &atomic.Pointer[string]{}, after: &atomic.Pointer[func()]{}}
	who := func(_ context.Context, i bus.Identity) eventacl.Principal {
		defer func() {
			if f := w.after.Swap(nil); f != nil {
				(*f)()
			}
		}()
		if name := w.user.Load(); name != nil {
			return w.events.Rules().User(1234, *name, false)
		}
		return w.events.Rules().User(i.UID(), "root", true)
	}
	w.events.Register(b.Server, who)
	w.events.RegisterFire(b.Server, who)
	if err := b.Server.Start(); err != nil {
		t.Fatal(err)
	}
	return w
}

// as makes every later request one of the ordinary user with this name; "" is the operator.
func (w *world) as(name string) {
	if name == "" {
		w.user.Store(nil)
		return
	}
	w.user.Store(&name)
}

func (w *world) dial() *rpc.Conn {
	w.t.Helper()
	c, err := rpc.Dial(w.bus.Socket)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	return c
}

// bounded returns a context that is longer than any test needs.
func (w *world) bounded() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	w.t.Cleanup(cancel)
	return ctx
}

// await waits until ok returns true; ok must stay true from then on.
func (w *world) await(what string, ok func() bool) {
	w.t.Helper()
	deadline.Until(w.t, ok, what)
}

// listeners returns how many listeners are served.
func (w *world) listeners() int {
	w.events.mu.Lock()
	defer w.events.mu.Unlock()
	return len(w.events.listeners)
}

// fire stores events and returns the sequence of the last.
func (w *world) fire(c *rpc.Conn, events ...event.Item) (uint64, error) {
	var fired protocol.Fired
	err := c.Ask(w.bounded(), protocol.OpFire, protocol.Fire{ID: bus.NewNonce(), Events: events}, &fired)
	return fired.Seq, err
}

func (w *world) mustFire(c *rpc.Conn, tags ...string) uint64 {
	w.t.Helper()
	var events []event.Item
	for _, tag := range tags {
		events = append(events, event.Item{Tag: tag, Data: json.RawMessage(`{"a":1}`)})
	}
	seq, err := w.fire(c, events...)
	if err != nil {
		w.t.Fatal(err)
	}
	return seq
}

// hearing is one listener.
type hearing struct {
	w          *world
	stream     *rpc.Stream
	ready      protocol.Ready
	left       []byte
	passed     uint64
	onProgress func(protocol.Progress) // may be nil
}

func (w *world) listen(c *rpc.Conn, q protocol.Listen) (*hearing, error) {
	q.Lines = true
	s, err := c.Call(protocol.OpListen, q)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(s.Close)
	h := &hearing{w: w, stream: s}
	return h, s.Decode(w.bounded(), &h.ready)
}

func (w *world) mustListen(c *rpc.Conn, q protocol.Listen) *hearing {
	w.t.Helper()
	h, err := w.listen(c, q)
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// next returns the next event.
func (h *hearing) next() (event.Event, error) {
	for {
		for len(h.left) == 0 {
			b, err := h.stream.Next(h.w.bounded())
			if err != nil {
				return event.Event{}, err
			}
			h.left = b
		}
		line, rest, _ := bytes.Cut(h.left, []byte("\n"))
		h.left = rest
		var m protocol.Progress
		if bytes.HasPrefix(line, []byte(`{"passed":`)) {
			if err := json.Unmarshal(line, &m); err != nil || m.End {
				return event.Event{}, cmp.Or(err, io.EOF)
			}
			h.passed = m.Passed
			if h.onProgress != nil {
				h.onProgress(m)
			}
			continue
		}
		var e event.Event
		err := json.Unmarshal(line, &e)
		return e, err
	}
}

// tags reads to the end.
func (h *hearing) tags() []string {
	h.w.t.Helper()
	var tags []string
	for {
		e, err := h.next()
		if errors.Is(err, io.EOF) {
			return tags
		}
		if err != nil {
			h.w.t.Fatal(err)
		}
		tags = append(tags, e.Tag)
	}
}

func (h *hearing) wantTag(tag string) event.Event {
	h.w.t.Helper()
	e, err := h.next()
	if err != nil || e.Tag != tag {
		h.w.t.Fatalf("heard %q, %v; want %q", e.Tag, err, tag)
	}
	return e
}

func TestListenBeginsWhereItIsAsked(t *testing.T) {
	w := start(t)
	c := w.dial()
	w.mustFire(c, "a/1", "b/1")
	moment := time.Now()
	last := w.mustFire(c, "a/2", "b/2")
	for name, row := range map[string]struct {
		q    protocol.Listen
		want []string
	}{
		"all":           {protocol.Listen{FromSeq: 1}, []string{"a/1", "b/1", "a/2", "b/2"}},
		"sequence":      {protocol.Listen{FromSeq: last}, []string{"b/2"}},
		"moment":        {protocol.Listen{Since: moment}, []string{"a/2", "b/2"}},
		"the future":    {protocol.Listen{Since: time.Now().Add(time.Hour)}, nil},
		"now":           {protocol.Listen{}, nil},
		"next sequence": {protocol.Listen{FromSeq: last + 1}, nil},
		"tags":          {protocol.Listen{FromSeq: 1, Tags: []string{"b/", "a/2"}}, []string{"b/1", "a/2", "b/2"}},
		"endswith":      {protocol.Listen{FromSeq: 1, Match: event.EndsWith, Tags: []string{"1"}}, []string{"a/1", "b/1"}},
		"sender":        {protocol.Listen{FromSeq: 1, Senders: []string{"user:*"}}, []string{"a/1", "b/1", "a/2", "b/2"}},
		"other sender":  {protocol.Listen{FromSeq: 1, Senders: []string{"web*", ""}}, nil},
	} {
		row.q.UntilEnd = true
		h := w.mustListen(c, row.q)
		if got := h.tags(); !slices.Equal(got, row.want) {
			t.Errorf("%s: heard %q, want %q", name, got, row.want)
		}
	}
	for name, q := range map[string]protocol.Listen{
		"sequence ahead": {FromSeq: last + 2},
		"unknown match":  {Match: "nonsense"},
		"bad regex":      {Match: event.Regex, Tags: []string{"("}},
		"bad name":       {Durable: strings.Repeat("x", maxName+1)},
	} {
		if _, err := w.listen(c, q); rpc.CodeOf(err) != rpc.Usage {
			t.Errorf("%s: %v, want a usage error", name, err)
		}
	}
}

func TestFollowersHearWhatIsFiredAfterReady(t *testing.T) {
	w := start(t)
	c := w.dial()
	for range 20 { // the reader of the journal starts and stops each time
		h := w.mustListen(c, protocol.Listen{Tags: []string{"x/"}})
		seq := w.mustFire(c, "y", "x/1")
		if e := h.wantTag("x/1"); e.Seq != seq || e.From != "user:root" {
			t.Fatalf("heard %+v, want the sequence %d", e, seq)
		}
		h.stream.Close()
	}
}

func TestPassingEventsAreMarked(t *testing.T) {
	w := start(t)
	c := w.dial()
	h := w.mustListen(c, protocol.Listen{Tags: []string{"x"}, FromSeq: 1, UntilEnd: true})
	if got := h.tags(); len(got) > 0 || h.passed != 0 {
		t.Errorf("an empty journal has %q and the mark %d", got, h.passed)
	}
	last := w.mustFire(c, "y", "y")
	h = w.mustListen(c, protocol.Listen{Tags: []string{"x"}, FromSeq: 1, UntilEnd: true})
	if got := h.tags(); len(got) > 0 || h.passed != last {
		t.Errorf("heard %q, the mark is %d, want %d", got, h.passed, last)
	}
}

// oddTags returns tags that a careless implementation would misread.
func oddTags() []string {
	return []string{
		"a b", " ", "a.b", "*", ">", "a/*/b", "a//b", "/", "//", "a/", "/a", ".", "..", "a/../b", "ü/日本", "%", "%2F", "$JS.API",
		"{}", `"`, `\`, "a\u2028b", "<&>", strings.Repeat("x", event.MaxTag), strings.Repeat("a/", 499) + "b", strings.Repeat("/", event.MaxTag),
	}
}

func TestTagsAreCarriedExactlyOrRefused(t *testing.T) {
	w := start(t)
	c := w.dial()
	for _, tag := range oddTags() {
		w.mustFire(c, tag)
		h := w.mustListen(c, protocol.Listen{FromSeq: 1, UntilEnd: true, Tags: []string{tag}})
		if got := h.tags(); !slices.Contains(got, tag) {
			t.Errorf("fired %q, heard %q", tag, got)
		}
	}
	for _, tag := range []string{"", "a\nb", "a\x00b", "a\x7fb", strings.Repeat("x", event.MaxTag+1), strings.Repeat("a/", 600)} {
		if _, err := w.fire(c, event.Item{Tag: tag}); rpc.CodeOf(err) != rpc.Usage {
			t.Errorf("fired %q: %v, want a usage error", tag, err)
		}
	}
}

// FuzzTag fires any text as a tag: listeners get exactly that tag, or it is refused. Text that
// is not UTF-8 cannot be sent in JSON; CheckTag, which every tool calls first, refuses it.
func FuzzTag(f *testing.F) {
	for _, tag := range append(oddTags(), "", "\xff", "a\nb") {
		f.Add(tag)
	}
	w := start(f)
	c := w.dial()
	f.Fuzz(func(t *testing.T, tag string) {
		if !utf8.ValidString(tag) {
			if event.CheckTag(tag) == nil {
				t.Errorf("CheckTag(%q) is nil", tag)
			}
			return
		}
		w := *w
		w.t = t
		seq, err := w.fire(c, event.Item{Tag: tag})
		if err != nil {
			if rpc.CodeOf(err) != rpc.Usage || event.CheckTag(tag) == nil {
				t.Fatalf("fire %q: %v", tag, err)
			}
			return
		}
		h := w.mustListen(c, protocol.Listen{FromSeq: seq, UntilEnd: true})
		if e, err := h.next(); err != nil || e.Tag != tag {
			t.Errorf("fired %q, heard %q, %v", tag, e.Tag, err)
		}
	})
}

func TestLimits(t *testing.T) {
	w := start(t)
	c := w.dial()
	big := json.RawMessage(`"` + strings.Repeat("x", limit) + `"`)
	_, err := w.fire(c, event.Item{Tag: "small", Data: json.RawMessage("1")}, event.Item{Tag: "big", Data: big})
	if rpc.CodeOf(err) != rpc.Usage || !strings.Contains(err.Error(), fmt.Sprint(limit)) || !strings.Contains(salt.Hint(err), "max_event_size") {
		t.Errorf("an event over the limit: %v, %s", err, salt.Hint(err))
	}
	for name, f := range map[string]protocol.Fire{
		"no event":     {},
		"too many":     {Events: make([]event.Item, maxBatch+1)},
		"long name":    {ID: strings.Repeat("x", maxID+1), Events: []event.Item{{Tag: "t"}}},
		"one bad data": {Events: []event.Item{{Tag: "t"}, {Tag: "\n"}}},
	} {
		if err := c.Ask(w.bounded(), protocol.OpFire, f, nil); rpc.CodeOf(err) != rpc.Usage {
			t.Errorf("%s: %v, want a usage error", name, err)
		}
	}
	if got := w.mustListen(c, protocol.Listen{FromSeq: 1, UntilEnd: true}).tags(); len(got) > 0 {
		t.Errorf("of refused batches these were stored: %q", got)
	}
}

func TestRepetitionIsNotStoredTwice(t *testing.T) {
	w := start(t)
	c := w.dial()
	f := protocol.Fire{ID: bus.NewNonce(), Events: []event.Item{{Tag: "a"}, {Tag: "b"}}}
	for range 3 {
		var fired protocol.Fired
		if err := c.Ask(w.bounded(), protocol.OpFire, f, &fired); err != nil || fired.Seq != 2 {
			t.Errorf("fired %+v, %v", fired, err)
		}
	}
	if got := w.mustListen(c, protocol.Listen{FromSeq: 1, UntilEnd: true}).tags(); len(got) != 2 {
		t.Errorf("stored %q", got)
	}
}

// If an input is divided into other batches the second time, duplicates are still recognised:
// only what is missing is stored.
func TestRepetitionOfASeries(t *testing.T) {
	w := start(t)
	c := w.dial()
	var events []event.Item
	for i := range 12 {
		events = append(events, event.Item{Tag: fmt.Sprint("series/", i)})
	}
	for _, batch := range [][2]int{{0, 3}, {3, 5}, {0, 2}, {2, 7}, {7, 12}, {0, 12}} {
		f := protocol.Fire{ID: bus.NewNonce(), Series: "mine", First: batch[0], Events: events[batch[0]:batch[1]]}
		if err := c.Ask(w.bounded(), protocol.OpFire, f, nil); err != nil {
			t.Errorf("batch %v: %v", batch, err)
		}
	}
	got := w.mustListen(c, protocol.Listen{FromSeq: 1, UntilEnd: true}).tags()
	if len(got) != 12 || got[0] != "series/0" || got[11] != "series/11" {
		t.Errorf("stored %q, want each of 12 once", got)
	}
	for _, first := range []int{-1, maxFirst + 1} {
		err := c.Ask(w.bounded(), protocol.OpFire, protocol.Fire{Series: "mine", First: first, Events: events[:1]}, nil)
		if rpc.CodeOf(err) != rpc.Usage {
			t.Errorf("first %d: %v, want a refusal", first, err)
		}
	}
}

// TestLongEventsInPieces starts listeners in the middle of events that are stored in several
// messages: they get an event whose last message is after their start.
func TestLongEventsInPieces(t *testing.T) {
	w := start(t)
	c := w.dial()
	long := json.RawMessage(`"` + strings.Repeat("y", 3<<20) + `"`)
	first, err := w.fire(c, event.Item{Tag: "long/1", Data: long})
	if err != nil {
		t.Fatal(err)
	}
	second, err := w.fire(c, event.Item{Tag: "long/2", Data: long})
	if err != nil {
		t.Fatal(err)
	}
	for from := uint64(1); from <= second; from++ {
		want := []string{"long/1", "long/2"}
		if from > first {
			want = want[1:]
		}
		h := w.mustListen(c, protocol.Listen{FromSeq: from, UntilEnd: true})
		if got := h.tags(); !slices.Equal(got, want) {
			t.Errorf("from %d: heard %q, want %q", from, got, want)
		}
	}
}

// TestSlowListenerLosesNothing: one listener reads nothing while more is fired than its window
// and the daemon's hold. The other listener gets everything meanwhile, and the slow one
// afterwards.
func TestSlowListenerLosesNothing(t *testing.T) {
	w := start(t)
	slow, quick, firer := w.dial(), w.dial(), w.dial()
	s, q := w.mustListen(slow, protocol.Listen{Tags: []string{"n/"}}), w.mustListen(quick, protocol.Listen{Tags: []string{"n/"}})
	const batches, each = 27, 1000
	data := json.RawMessage(`"` + strings.Repeat("z", 1000) + `"`)
	for batch := range batches {
		var events []event.Item
		for n := range each {
			events = append(events, event.Item{Tag: fmt.Sprintf("n/%d", batch*each+n), Data: data})
		}
		if _, err := w.fire(firer, events...); err != nil {
			t.Fatal(err)
		}
		for n := range each {
			q.wantTag(fmt.Sprintf("n/%d", batch*each+n))
		}
	}
	for n := range batches * each {
		s.wantTag(fmt.Sprintf("n/%d", n))
	}
}

// TestAStalledListenerIsInformed: a listener reads nothing for longer than the daemon waits, in
// the middle of a long event. It gets everything up to there, and then the error that it should
// reconnect.
func TestAStalledListenerIsInformed(t *testing.T) {
	w := startWith(t, func(s *rpc.Server) { s.Stall = 50 * time.Millisecond })
	c, firer := w.dial(), w.dial()
	h := w.mustListen(c, protocol.Listen{Tags: []string{"long"}})
	long := json.RawMessage(`"` + strings.Repeat("y", 3<<20) + `"`)
	for range 5 {
		if _, err := w.fire(firer, event.Item{Tag: "long", Data: long}); err != nil {
			t.Fatal(err)
		}
	}
	w.await("the daemon gives it up", func() bool { return w.listeners() == 0 })
	heard, err := 0, error(nil)
	for last := uint64(0); ; heard++ {
		e, failed := h.next()
		if failed != nil {
			err = failed
			break
		}
		if e.Seq <= last || len(e.Data) != len(long) {
			t.Errorf("heard %d bytes at %d after %d", len(e.Data), e.Seq, last)
		}
		last = e.Seq
	}
	if rpc.CodeOf(err) != rpc.Unavailable || heard == 0 || heard == 5 {
		t.Errorf("heard %d events, then %v", heard, err)
	}
}

func TestPositions(t *testing.T) {
	w := start(t)
	c, other := w.dial(), w.dial()
	confirm := func(c *rpc.Conn, seq uint64) error {
		return c.Ask(w.bounded(), protocol.OpConfirm, protocol.Confirm{Durable: "d", Seq: seq}, nil)
	}
	h := w.mustListen(c, protocol.Listen{Durable: "d"})
	last := w.mustFire(other, "a", "b", "c")
	h.wantTag("a")
	h.wantTag("b")
	if err := confirm(other, last-2); rpc.CodeOf(err) != rpc.NotFound {
		t.Errorf("a connection that does not hold the position confirms: %v", err)
	}
	if err := confirm(c, last+100); rpc.CodeOf(err) != rpc.Usage {
		t.Errorf("the future is confirmed: %v", err)
	}
	if err := confirm(c, last-2); err != nil {
		t.Fatal(err)
	}
	if _, err := w.listen(other, protocol.Listen{Durable: "d"}); rpc.CodeOf(err) != rpc.Busy {
		t.Errorf("two hold one position: %v", err)
	}
	c.Close()
	h = w.mustListen(other, protocol.Listen{Durable: "d", FromSeq: last}) // FromSeq applies only to a new position
	h.wantTag("b")
	h.wantTag("c")
	if err := confirm(other, last); err != nil {
		t.Fatal(err)
	}
	if err := confirm(other, last-1); err != nil {
		t.Errorf("an old sequence: %v", err)
	}
	other.Close()
	again := w.dial()
	if got := w.mustListen(again, protocol.Listen{Durable: "d", UntilEnd: true}).tags(); len(got) > 0 {
		t.Errorf("handed again: %q", got)
	}
}

// A listener that reconnects may confirm before it has begun: the confirmation is for later and
// changes nothing yet.
func TestAConfirmationBeforeTheListenerHasBegun(t *testing.T) {
	w := start(t)
	c := w.dial()
	last := w.mustFire(c, "a")
	nonce := c.Inbox()[strings.LastIndex(c.Inbox(), ".")+1:]
	_, release, err := w.events.positions.hold(t.Context(), w.events.Rules().User(os.Getuid(), "root", true), "d", nonce)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Ask(w.bounded(), protocol.OpConfirm, protocol.Confirm{Durable: "d", Seq: last}, nil); rpc.CodeOf(err) != rpc.Unavailable {
		t.Errorf("confirmed while nobody knows where the position is: %v", err)
	}
	release()
	if h := w.mustListen(c, protocol.Listen{Durable: "d", FromSeq: last, UntilEnd: true}); !slices.Equal(h.tags(), []string{"a"}) {
		t.Error("the position has moved")
	}
}

func TestListenerComesBackAheadOfItsPosition(t *testing.T) {
	w := start(t)
	c := w.dial()
	h := w.mustListen(c, protocol.Listen{Durable: "d"})
	last := w.mustFire(c, "a", "b")
	h.wantTag("a")
	c.Close()
	h = w.mustListen(w.dial(), protocol.Listen{Durable: "d", Resume: true, FromSeq: last})
	h.wantTag("b") // a was written, if not confirmed
}

// A position after the end of the journal belongs to another journal, for example one that was
// restored: a listener with such a position gets every event, or a message about what it
// missed.
func TestAPositionBehindTheEndPassesNothingOver(t *testing.T) {
	w := start(t)
	last := w.mustFire(w.dial(), "a", "b")
	for name, q := range map[string]protocol.Listen{
		"durable":  {Durable: "d", Resume: true, FromSeq: last + 100},
		"one back": {Resume: true, FromSeq: last + 2},
	} {
		q.UntilEnd = true
		c := w.dial()
		h := w.mustListen(c, q)
		if h.ready.Ahead != q.FromSeq-1 || h.ready.Last != last {
			t.Errorf("%s: told of the position %d and the end %d", name, h.ready.Ahead, h.ready.Last)
		}
		if got := h.tags(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("%s: heard %q, want all", name, got)
		}
		if q.Durable == "" {
			continue
		}
		if err := c.Ask(w.bounded(), protocol.OpConfirm, protocol.Confirm{Durable: "d", Seq: last - 1}, nil); err != nil {
			t.Error(err)
		}
		c.Close()
		if got := w.mustListen(w.dial(), protocol.Listen{Durable: "d", UntilEnd: true}).tags(); !slices.Equal(got, []string{"b"}) {
			t.Errorf("%s: what it has confirmed is forgotten: heard %q", name, got)
		}
	}
}

func TestDiscardedEventsAreReported(t *testing.T) {
	w := start(t)
	c := w.dial()
	w.mustListen(c, protocol.Listen{Durable: "d"})
	c.Close()
	c = w.dial()
	last := w.mustFire(c, "a", "b", "c")
	var purged protocol.Purged
	if err := c.Ask(w.bounded(), protocol.OpPurge, protocol.Purge{Before: last}, &purged); err != nil || purged.Count != 2 {
		t.Fatalf("purged %d, %v", purged.Count, err)
	}
	h := w.mustListen(c, protocol.Listen{Durable: "d", Tags: []string{"a", "b", "c"}})
	if h.ready.Lost != 2 {
		t.Errorf("told of %d lost events, want 2", h.ready.Lost)
	}
	h.wantTag("c")
}

func TestPurge(t *testing.T) {
	w := start(t)
	c := w.dial()
	long := json.RawMessage(`"` + strings.Repeat("y", 1<<20) + `"`)
	w.mustFire(c, "a/1", "b/1", "a/2")
	if _, err := w.fire(c, event.Item{Tag: "a/long", Data: long}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.fire(c, event.Item{Tag: "salt/audit/x"}); rpc.CodeOf(err) != rpc.Denied { // not even for root
		t.Errorf("an event of the audit log: %v, want a refusal", err)
	}
	w.mustFire(c, "b/2")
	purge := func(q protocol.Purge) (n uint64, err error) {
		var p protocol.Purged
		err = c.Ask(w.bounded(), protocol.OpPurge, q, &p)
		return p.Count, err
	}
	if n, err := purge(protocol.Purge{Tags: []string{"a/", "salt/"}}); n != 3 || err != nil {
		t.Errorf("purged %d, %v; want 3", n, err)
	}
	want := []string{"b/1", "salt/audit/refused", "b/2", "salt/audit/purge"}
	if got := w.mustListen(c, protocol.Listen{FromSeq: 1, UntilEnd: true, Tags: []string{"", "salt/audit"}}).tags(); !slices.Equal(got, want) {
		t.Errorf("left are %q, want %q", got, want)
	}
	if got := w.mustListen(c, protocol.Listen{FromSeq: 1, UntilEnd: true}).tags(); !slices.Equal(got, []string{"b/1", "b/2"}) {
		t.Errorf("who does not name the audit log hears %q", got)
	}
	if _, err := purge(protocol.Purge{Match: "nonsense", Tags: []string{"x"}}); rpc.CodeOf(err) != rpc.Usage {
		t.Errorf("unknown match: %v", err)
	}
	if _, err := purge(protocol.Purge{Durable: "none"}); rpc.CodeOf(err) != rpc.NotFound {
		t.Errorf("unknown position: %v", err)
	}
	if _, err := purge(protocol.Purge{Until: time.Now()}); err != nil {
		t.Error(err)
	}
	if got := w.mustListen(c, protocol.Listen{FromSeq: 1, UntilEnd: true, Tags: []string{"", "salt/audit"}}).tags(); !slices.Equal(got, []string{"salt/audit/purge"}) {
		t.Errorf("left are %q", got)
	}
	w.events.rules.Tell = func(context.Context, eventacl.Record) (bool, error) { return true, nil }
	w.mustFire(c, "b/3")
	if n, err := purge(protocol.Purge{Until: time.Now()}); n != 1 || err != nil {
		t.Errorf("with an audit log of its own: purged %d, %v; want 1", n, err)
	}
	if n, err := purge(protocol.Purge{Tags: []string{"b/"}}); n != 0 || err != nil {
		t.Errorf("the newest event is purged: %d, %v", n, err)
	}
	if got := w.mustListen(c, protocol.Listen{FromSeq: 1, UntilEnd: true, Tags: []string{"", "salt/audit"}}).tags(); !slices.Equal(got, []string{"b/3"}) {
		t.Errorf("left are %q, want the newest", got)
	}
}

func (w *world) grant(text string) {
	w.t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		w.t.Fatal(err)
	}
	g, err := event.ParseGrants(doc.Content[0], func(*yaml.Node) string { return "minion:1" })
	if err != nil {
		w.t.Fatal(err)
	}
	w.events.SetGrants(g)
}

func TestOrdinaryUsersNeedGrants(t *testing.T) {
	w := start(t)
	c := w.dial()
	w.mustFire(c, "mine/1", "other/1")
	w.grant("bob: {fire: mine/*, listen: [mine/*, note]}")
	for user, allowed := range map[string]bool{"bob": true, "eve": false} {
		w.as(user)
		for name, do := range map[string]func() error{
			"fire":   func() error { _, err := w.fire(c, event.Item{Tag: "mine/2"}); return err },
			"listen": func() error { _, err := w.listen(c, protocol.Listen{Tags: []string{"mine/"}}); return err },
			"place":  func() error { return c.Ask(w.bounded(), protocol.OpEnd, nil, nil) },
			"dead":   func() error { return c.Ask(w.bounded(), protocol.OpDead, protocol.Dead{Do: protocol.DeadList}, nil) },
		} {
			err := do()
			if allowed && err != nil || !allowed && rpc.CodeOf(err) != rpc.Denied {
				t.Errorf("%s, %s: %v", user, name, err)
			}
			if !allowed && !strings.Contains(err.Error(), "event_acl") {
				t.Errorf("%s, %s: the refusal does not name the rules: %v", user, name, err)
			}
		}
		for name, do := range map[string]func() error{
			"fire other": func() error { _, err := w.fire(c, event.Item{Tag: "other/2"}); return err },
			"fire heard": func() error { _, err := w.fire(c, event.Item{Tag: "note"}); return err },
			"batch": func() error {
				_, err := w.fire(c, event.Item{Tag: "mine/2"}, event.Item{Tag: "salt/job/x"})
				return err
			},
			"listen other": func() error { _, err := w.listen(c, protocol.Listen{Tags: []string{"other/"}}); return err },
			"stat":         func() error { return c.Ask(w.bounded(), protocol.OpStat, nil, nil) },
			"purge":        func() error { return c.Ask(w.bounded(), protocol.OpPurge, protocol.Purge{Before: 9}, nil) },
			"other's position": func() error {
				return c.Ask(w.bounded(), protocol.OpPurge, protocol.Purge{Durable: "d", User: "root"}, nil)
			},
		} {
			if err := do(); rpc.CodeOf(err) != rpc.Denied {
				t.Errorf("%s, %s: %v, want a refusal", user, name, err)
			}
		}
	}
	w.as("bob")
	h := w.mustListen(c, protocol.Listen{FromSeq: 1, UntilEnd: true})
	if !slices.Equal(h.ready.Limits, []string{"mine/*", "note"}) {
		t.Errorf("told of the limits %q", h.ready.Limits)
	}
	for _, tag := range h.tags() {
		if !strings.HasPrefix(tag, "mine/") {
			t.Errorf("bob hears %q", tag)
		}
	}
	w.as("")
	refusals := w.mustListen(c, protocol.Listen{FromSeq: 1, UntilEnd: true, Tags: []string{"salt/audit/refused"}}).tags()
	if len(refusals) < 10 {
		t.Errorf("the audit log has %d refusals", len(refusals))
	}
}

func TestNewGrantsHoldForThoseWhoListen(t *testing.T) {
	w := start(t)
	c := w.dial()
	w.grant("bob: mine/*")
	w.as("bob")
	h := w.mustListen(c, protocol.Listen{})
	w.grant("bob: other/*")
	if _, err := h.next(); rpc.CodeOf(err) != rpc.Unavailable {
		t.Errorf("the listener goes on under the old rules: %v", err)
	}
	if _, err := w.listen(c, protocol.Listen{Tags: []string{"mine/"}}); rpc.CodeOf(err) != rpc.Denied {
		t.Errorf("the old rules hold: %v", err)
	}
}

func TestPositionsOfOneUserAreBounded(t *testing.T) {
	w := start(t)
	c := w.dial()
	w.grant("bob: mine/*")
	w.as("bob")
	for n := range maxPositions {
		one := w.dial()
		w.mustListen(one, protocol.Listen{Durable: fmt.Sprint(n), UntilEnd: true}).tags()
		one.Close()
	}
	if _, err := w.listen(c, protocol.Listen{Durable: "more"}); rpc.CodeOf(err) != rpc.Usage {
		t.Errorf("one position too many: %v", err)
	}
	w.left("7")
	if err := c.Ask(w.bounded(), protocol.OpPurge, protocol.Purge{Durable: "7"}, nil); err != nil {
		t.Errorf("bob forgets their own position: %v", err)
	}
	w.mustListen(c, protocol.Listen{Durable: "more", UntilEnd: true})
}

// left waits until no listener holds the position.
func (w *world) left(name string) {
	for {
		w.events.positions.mu.Lock()
		h := w.events.positions.holders[positionKey("1234", name)]
		w.events.positions.mu.Unlock()
		if h == nil {
			return
		}
		deadline.Receive(w.t, h.done, "the end of who holds the position")
	}
}

func TestDeadLetters(t *testing.T) {
	w := start(t)
	c := w.dial()
	ask := func(q protocol.Dead) (letters []protocol.DeadLetter) {
		t.Helper()
		s, err := c.Call(protocol.OpDead, q)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for {
			var l protocol.DeadLetter
			err := s.Decode(w.bounded(), &l)
			if errors.Is(err, io.EOF) {
				return letters
			}
			if err != nil {
				t.Fatal(err)
			}
			letters = append(letters, l)
		}
	}
	put := func(name string, seq uint64, size int) error {
		l := &protocol.DeadLetter{Name: name, Seq: seq, Tag: "t", Event: json.RawMessage(`"` + strings.Repeat("x", size) + `"`)}
		return c.Ask(w.bounded(), protocol.OpDead, protocol.Dead{Do: protocol.DeadPut, Letter: l}, nil)
	}
	for _, seq := range []uint64{30, 4} {
		if err := errors.Join(put("a", seq, 10), put("b", seq, maxLetter)); err != nil {
			t.Fatal(err)
		}
	}
	all := ask(protocol.Dead{Do: protocol.DeadList})
	if len(all) != 4 || all[0].Seq != 4 || all[3].Seq != 30 {
		t.Errorf("letters %+v", all)
	}
	for _, l := range ask(protocol.Dead{Do: protocol.DeadList, Name: "b"}) {
		if l.Event != nil {
			t.Error("an event that is too large is kept twice")
		}
	}
	if gone := ask(protocol.Dead{Do: protocol.DeadDrop, Name: "a", Seq: 4}); len(gone) != 1 {
		t.Errorf("dropped %d", len(gone))
	}
	if left := ask(protocol.Dead{Do: protocol.DeadList}); len(left) != 3 {
		t.Errorf("%d are left", len(left))
	}
	if err := c.Ask(w.bounded(), protocol.OpDead, protocol.Dead{Do: "dance"}, nil); rpc.CodeOf(err) != rpc.Usage {
		t.Errorf("an unknown action: %v", err)
	}
}

// takeLetter takes a dead letter, and leaves the answer open. It is nil if there is none.
func (w *world) takeLetter(c *rpc.Conn, l protocol.DeadLetter) (*protocol.DeadLetter, error) {
	w.t.Helper()
	s, err := c.Call(protocol.OpDead, protocol.Dead{Do: protocol.DeadTake, Name: l.Name, Seq: l.Seq, Journal: l.Journal})
	if err != nil {
		return nil, err
	}
	have := new(protocol.DeadLetter)
	if err = s.Decode(w.bounded(), have); err == nil {
		w.t.Cleanup(s.Close)
		return have, nil
	}
	s.Close()
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return nil, err
}

func (w *world) endLetter(c *rpc.Conn, l protocol.DeadLetter, do protocol.DeadAction) error {
	return c.Ask(w.bounded(), protocol.OpDead, protocol.Dead{Do: do, Name: l.Name, Seq: l.Seq, Journal: l.Journal}, nil)
}

// Of two programs that handle a dead letter again, one has it, until it gives it back or its
// connection ends.
func TestADeadLetterIsTakenByOne(t *testing.T) {
	w := start(t)
	one, two := w.dial(), w.dial()
	letter := protocol.DeadLetter{Name: "a", Seq: 4, Tag: "t", Event: json.RawMessage(`1`)}
	for _, seq := range []uint64{4, 5} {
		l := letter
		l.Seq = seq
		if err := one.Ask(w.bounded(), protocol.OpDead, protocol.Dead{Do: protocol.DeadPut, Letter: &l}, nil); err != nil {
			t.Fatal(err)
		}
	}
	take := func(c *rpc.Conn, want rpc.Code) {
		t.Helper()
		l, err := w.takeLetter(c, letter)
		if want == "" && (err != nil || l == nil || l.Seq != 4 || string(l.Event) != "1") || want != "" && rpc.CodeOf(err) != want {
			t.Fatalf("taken: %+v, %v, want %q", l, err, want)
		}
	}
	take(one, "")
	take(two, rpc.Busy)
	take(one, rpc.Busy)
	if err := w.endLetter(two, letter, protocol.DeadHandled); rpc.CodeOf(err) != rpc.Unavailable {
		t.Errorf("handled by one that does not have it: %v", err)
	}
	if err := w.endLetter(two, letter, protocol.DeadRelease); err != nil {
		t.Error(err)
	}
	take(two, rpc.Busy)
	if err := w.endLetter(one, letter, protocol.DeadRelease); err != nil {
		t.Error(err)
	}
	take(two, "")
	two.Close()
	w.await("the end of the connection gives it back", func() bool { l, err := w.takeLetter(one, letter); return err == nil && l != nil })
	if err := w.endLetter(one, letter, protocol.DeadHandled); err != nil {
		t.Error(err)
	}
	if l, err := w.takeLetter(one, letter); l != nil || err != nil {
		t.Errorf("after it was handled: %+v, %v", l, err)
	}
	if _, err := w.takeLetter(one, protocol.DeadLetter{Name: "a"}); rpc.CodeOf(err) != rpc.Usage {
		t.Errorf("all at once: %v", err)
	}
	w.events.dead.mu.Lock()
	defer w.events.dead.mu.Unlock()
	if len(w.events.dead.holds)+len(w.events.dead.taken) != 0 || len(w.events.dead.known) != 1 {
		t.Errorf("left are %v, %v, %v", w.events.dead.holds, w.events.dead.taken, w.events.dead.known)
	}
}

// Dead letters are not part of the limit of the journal: a user with a single permission can
// neither fill the disk with them, nor the space of others.
func TestDeadLettersAreBounded(t *testing.T) {
	w := start(t)
	w.grant("fred: {listen: app/*}")
	w.as("fred")
	c := w.dial()
	put := func(seq uint64, size, words int) error {
		l := &protocol.DeadLetter{Name: "a", Seq: seq, Tag: "app/x", Event: json.RawMessage(`"` + strings.Repeat("x", size) + `"`), Stderr: strings.Repeat("e", words)}
		return c.Ask(w.bounded(), protocol.OpDead, protocol.Dead{Do: protocol.DeadPut, Letter: l}, nil)
	}
	if err := put(1, 10, maxWords); rpc.CodeOf(err) != rpc.Usage {
		t.Errorf("words without end: %v", err)
	}
	refused := error(nil)
	n := uint64(1)
	for ; n < 1000 && refused == nil; n++ {
		refused = put(n, 800<<10, maxWords-1000)
	}
	if rpc.CodeOf(refused) != rpc.Busy || n < 30 {
		t.Errorf("%d letters, then %v", n, refused)
	}
	sum, whole := 0, 0
	err := w.events.dead.scan(t.Context(), func(string) bool { return true }, func(l owned) {
		if sum += l.size; l.Event != nil {
			whole++
		}
	})
	if err != nil || sum > 16<<20 || whole < 15 { // the number, not the constant: the limit for all users would pass, too
		t.Errorf("%d bytes are kept, %d events whole, want 16 MiB at most: %v", sum, whole, err)
	}
	// The reactor has its own space, and each sender a share of it.
	for seq := range uint64(40) {
		l := &protocol.DeadLetter{Name: "deploy", Seq: seq + 1, Tag: "app/x", From: "eve", Event: json.RawMessage(`"` + strings.Repeat("x", 800<<10) + `"`)}
		if err := w.events.dead.Add(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.events.dead.Add(t.Context(), &protocol.DeadLetter{Name: "deploy", Seq: 100, From: "web1", Event: json.RawMessage(`"small"`)}); err != nil {
		t.Fatal(err)
	}
	sum = 0
	letters, err := w.events.dead.letters(t.Context(), eventacl.Principal{Owner: daemonOwner}, protocol.Dead{})
	for _, l := range letters {
		sum += l.size
	}
	if err != nil || len(letters) != 41 || sum > maxBytesOfSender+40*1000 || letters[40].Event == nil {
		t.Errorf("%d letters of the reactor in %d bytes: %v", len(letters), sum, err)
	}
}

// Many users, each within their own limit, cannot fill the disk with dead letters together, nor
// the space of the reactor. The letters of the others are only counted here, not stored: they
// would take 128 MiB.
func TestDeadLettersOfAllAreBounded(t *testing.T) {
	w := start(t)
	w.grant("fred: {listen: app/*}")
	w.as("fred")
	c := w.dial()
	put := func(seq uint64, words int) error {
		l := &protocol.DeadLetter{Name: "a", Seq: seq, Tag: "app/x", Event: json.RawMessage(`"` + strings.Repeat("x", 100<<10) + `"`), Stderr: strings.Repeat("e", words)}
		return c.Ask(w.bounded(), protocol.OpDead, protocol.Dead{Do: protocol.DeadPut, Letter: l}, nil)
	}
	if err := put(1, 10); err != nil {
		t.Fatal(err)
	}
	dead := w.events.dead
	others := func(size int) { // except for those of fred, and 32 KiB
		dead.mu.Lock()
		defer dead.mu.Unlock()
		for n := range 8 {
			owner := fmt.Sprintf("user%d", n)
			dead.known[letterKey(owner, "a", "", 1)] = letterHead{owner: owner, name: "a", seq: 1, size: size}
		}
	}
	others((128<<20 - 101<<10 - 32<<10) / 8)
	if err := put(2, 10); err != nil {
		t.Errorf("with room for its sequence only: %v", err)
	}
	if err := put(3, 60<<10); rpc.CodeOf(err) != rpc.Busy {
		t.Errorf("where the room of all is used up: %v, want that it is refused", err)
	}
	if err := dead.Add(t.Context(), &protocol.DeadLetter{Name: "deploy", Seq: 4, From: "web1", Event: json.RawMessage(`"x"`)}); err != nil {
		t.Errorf("the reactor's: %v", err)
	}
	whole := map[uint64]bool{}
	if err := dead.scan(t.Context(), func(string) bool { return true }, func(l owned) { whole[l.Seq] = l.Event != nil }); err != nil || !maps.Equal(whole, map[uint64]bool{1: true, 2: false, 4: true}) {
		t.Errorf("kept, by sequence and whether whole: %v, %v", whole, err)
	}
	others(0)
	if err := put(3, 60<<10); err != nil {
		t.Errorf("when others have dropped theirs: %v", err)
	}
}

// With a limit on bytes alone a user could keep a hundred thousand letters, and each addition
// looks at all of them. Most of these are only counted here, not stored.
func TestDeadLettersOfOneUserAreCounted(t *testing.T) {
	w := start(t)
	w.grant("fred: {listen: app/*}")
	w.as("fred")
	c := w.dial()
	ask := func(do protocol.DeadAction, l protocol.DeadLetter) error {
		return c.Ask(w.bounded(), protocol.OpDead, protocol.Dead{Do: do, Name: l.Name, Seq: l.Seq, Letter: &l}, nil)
	}
	if err := ask(protocol.DeadPut, protocol.DeadLetter{Name: "a", Seq: 1, Tag: "app/x"}); err != nil {
		t.Fatal(err)
	}
	dead := w.events.dead
	dead.mu.Lock()
	for _, p := range maps.Clone(dead.known) {
		for p.seq = 2; p.seq < 10_000; p.seq++ { // the number, not the constant: the limit is also documented
			dead.known[letterKey(p.owner, p.name, "", p.seq)] = p
		}
	}
	dead.mu.Unlock()
	if err := ask(protocol.DeadPut, protocol.DeadLetter{Name: "b", Seq: 1, Tag: "app/x"}); err != nil {
		t.Errorf("the last that there is room for: %v", err)
	}
	if err := ask(protocol.DeadPut, protocol.DeadLetter{Name: "b", Seq: 2, Tag: "app/x"}); rpc.CodeOf(err) != rpc.Busy {
		t.Errorf("one more than that: %v, want that it is refused", err)
	}
	if err := dead.Add(t.Context(), &protocol.DeadLetter{Name: "deploy", Seq: 4, From: "web1"}); err != nil {
		t.Errorf("the reactor's: %v", err)
	}
	if err := ask(protocol.DeadDrop, protocol.DeadLetter{Name: "b", Seq: 1}); err != nil {
		t.Fatal(err)
	}
	if err := ask(protocol.DeadPut, protocol.DeadLetter{Name: "b", Seq: 2, Tag: "app/x"}); err != nil {
		t.Errorf("when one was dropped: %v", err)
	}
}

func TestStat(t *testing.T) {
	w := start(t)
	c := w.dial()
	w.mustListen(c, protocol.Listen{Durable: "d"})
	last := w.mustFire(c, "a", "b")
	var s protocol.Stat
	if err := c.Ask(w.bounded(), protocol.OpStat, nil, &s); err != nil {
		t.Fatal(err)
	}
	if s.Journal.Last != last || s.Fired != 2 || len(s.Listeners) != 1 || len(s.Positions) != 1 {
		t.Errorf("stat %+v", s)
	}
	if p := s.Positions[0]; p.Name != "d" || !p.Held || p.Behind != 2 || p.User != "root" {
		t.Errorf("position %+v", p)
	}
}

// A sender whose events no handler can handle replaces its own oldest dead letters, and takes
// no space of others.
func TestDeadLettersOfOneSender(t *testing.T) {
	w := start(t)
	for i := range uint64(maxOfSender) {
		if err := w.events.dead.keep(t.Context(), daemonOwner, &protocol.DeadLetter{Name: "deploy", Seq: 10 + i, From: "eve"}, maxLetter, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range []protocol.DeadLetter{{Name: "deploy", Seq: 1, From: "web1"}, {Name: "deploy", Seq: 2}, {Name: "other", Seq: 9000, From: "eve"}, {Name: "deploy", Seq: 9001, From: "eve"},
		{Name: "deploy", Seq: 9002, Tag: "salt/job/20261121113344286549/ret/eve"}} {
		if err := w.events.dead.Add(t.Context(), &l); err != nil {
			t.Fatal(err)
		}
	}
	letters, err := w.events.dead.letters(t.Context(), eventacl.Principal{Owner: daemonOwner}, protocol.Dead{})
	if err != nil {
		t.Fatal(err)
	}
	kept, eves := map[uint64]bool{}, 0
	for _, l := range letters {
		if kept[l.Seq] = true; l.From == "eve" || l.Tag != "" {
			eves++
		}
	}
	for seq, want := range map[uint64]bool{1: true, 2: true, 10: false, 11: false, 12: false, 13: true, 9000: true, 9001: true, 9002: true} {
		if kept[seq] != want {
			t.Errorf("letter %d is kept: %t, want %t", seq, kept[seq], want)
		}
	}
	if eves != maxOfSender {
		t.Errorf("%d letters of one sender, want %d", eves, maxOfSender)
	}
}

// TestTheOldestDeadLetterIsTheOneStoredFirst: a minion that has moved to a member with a younger journal leaves dead
// letters with smaller sequences. They do not push each other out, with the daemon's handlers nor with those of a user.
func TestTheOldestDeadLetterIsTheOneStoredFirst(t *testing.T) {
	for name, owner := range map[string]string{"of the daemon": daemonOwner, "of a user": "uid1000"} {
		t.Run(name, func(t *testing.T) {
			w := start(t)
			dead := w.events.dead
			most := maxOfSender
			add := func(l *protocol.DeadLetter) error { return dead.Add(t.Context(), l) }
			if owner != daemonOwner {
				most = maxLetters
				add = func(l *protocol.DeadLetter) error {
					return dead.addFor(t.Context(), eventacl.Principal{Owner: owner}, l)
				}
			}
			if _, err := dead.of(t.Context(), owner); err != nil {
				t.Fatal(err)
			}
			dead.mu.Lock()
			for n := range most - 2 { // only counted, not stored
				p := letterHead{owner: owner, name: "deploy", speaker: "eve", journal: "m1", seq: uint64(1_000_000 + n)}
				dead.known[letterKey(p.owner, p.name, p.journal, p.seq)] = p
			}
			dead.mu.Unlock()
			for n := range uint64(20) {
				if err := add(&protocol.DeadLetter{Name: "deploy", Seq: 20 - n, Journal: "m2", From: "eve", Tag: "t"}); err != nil {
					t.Fatal(err)
				}
			}
			check := func() {
				t.Helper()
				list, err := dead.of(t.Context(), owner)
				if err != nil {
					t.Fatal(err)
				}
				young := 0
				for _, p := range list {
					if p.journal == "m2" {
						young++
					}
				}
				if young != 20 {
					t.Errorf("%d of the 20 newest dead letters are kept", young)
				}
			}
			check()
			dead.mu.Lock()
			dead.known = nil // as after a start
			dead.mu.Unlock()
			check()
			if list, err := dead.of(t.Context(), owner); err != nil || list[0].seq != 20 || list[19].seq != 1 {
				t.Errorf("after a start the order is another one: %v, %v", list, err)
			}
		})
	}
}

// TestDeadLettersOfOneSenderDoNotStopAUser: when the events of one sender have filled the space of a
// user, by number or by bytes, its oldest dead letters give way to those of others. Most of these are
// only counted here, not stored.
func TestDeadLettersOfOneSenderDoNotStopAUser(t *testing.T) {
	for name, heads := range map[string]struct{ count, size int }{"by number": {10_000, 100}, "by bytes": {16, 1 << 20}} {
		t.Run(name, func(t *testing.T) {
			w := start(t)
			dead := w.events.dead
			who := eventacl.Principal{Owner: "uid1000"}
			add := func(seq uint64, from string) error {
				return dead.addFor(t.Context(), who, &protocol.DeadLetter{Name: "sink/x", Seq: seq, Tag: "app/x", From: from, Event: json.RawMessage(`"x"`)})
			}
			if err := add(1, "web1"); err != nil {
				t.Fatal(err)
			}
			dead.mu.Lock()
			for n := range uint64(heads.count - 1) {
				p := letterHead{owner: who.Owner, name: "sink/x", speaker: "eve", seq: 10 + n, size: heads.size}
				dead.known[letterKey(p.owner, p.name, "", p.seq)] = p
			}
			if name == "by bytes" {
				p := letterHead{owner: who.Owner, name: "sink/x", speaker: "eve", seq: 9, size: heads.size - 300}
				dead.known[letterKey(p.owner, p.name, "", p.seq)] = p
			}
			dead.mu.Unlock()
			if err := errors.Join(add(20_000, "web2"), add(20_001, "web3"), add(20_002, "eve")); err != nil {
				t.Errorf("where all space is used up: %v", err)
			}
			dead.mu.Lock()
			defer dead.mu.Unlock()
			for _, seq := range []uint64{1, 20_000, 20_001, 20_002} {
				if _, kept := dead.known[letterKey(who.Owner, "sink/x", "", seq)]; !kept {
					t.Errorf("the dead letter %d is not kept", seq)
				}
			}
			if dead.gaveWay.Load() == 0 || len(dead.known) > 10_000 {
				t.Errorf("%d gave way, %d are kept", dead.gaveWay.Load(), len(dead.known))
			}
		})
	}
}

// TestDeadLettersOfManySendersGiveWay: when senders have filled the space together, the oldest of the
// one with the most gives way, and no handler stops. The log names it, and it is counted. Most of these
// are only counted here, not stored.
func TestDeadLettersOfManySendersGiveWay(t *testing.T) {
	w := start(t)
	var log bytes.Buffer
	dead := w.events.dead
	dead.log = slog.New(slog.NewTextHandler(&log, nil))
	add := func(seq uint64, from, reason string) error {
		return dead.Add(t.Context(), &protocol.DeadLetter{Name: "deploy", Seq: seq, From: from, Reason: reason})
	}
	if err := errors.Join(add(1, "quiet", ""), add(2, "", "of the master itself")); err != nil {
		t.Fatal(err)
	}
	dead.mu.Lock()
	for n := range uint64(9_998) { // the number, not the constant: the limit is also documented
		p := letterHead{owner: daemonOwner, name: "deploy", speaker: fmt.Sprint("web", n%24), seq: 10 + n}
		dead.known[letterKey(p.owner, p.name, "", p.seq)] = p
	}
	dead.mu.Unlock()
	if err := add(2, "", "handled again"); err != nil || dead.gaveWay.Load() != 0 {
		t.Errorf("one that is there already: %v, and %d gave way", err, dead.gaveWay.Load())
	}
	if err := errors.Join(add(20_000, "db1", ""), add(20_001, "", "")); err != nil {
		t.Errorf("where all space is used up: %v", err)
	}
	if err := add(20_002, "db1", strings.Repeat("\u00e9", maxWords)); err != nil {
		t.Errorf("with a reason without end: %v", err)
	}
	dead.mu.Lock()
	defer dead.mu.Unlock()
	for seq, want := range map[uint64]bool{1: true, 2: true, 10: false, 11: false, 12: false, 13: true, 20_000: true, 20_001: true, 20_002: true} {
		if _, kept := dead.known[letterKey(daemonOwner, "deploy", "", seq)]; kept != want {
			t.Errorf("the dead letter %d is kept: %t, want %t", seq, kept, want)
		}
	}
	if n := w.events.Figures(t.Context()).DeadDropped; n != 3 || len(dead.known) != 10_000 {
		t.Errorf("%d gave way, %d are kept", n, len(dead.known))
	}
	for _, words := range []string{"from=web0 handler=deploy seq=10 ", "from=web1 handler=deploy seq=11 ", "from=web2 handler=deploy seq=12 "} {
		if !strings.Contains(log.String(), words) {
			t.Errorf("the log does not name %q:\n%s", words, &log)
		}
	}
}
