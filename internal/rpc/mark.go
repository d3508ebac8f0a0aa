package rpc

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/brinebus/brine/internal/bus"
)

// markToken stands for the name of whoever asks in the subjects of marks. No name is
// written so: a single percent sign is no escaped byte.
const markToken = "%"

// Mark sends a mark the way that requests go, through each subscription, and calls back
// when all were looked at: then everything that was sent before has been, too. looked is
// how many messages that were since the mark before. There is one mark at a time.
func (s *Server) Mark(back func(looked int)) error {
	all := slices.Concat(bus.RequestSubjects, bus.CreditSubjects, bus.AckSubjects)
	s.marks.begin(len(all), back)
	for _, subject := range all {
		if err := s.nc.Publish(strings.ReplaceAll(subject, "*", markToken), nil); err != nil {
			return err
		}
	}
	return nil
}

func isMark(subject string) bool { return strings.Contains(subject, "."+markToken+".") }

// marks counts the parts of a mark that have not come back.
type marks struct {
	looked atomic.Int64 // messages since the last one
	mu     sync.Mutex
	left   int
	done   func(looked int)
}

func (m *marks) begin(parts int, done func(int)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left, m.done = parts, done
}

func (m *marks) back() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left--; m.left == 0 {
		m.done(int(m.looked.Swap(0)))
	}
}
