package logging

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
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
}

// TestALimitOutlastsManyNames: whoever invents names without end does not make the limit of all of them together
// begin anew, and the names fill no memory.
func TestALimitOutlastsManyNames(t *testing.T) {
	var th Throttle
	now, told := time.Now(), 0
	for i := range 3 * maxThrottled {
		if th.First(fmt.Sprint(i), now) && th.Few("all", now, 5) {
			told++
		}
		if n := len(th.seen) + len(th.old); n > maxThrottled {
			t.Fatalf("%d things are remembered", n)
		}
	}
	if told != 5 {
		t.Errorf("%d names are told, want 5", told)
	}
	if left, tell := th.Count("all", now.Add(throttlePause), 5); left != 3*maxThrottled-5 || !tell {
		t.Errorf("in the next minute %d were left out, and it is told: %t", left, tell)
	}
	th.First("again", now)
	th.Undo("again")
	if !th.First("again", now) {
		t.Error("what was taken back counts")
	}
}

// TestTheLastLineSaysThatMoreAreCounted: otherwise what is only limited seems to have ended.
func TestTheLastLineSaysThatMoreAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var th Throttle
		lines := func(n int) string {
			var said bytes.Buffer
			for range n {
				th.LogMarked(slog.New(slog.NewTextHandler(&said, nil)), slog.LevelWarn, "twin", 3, "again", "who", "eve")
			}
			return said.String()
		}
		if text := lines(2); strings.Count(text, "\n") != 2 || strings.Contains(text, "counted") {
			t.Errorf("two of three lines are %q", text)
		}
		if text := lines(5); strings.Count(text, "\n") != 1 || !strings.Contains(text, `who=eve more="only counted`) {
			t.Errorf("the last line is %q", text)
		}
		time.Sleep(throttlePause)
		if text := lines(1); !strings.Contains(text, "repeated=4") || strings.Contains(text, "counted") {
			t.Errorf("a minute later the line is %q", text)
		}
	})
}
