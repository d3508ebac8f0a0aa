package netapi

import (
	"net/http"
	"time"
)

// showStats shows what was served, below the names that clients of CherryPy look for.
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
