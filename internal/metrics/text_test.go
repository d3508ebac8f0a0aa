package metrics

import (
	"math"
	"strings"
	"sync"
	"testing"
)

// TestText has the awkward cases of the text format: https://prometheus.io/docs/instrumenting/exposition_formats/.
func TestText(t *testing.T) {
	var b strings.Builder
	write(&b, []Sample{
		Jobs.Is(math.Inf(1), "waiting"), Keys.Is(1, "quote\"backslash\\line\nend"), ListenerLag.Is(2, "root", "b"), ListenerLag.Is(3, "root", "a"),
		Jobs.Is(math.NaN(), "running"), Keys.Is(2, "\xff"), Listeners.Is(0.1), ListenerLag.Is(4, "root", "b"),
	})
	const want = `# HELP salt_jobs Jobs that the daemon has under way, by their state.
# TYPE salt_jobs gauge
salt_jobs{state="running"} NaN
salt_jobs{state="waiting"} +Inf
# HELP salt_keys Keys of minions, by their state.
# TYPE salt_keys gauge
salt_keys{state="quote\"backslash\\line\nend"} 1
salt_keys{state="\uFFFD"} 2
# HELP salt_listener_lag_events Events that a durable listener has not confirmed yet. Of many listeners those with the most.
# TYPE salt_listener_lag_events gauge
salt_listener_lag_events{user="root",listener="a"} 3
salt_listener_lag_events{user="root",listener="b"} 2
# HELP salt_listeners Durable listeners whose position is kept.
# TYPE salt_listeners gauge
salt_listeners 0.1
`
	if got := b.String(); got != strings.ReplaceAll(want, `\uFFFD`, "\uFFFD") {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestLatency(t *testing.T) {
	var l Latency
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, seconds := range []float64{0, 0.005, 0.006, 3600, 3601} {
				l.Observe(seconds)
			}
		})
	}
	wg.Wait()
	var b strings.Builder
	l.write(&b, "x", "help")
	for _, want := range []string{
		"# TYPE x histogram\n", `x_bucket{le="0.005"} 8`, `x_bucket{le="0.01"} 12`, `x_bucket{le="300"} 12`, `x_bucket{le="3600"} 16`, `x_bucket{le="+Inf"} 20`,
		"x_sum 28804.044\n", "x_count 20\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
