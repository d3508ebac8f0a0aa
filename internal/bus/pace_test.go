package bus

import (
	"strconv"
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	const perSecond, burst = 100, 200
	p, now := paces{perSecond: perSecond}, time.Unix(1_700_000_000, 0)
	cuts := 0
	count := func(asker string, tries int) (taken int) {
		for range tries {
			ok, cut := p.take(asker, now)
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
		p.take(strconv.Itoa(i), now)
	}
	if len(p.of) > maxPaced {
		t.Errorf("%d askers are remembered, the limit is %d", len(p.of), maxPaced)
	}
}
