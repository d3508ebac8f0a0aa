package membership

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/brinebus/brine/test/capture"
)

// TestClockAhead: of a clock that was read between a question and its answer only the difference counts that
// no delay can explain.
func TestClockAhead(t *testing.T) {
	sent := time.Now()
	received := sent.Add(2 * time.Second)
	for name, c := range map[string]struct {
		other time.Time
		want  time.Duration
	}{
		"ahead":           {received.Add(3 * time.Minute), 3 * time.Minute},
		"behind":          {sent.Add(-time.Hour), -time.Hour},
		"as it was sent":  {sent, 0},
		"within":          {sent.Add(time.Second), 0},
		"as it came back": {received, 0},
		"in another zone": {received.Add(time.Minute).In(time.FixedZone("", 3600)), time.Minute},
	} {
		other := c.other.Round(0) // it comes as text, which has only the time of day
		if got := clockAhead(sent, other, received); got == nil || *got != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
	if got := clockAhead(sent, time.Time{}, received); got != nil {
		t.Errorf("a member of an earlier version, which does not tell its time, is %s ahead", *got)
	}
}

// TestAClockIsLoggedOnce: a difference is logged when it comes and when it goes, and one at the bound not
// again and again.
func TestAClockIsLoggedOnce(t *testing.T) {
	var out capture.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	var c clocks
	for _, step := range []struct {
		ahead time.Duration
		logs  string
	}{
		{9 * time.Second, ""}, {179600 * time.Millisecond, "WARN ahead=3m0s"}, {11 * time.Second, ""}, {9 * time.Second, ""}, {11 * time.Second, ""},
		{4 * time.Second, "INFO"}, {-9 * time.Second, ""}, {-11 * time.Second, "WARN ahead=-11s"}, {0, "INFO"},
	} {
		before := len(out.String())
		c.compare(map[string]said{"m2": {ahead: &step.ahead}, "earlier": {}}, log)
		got := out.String()[before:]
		for _, want := range strings.Fields(step.logs) {
			if !strings.Contains(got, want) || !strings.Contains(got, "member=m2") {
				t.Errorf("%s ahead: logged %q, want %s", step.ahead, got, want)
			}
		}
		if lines := strings.Count(got, "\n"); lines != min(1, len(step.logs)) {
			t.Errorf("%s ahead: logged %q", step.ahead, got)
		}
	}
}
