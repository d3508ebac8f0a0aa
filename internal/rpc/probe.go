package rpc

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// probeToken takes the place of the sender's name in the subjects of probes. It is not a valid
// name: a percent sign alone is not an escaped byte.
const probeToken = "%"

// Probe sends a probe the way of the requests, through each subscription, and calls back when
// all have arrived: then everything sent before has been handled, too. looked is how many
// messages were handled since the previous probe. There is one probe at a time.
func (s *Server) Probe(back func(looked int)) error {
	requests, windows, acks := s.endpoints.Subjects()
	all := slices.Concat(requests, windows, acks)
	s.probes.begin(len(all), back)
	for _, subject := range all {
		if err := s.nc.Publish(strings.ReplaceAll(subject, "*", probeToken), nil); err != nil {
			return err
		}
	}
	return nil
}

func isProbe(subject string) bool { return strings.Contains(subject, "."+probeToken+".") }

// probes counts the parts of a probe that have not come back.
type probes struct {
	looked atomic.Int64 // messages since the previous one
	mu     sync.Mutex
	left   int
	done   func(looked int)
}

func (m *probes) begin(parts int, done func(int)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left, m.done = parts, done
}

func (m *probes) back() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left--; m.left == 0 {
		m.done(int(m.looked.Swap(0)))
	}
}
