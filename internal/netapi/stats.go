package netapi

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// showStats returns the statistics, under the names that clients of CherryPy expect.
func showStats(r *request) error {
	if err := r.acceptable(); err != nil {
		return err
	}
	s := &r.s.stats
	up := max(time.Since(s.started).Seconds(), 1e-3)
	n, in, out := s.requests.Load(), s.read.Load(), s.written.Load()
	return r.send(http.StatusOK, map[string]any{"CherryPy Applications": map[string]any{
		"Enabled":               true,
		"Start Time":            seconds(s.started),
		"Current Time":          seconds(time.Now()),
		"Uptime":                up,
		"Total Requests":        n,
		"Current Requests":      s.current.Load(),
		"Requests/Second":       float64(n) / up,
		"Total Bytes Read":      in,
		"Total Bytes Written":   out,
		"Bytes Read/Second":     float64(in) / up,
		"Bytes Written/Second":  float64(out) / up,
		"Bytes Read/Request":    float64(in) / float64(n),
		"Bytes Written/Request": float64(out) / float64(n),
		"Refused Requests":      s.refused.Load(),
		"Event Streams":         s.streams.Load(),
		"Sessions":              int64(r.s.sessions.count()),
	}})
}

// showMetrics returns the same, and how near the limits are, for Prometheus. No label has a
// value that a caller can choose.
func showMetrics(r *request) error {
	s, l := &r.s.stats, r.s.limits
	l.mu.Lock()
	working, positions := l.underWay["work"], l.underWay["position"]
	l.mu.Unlock()
	r.s.pool.mu.Lock()
	conns := r.s.pool.placed("")
	r.s.pool.mu.Unlock()
	var b strings.Builder
	for _, m := range []struct {
		name, kind, help string
		value            int64
	}{
		{"event_streams", "gauge", "Event streams that are open.", s.streams.Load()},
		{"master_connections", "gauge", "Connections to the master that sessions and requests with a login of their own have.", int64(conns)},
		{"position_streams", "gauge", "Event streams with a position.", int64(positions)},
		{"read_bytes_total", "counter", "Bytes of the bodies of requests.", s.read.Load()},
		{"refused_total", "counter", "Requests that were refused, or have failed here.", s.refused.Load()},
		{"requests", "gauge", "Requests under way.", s.current.Load()},
		{"requests_total", "counter", "Requests.", s.requests.Load()},
		{"sessions", "gauge", "Sessions.", int64(r.s.sessions.count())},
		{"start_time_seconds", "gauge", "When the program was started, in seconds since 1970.", s.started.Unix()},
		{"working_requests", "gauge", "Requests that the master works on.", int64(working)},
		{"written_bytes_total", "counter", "Bytes of answers.", s.written.Load()},
	} {
		fmt.Fprintf(&b, "# HELP salt_api_%[1]s %[2]s\n# TYPE salt_api_%[1]s %[3]s\nsalt_api_%[1]s %[4]d\n", m.name, m.help, m.kind, m.value)
	}
	r.w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	return r.content(strings.NewReader(b.String()), int64(b.Len()))
}
