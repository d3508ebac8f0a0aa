package eventbus

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// fireLive hands events out without storing them.
func (w *world) fireLive(c *rpc.Conn, tags ...string) error {
	w.t.Helper()
	q := protocol.Fire{Live: true}
	for _, tag := range tags {
		q.Events = append(q.Events, event.Item{Tag: tag, Data: json.RawMessage(`{"a":1}`)})
	}
	var fired protocol.Fired
	err := c.Ask(w.bounded(), protocol.OpFire, q, &fired)
	if err == nil && (fired.Outcome != protocol.Handed || fired.Seq != 0) {
		w.t.Errorf("answered %+v", fired)
	}
	return err
}

// TestLiveEventsAreHeardAndNotStored: listeners that request such events get them at once,
// between stored events and in the order in which one sender fired them, with the verified
// sender and without a sequence. They cannot be read later, and a listener with a position does
// not get them.
func TestLiveEventsAreHeardAndNotStored(t *testing.T) {
	w := start(t)
	c := w.dial()
	live, old := w.mustListen(c, protocol.Listen{Live: true}), w.mustListen(c, protocol.Listen{})
	late := w.mustListen(c, protocol.Listen{Live: true, FromSeq: 1})
	durable := w.mustListen(w.dial(), protocol.Listen{Durable: "d"})
	var want []string
	for n := range 5 {
		if err := w.fireLive(c, fmt.Sprintf("live/%d", n), "live/more"); err != nil {
			t.Fatal(err)
		}
		w.mustFire(c, fmt.Sprintf("stored/%d", n))
		want = append(want, fmt.Sprintf("live/%d", n), "live/more", fmt.Sprintf("stored/%d", n))
	}
	for _, h := range []*hearing{live, late} {
		for _, tag := range want {
			e := h.wantTag(tag)
			if stored := strings.HasPrefix(tag, "stored/"); stored != (e.Seq > 0) || e.From != "user:root" || !strings.Contains(string(e.Data), `"_stamp":"`) {
				t.Errorf("heard %+v", e)
			}
		}
	}
	for n := range 5 {
		old.wantTag(fmt.Sprintf("stored/%d", n))
		durable.wantTag(fmt.Sprintf("stored/%d", n))
	}
	if got := w.mustListen(c, protocol.Listen{FromSeq: 1, UntilEnd: true}).tags(); len(got) != 5 {
		t.Errorf("stored are %q", got)
	}
	if last, err := w.events.journal.Last(t.Context()); err != nil || last != 5 {
		t.Errorf("the journal ends at %d, %v", last, err)
	}
	for name, q := range map[string]protocol.Listen{"position": {Live: true, Durable: "d"}, "end": {Live: true, UntilEnd: true}} {
		if _, err := w.listen(c, q); rpc.CodeOf(err) != rpc.Usage {
			t.Errorf("a live listener with %s: %v", name, err)
		}
	}
}

// TestLiveEventsNeedTheSameGrants: the same rules say who may fire and receive an event, and
// the same limits apply, whether or not it is stored.
func TestLiveEventsNeedTheSameGrants(t *testing.T) {
	w := start(t)
	c := w.dial()
	w.grant("bob: {fire: mine/*, listen: heard/*}")
	w.as("bob")
	ears := w.mustListen(c, protocol.Listen{Live: true})
	w.as("eve")
	if _, err := w.listen(c, protocol.Listen{Live: true}); rpc.CodeOf(err) != rpc.Denied {
		t.Errorf("eve listens: %v", err)
	}
	for user, tags := range map[string][]string{"eve": {"mine/1"}, "bob": {"other", "heard/1", "salt/job/x", "salt/audit/x"}, "": {"salt/audit/x"}} {
		w.as(user)
		for _, tag := range tags {
			if err := w.fireLive(c, "mine/ok", tag); rpc.CodeOf(err) != rpc.Denied {
				t.Errorf("%q fires %q: %v", user, tag, err)
			}
		}
	}
	for name, e := range map[string]event.Item{
		"no tag": {}, "no JSON": {Tag: "a", Data: json.RawMessage(`{"a":`)}, "too large": {Tag: "a", Data: json.RawMessage(`"` + strings.Repeat("x", limit) + `"`)},
	} {
		q := protocol.Fire{Live: true, Events: []event.Item{{Tag: "heard/no"}, e}}
		if err := c.Ask(w.bounded(), protocol.OpFire, q, nil); err == nil {
			t.Errorf("%s: fired", name)
		}
	}
	w.as("")
	if err := errors.Join(w.fireLive(c, "mine/ok", "other"), w.fireLive(c, "heard/2")); err != nil {
		t.Fatal(err)
	}
	ears.wantTag("heard/2")
}

