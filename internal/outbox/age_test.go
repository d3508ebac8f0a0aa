package outbox

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/test/bustest"
)

// TestTheAgeOfAMessageNeedsNoClock: between two runs of a minion the clock of its machine may be set, or the
// machine be off: only the time in which the minion runs makes a message older. All of that counts.
func TestTheAgeOfAMessageNeedsNoClock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := func(f func(b *Box)) {
		t.Helper()
		b, _, stop := openBox(t, dir, nil)
		f(b)
		b.close()
		stop()
	}
	left := func(b *Box, age time.Duration) uint64 {
		t.Helper()
		b.age = age
		if _, err := b.turn(t.Context()); err != nil {
			t.Fatal(err)
		}
		return b.Waiting()
	}
	const age, ran = 8 * time.Second, 300 * time.Millisecond
	var put time.Time
	run(func(b *Box) {
		if err := b.Put(t.Context(), Outgoing{Op: protocol.OpFire, Body: json.RawMessage(`{}`), Events: 1}); err != nil {
			t.Fatal(err)
		}
		put = time.Now()
		bustest.Until(t, "it has run", func() bool { return time.Since(put) > ran })
	})
	bustest.Until(t, "the clock is ahead", func() bool { return time.Since(put) > age })
	run(func(b *Box) {
		if n := left(b, age); n != 1 {
			t.Error("a message is dropped that has waited less than outbox_max_age while the minion ran")
		}
	})
	run(func(b *Box) {
		if n := left(b, ran); n != 0 {
			t.Error("a message stays that has waited longer than outbox_max_age, in several runs")
		}
		if b.Lost() != 1 {
			t.Errorf("%d are counted as lost", b.Lost())
		}
	})
}
