package rpc

import (
	"strconv"
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	const perSecond, burst = 100, 200
	p, now := paces{perSecond: perSecond}, time.Unix(1_700_000_000, 0)
	cuts := 0
	count := func(principal string, tries int) (taken int) {
		for range tries {
			_, ok, cut := p.take(principal, 1, now)
			if ok {
				taken++
			}
			if cut {
				cuts++
			}
		}
		return taken
	}
	if n := count("minion:a", burst+250); n != burst || cuts != 2 {
		t.Errorf("at once %d were taken and it was cut %d times, want %d and 2", n, cuts, burst)
	}
	if n := count("minion:b", 10); n != 10 {
		t.Errorf("of another %d were taken, want 10", n)
	}
	now = now.Add(time.Second)
	if n := count("minion:a", perSecond+60); n != perSecond || cuts != 3 {
		t.Errorf("a second later %d were taken and it was cut %d times, want %d and 3: it did not come to rest", n, cuts, perSecond)
	}
	now = now.Add(time.Hour)
	if n := count("minion:a", burst+90); n != burst || cuts != 3 {
		t.Errorf("an hour later %d were taken and it was cut %d times, want %d and 3", n, cuts, burst)
	}
	for i := range 2 * maxPaced {
		p.take(strconv.Itoa(i), 1, now)
	}
	if len(p.of) > maxPaced {
		t.Errorf("%d principals are remembered, the limit is %d", len(p.of), maxPaced)
	}
}

// TestPaceIsKeptBeforeAnythingIsRefused: long before a sender is refused it is not read
// from, for as long as it is ahead.
func TestPaceIsKeptBeforeAnythingIsRefused(t *testing.T) {
	p, now := paces{perSecond: 1000}, time.Unix(1_700_000_000, 0)
	var pushed time.Duration
	for n := range 3000 {
		ahead, taken, _ := p.take("minion:a", 1, now)
		switch {
		case !taken:
			t.Fatalf("the request %d is refused: it was read though it was ahead", n)
		case n < 50 && ahead > 0:
			t.Fatalf("after %d requests it is not heard for %s", n, ahead)
		}
		now = now.Add(ahead) // as a reader that keeps to it
		pushed += ahead
	}
	if least := 2900 * time.Millisecond; pushed < least {
		t.Errorf("3000 requests were read within %s, want at least %s", pushed, least)
	}
}
