package logging

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// What repeats is told a few times in a minute, and again in the next.
func TestThrottle(t *testing.T) {
	var th Throttle
	now := time.Now()
	for i, want := range []bool{true, true, false, false} {
		if got := th.Few("eve", now.Add(time.Duration(i)*time.Second), 2); got != want {
			t.Errorf("word %d on eve is told: %t, want %t", i, got, want)
		}
	}
	if !th.First("fred", now) || th.First("fred", now.Add(throttlePause-1)) || !th.First("fred", now.Add(throttlePause)) {
		t.Error("fred is not told of once a minute")
	}
	if !th.Few("eve", now.Add(throttlePause), 2) {
		t.Error("eve is not told of in the next minute")
	}
	var said bytes.Buffer
	lines := func(n int) string {
		said.Reset()
		for range n {
			th.Log(slog.New(slog.NewTextHandler(&said, nil)), slog.LevelWarn, "lines", 2, "again", "who", "eve")
		}
		return said.String()
	}
	if text := lines(7); strings.Count(text, "\n") != 2 || strings.Contains(text, "repeated") || !strings.Contains(text, "level=WARN msg=again who=eve") {
		t.Errorf("seven lines are %q", text)
	}
	th.seen["lines"] = burst{time.Now().Add(-throttlePause), th.seen["lines"].count}
	if text := lines(2); strings.Count(text, "\n") != 2 || strings.Count(text, "repeated=5") != 1 {
		t.Errorf("a minute later they are %q", text)
	}
	for i := range 3 * maxThrottled {
		th.First(fmt.Sprint(i), now)
	}
	if len(th.seen) > maxThrottled {
		t.Errorf("%d things are remembered", len(th.seen))
	}
}
