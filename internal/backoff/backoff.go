// Package backoff is the pauses between attempts at what may come back: each is twice the
// one before. What is attempted, and when it is given up, is for its callers; so are the
// words about it.
package backoff

import (
	"context"
	"time"
)

// Pauses grow. The zero value is ready, and for one goroutine at a time.
type Pauses struct{ latest time.Duration }

// Next is the pause before the next attempt: the first one as it is, then twice the latest,
// up to the longest.
func (p *Pauses) Next(first, longest time.Duration) time.Duration {
	if p.latest == 0 {
		p.latest = first
	} else {
		p.latest = min(2*p.latest, longest)
	}
	return p.latest
}

// Reset makes the next pause the first: an attempt has succeeded.
func (p *Pauses) Reset() { p.latest = 0 }

// Sleep returns false when ctx has ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
