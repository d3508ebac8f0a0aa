package eventbus

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// TestListenersOfLongEventsHoldLittle: listeners that take nothing of long events have one or
// two of those in memory together, whether they hear them as they come or read them back.
// Root, who listens too, gets all of them meanwhile, and an event that is not long goes to
// whoever has nothing else to take.
func TestListenersOfLongEventsHoldLittle(t *testing.T) {
	const listeners, events, size = 12, 2, 3 * rpc.Window // more than may be under way to one of them
	w := start(t)
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
		if _, err := w.fire(root, protocol.FireEvent{Tag: "n/long", Data: data}); err != nil {
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
	// The window, a turn or two, and what is on the way to those who have it.
	if held := inUse() - before; held > 6*size {
		t.Errorf("%d listeners that take nothing of events of %d MiB hold %d MiB", listeners, size>>20, held>>20)
	}
}

// inUse is how many bytes of the heap are reachable.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
