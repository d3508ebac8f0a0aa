package eventbus

import (
	"encoding/json"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// TestListenersOfLongEventsHoldLittle: listeners that do not read long events hold one or two
// of them in memory together, whether the events are new or read from the journal. Meanwhile
// root, who also listens, gets all of them, and listeners that are not in a long event get
// shorter ones.
func TestListenersOfLongEventsHoldLittle(t *testing.T) {
	const listeners, events, size = 12, 2, 3 * rpc.Window // more than may be under way to one of them
	w := startWith(t, func(s *rpc.Server) { s.Stall = time.Hour })
	w.events.limit = 2 * size
	w.grant("fred: {listen: 'n/*'}\nanna: {listen: 'n/*'}\n")
	root := w.dial()
	hears := w.mustListen(root, protocol.Listen{Tags: []string{"n/"}})
	first := w.mustFire(root, "n/begin")
	hears.wantTag("n/begin")
	w.as("fred")
	fred := w.dial()
	for range listeners / 2 {
		w.mustListen(fred, protocol.Listen{Tags: []string{"n/"}})
	}
	w.as("")
	before := inUse()
	for range events {
		data := json.RawMessage(`"` + strings.Repeat("y", size) + `"`)
		if _, err := w.fire(root, event.Item{Tag: "n/long", Data: data}); err != nil {
			t.Fatal(err)
		}
		hears.wantTag("n/long")
	}
	w.as("fred")
	for range listeners / 2 {
		w.mustListen(fred, protocol.Listen{Tags: []string{"n/"}, FromSeq: first})
	}
	w.as("anna")
	late := w.mustListen(w.dial(), protocol.Listen{Tags: []string{"n/"}})
	w.as("")
	w.mustFire(root, "n/end")
	late.wantTag("n/end")
	hears.wantTag("n/end")
	// The window, a turn or two, and what is under way to the listeners with a turn.
	if held := inUse() - before; held > 6*size {
		t.Errorf("%d listeners that take nothing of events of %d MiB hold %d MiB", listeners, size>>20, held>>20)
	}
}

// A listener that does not read a long event releases its turn to another principal that waits.
// When it reads at last, it still gets the whole event and the events after it, whether live or
// from the journal.
func TestASlowListenerReleasesItsTurn(t *testing.T) {
	const size = rpc.Window * 3 / 2 // more than may be under way
	w := startWith(t, func(s *rpc.Server) { s.Stall = time.Hour })
	w.events.limit = 2 * size
	w.grant("fred: {listen: 'n/*'}\n")
	root := w.dial()
	hears := w.mustListen(root, protocol.Listen{Tags: []string{"n/"}})
	first := w.mustFire(root, "n/begin")
	hears.wantTag("n/begin")
	long := strings.Repeat("y", size)
	fire := func(ending string) {
		if _, err := w.fire(root, event.Item{Tag: "n/long", Data: json.RawMessage(`"` + long + ending + `"`)}); err != nil {
			t.Fatal(err)
		}
		hears.wantTag("n/long")
	}
	busy, err := w.events.long.Acquire(w.bounded(), "user:2")
	if err != nil {
		t.Fatal(err)
	}
	defer busy()
	turn := func() {
		t.Helper()
		// A listener that reads nothing keeps its turn while no other waits for one: this does
		// not request one.
		w.await("the listener has its turn", func() bool { return w.events.long.Held() == 2 })
		end, err := w.events.long.Acquire(w.bounded(), "user:3")
		if err != nil {
			t.Fatalf("another principal waits in vain for whoever takes nothing: %v", err)
		}
		end()
	}
	for _, q := range []protocol.Listen{{}, {FromSeq: first}} {
		w.as("fred")
		q.Tags = []string{"n/"}
		c := w.dial()
		slow := w.mustListen(c, q)
		w.as("")
		fire("live")
		w.mustFire(root, "n/end")
		hears.wantTag("n/end")
		turn()
		if q.FromSeq > 0 {
			slow.wantTag("n/begin")
			slow.wantLong(long + "live")
			slow.wantTag("n/end")
		}
		slow.wantLong(long + "live")
		slow.wantTag("n/end")
		c.Close()
		w.await("of one principal the next waits for it", func() bool { return w.listeners() == 1 })
	}
}

func (h *hearing) wantLong(text string) {
	h.w.t.Helper()
	if got := h.wantTag("n/long"); string(got.Data) != strconv.Quote(text) {
		h.w.t.Errorf("the long event came otherwise: %.60s", got.Data)
	}
}

// inUse returns how many bytes of the heap are reachable.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