// TestLiveEventsOfASlowListener: a listener reads nothing while many events pass. It uses a
// bounded amount of memory, is informed how many it has missed, and gets what is stored.
func TestLiveEventsOfASlowListener(t *testing.T) {
	w := start(t)
	c := w.dial()
	h := w.mustListen(w.dial(), protocol.Listen{Live: true})
	const batches, each = 60, 1000
	q := protocol.Fire{Live: true}
	for range each {
		q.Events = append(q.Events, event.Item{Tag: "live", Data: json.RawMessage(`"` + strings.Repeat("z", 1000) + `"`)})
	}
	for range batches {
		if err := c.Ask(w.bounded(), protocol.OpFire, q, nil); err != nil {
			t.Fatal(err)
		}
	}
	w.mustFire(c, "stored")
	heard, missed := uint64(0), uint64(0)
	h.onProgress = func(m protocol.Progress) { missed += m.Missed }
	for {
		e, err := h.next()
		if err != nil {
			t.Fatal(err)
		}
		if e.Tag == "stored" {
			break
		}
		heard++
	}
	w.mustFire(c, "end") // the message about missed events comes between the two
	h.wantTag("end")
	if missed == 0 || heard+missed != batches*each {
		t.Errorf("%d of %d heard, %d missed", heard, batches*each, missed)
	}
	if n := len(w.events.tail.lines); n > windowLines {
		t.Errorf("%d lines are held", n)
	}
}

func TestTailKeepsTheOrder(t *testing.T) {
	w := start(t)
	x := &tail{tap: w.events.journal.Tap, log: w.bus.Log}
	x.offer([]line{{text: []byte("nobody\n")}})
	x.join()
	defer x.leave()
	text := func(seq uint64) journal.Text {
		return journal.Text{Seq: seq, Body: event.Event{Tag: fmt.Sprint("s", seq), Data: json.RawMessage("1")}.Append(nil), Pieces: 1}
	}
	live := func(name string) line { return line{head: event.Head{Tag: name}, text: []byte(name + "\n")} }
	x.offer([]line{live("a")})
	x.take([]journal.Text{text(1), text(2)})
	x.offer([]line{live("b"), live("c")})
	x.take([]journal.Text{text(3)})
	tags := func(at uint64) (tags []string) {
		lines, _, ok := x.after(at, make([]line, 0, 100))
		if !ok {
			return []string{"left"}
		}
		for _, l := range lines {
			tags = append(tags, l.head.Tag)
		}
		return tags
	}
	first, _, _ := x.locate(1)
	for name, step := range map[string]struct {
		next  uint64
		lives uint64
		want  []string
	}{
		"all": {1, 1, []string{"s1", "s2", "b", "c", "s3"}}, "middle": {2, 1, []string{"s2", "b", "c", "s3"}},
		"last": {3, 3, []string{"s3"}}, "end": {4, 3, nil}, "ahead": {9, 3, nil},
	} {
		at, lives, ok := x.locate(step.next)
		if got := tags(at); !ok || lives != step.lives || !slices.Equal(got, step.want) {
			t.Errorf("%s: %q after %d that are not stored, want %q after %d", name, got, lives, step.want, step.lives)
		}
	}
	end, _, _ := x.locate(4)
	x.take([]journal.Text{{Seq: 7}}) // this must be read from the journal
	if got := tags(end); !slices.Equal(got, []string{"left"}) {
		t.Errorf("who had seen all does not read what is in the journal only: %q", got)
	}
	if got := tags(first); !slices.Equal(got, []string{"left"}) {
		t.Errorf("what has left the window is there: %q", got)
	}
	if _, _, ok := x.locate(7); ok {
		t.Error("a sequence in the window for what is in the journal only")
	}
	x.offer([]line{live("d")})
	if at, lives, ok := x.locate(8); !ok || lives != 4 || len(tags(at)) != 0 {
		t.Errorf("behind the journal: %q after %d, %v", tags(at), lives, ok)
	}
}

// TestDiscardedWhileItWasSlow: a listener that falls behind what the journal keeps is informed
// how many events it did not get.
func TestDiscardedWhileItWasSlow(t *testing.T) {
	w := start(t)
	c := w.dial()
	h := w.mustListen(w.dial(), protocol.Listen{Tags: []string{"n"}})
	data := json.RawMessage(`"` + strings.Repeat("z", 4000) + `"`)
	const batches, each = 14, 1000
	for range batches {
		events := make([]event.Item, each)
		for i := range events {
			events[i] = event.Item{Tag: "n", Data: data}
		}
		if _, err := w.fire(c, events...); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.events.journal.Purger().PurgeBefore(t.Context(), batches*each-1000); err != nil {
		t.Fatal(err)
	}
	lost := uint64(0)
	h.onProgress = func(m protocol.Progress) { lost += m.Lost }
	heard := uint64(0)
	for last := uint64(0); last < batches*each; heard++ {
		e, err := h.next()
		if err != nil || e.Seq <= last {
			t.Fatalf("heard %d after %d, %v", e.Seq, last, err)
		}
		last = e.Seq
	}
	w.mustFire(c, "n") // the message about lost events comes between the two
	h.wantTag("n")
	if lost == 0 || heard+lost != batches*each {
		t.Errorf("%d of %d heard, %d lost", heard, batches*each, lost)
	}
}
