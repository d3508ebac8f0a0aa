package metrics

import (
	"fmt"
	"io"
	"sync"
)

// latencyBounds are the upper bounds of the buckets of a Latency, in seconds.
var latencyBounds = [...]float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600}

// Latency records durations in seconds: a histogram. It may be used concurrently. The zero value
// is ready.
type Latency struct {
	mu     sync.Mutex
	counts [len(latencyBounds) + 1]uint64 // for each bound those that are not below it; the last has the rest
	sum    float64
}

// Observe records one duration.
func (l *Latency) Observe(seconds float64) {
	i := 0
	for i < len(latencyBounds) && seconds > latencyBounds[i] {
		i++
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[i]++
	l.sum += seconds
}

// write writes the histogram. Each of its buckets includes those before.
func (l *Latency) write(w io.Writer, name, help string) {
	l.mu.Lock()
	counts, sum := l.counts, l.sum
	l.mu.Unlock()
	writeHead(w, name, help, "histogram")
	total := uint64(0)
	for i, bound := range latencyBounds {
		total += counts[i]
		fmt.Fprintf(w, "%s_bucket{le=\"%s\"} %d\n", name, number(bound), total)
	}
	total += counts[len(latencyBounds)]
	fmt.Fprintf(w, "%[1]s_bucket{le=\"+Inf\"} %[2]d\n%[1]s_sum %[3]s\n%[1]s_count %[2]d\n", name, total, number(sum))
}
