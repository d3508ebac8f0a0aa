package eventbus

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// TestCostlyPatternsHaveABudget: a listener whose pattern takes long for each tag is ended with
// that reason; the next listener of the same user is ended earlier, and those of other users
// are not.
func TestCostlyPatternsHaveABudget(t *testing.T) {
	w := start(t)
	c := w.dial()
	tags := make([]string, 400)
	for i := range tags {
		tags[i] = fmt.Sprintf("a/%s/%d!", strings.Repeat("a", 16), i)
	}
	w.mustFire(c, tags...)
	q := protocol.Listen{Match: event.Regex, Tags: []string{`a/(?=(a+)+$)x`}, FromSeq: 1, UntilEnd: true}
	for range 2 {
		begun := time.Now()
		h := w.mustListen(w.dial(), q)
		// On a busy machine, one tag may take longer than its limit.
		if _, err := h.next(); rpc.CodeOf(err) != rpc.Usage || !strings.Contains(err.Error(), "a listener has 1s") && !strings.Contains(err.Error(), "took too long") {
			t.Fatalf("a costly listener: %v after %s", err, time.Since(begun))
		}
		t.Logf("stopped after %s", time.Since(begun))
	}
	plain := w.mustListen(w.dial(), protocol.Listen{FromSeq: 1, UntilEnd: true})
	if got := len(plain.tags()); got != len(tags) {
		t.Errorf("a listener without such a pattern hears %d of %d", got, len(tags))
	}
}

// TestEffort: a budget is used up, and refilled with time.
func TestEffort(t *testing.T) {
	var e effort
	now := time.Now()
	for i, one := range []struct {
		after, spend time.Duration
		enough       bool
	}{
		{0, time.Second, true}, {0, time.Millisecond, false}, {time.Second, 0, true}, {time.Second, time.Second, false}, {time.Minute, time.Second, true},
	} {
		now = now.Add(one.after)
		if got := e.spend(one.spend, time.Second, now); got != one.enough {
			t.Errorf("step %d: %t, want %t", i, got, one.enough)
		}
	}
	var all efforts
	if !all.spend("ann", effortOfPrincipal, now) || all.spend("ann", time.Millisecond, now) || !all.spend("bob", time.Second, now) {
		t.Error("the budget of a principal is not its own")
	}
	if all.spend("bob", 0, now.Add(time.Hour)); len(all.of) != 1 {
		t.Errorf("%d budgets are remembered, want 1", len(all.of))
	}
}
