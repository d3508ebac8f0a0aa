package accord

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/uptime"
)

const (
	// heartbeatEvery is how often a member writes an entry into the shared table.
	heartbeatEvery = 2 * time.Second
	// staleAfter is how old the newest one that came back may be. The election of a leader takes
	// four to eleven seconds.
	staleAfter = 15 * time.Second
	// currentLook is how often that is checked.
	currentLook = 250 * time.Millisecond
	// mostSent is how many heartbeats are remembered until they come back.
	mostSent = 64
)

// heartbeats are entries that a member writes into the shared table, to find out how much it knows of
// it: when one comes back, everything before it has come, too.
type heartbeats struct {
	name  string // of this member
	table SharedTable
	tell  func(current bool) // may be nil
	log   *slog.Logger
	stale time.Duration        // staleAfter
	up    func() uptime.Moment // uptime.Now

	mu      sync.Mutex
	sent    []sent // not come back yet
	came    moment // when the newest one was sent that came back
	current moment // the same, once everything before it is in force
	fresh   bool   // what tell was last called with
}

// moment is a time, also by the clock that does not stand still while the machine is suspended: what others have
// decided meanwhile is not known.
type moment struct {
	time.Time
	up uptime.Moment
}

// sent is a heartbeat that was sent.
type sent struct {
	n  uint64
	at moment
}

// hear handles an entry under the name of this member. The numbers are random: what others write
// there has no effect, or that of the heartbeat that they repeat.
func (h *heartbeats) hear(value []byte) {
	var n uint64
	if json.Unmarshal(value, &n) != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, s := range h.sent {
		if s.n == n {
			h.sent, h.came = h.sent[i+1:], s.at
			return
		}
	}
}

// back returns when the newest heartbeat was sent that came back.
func (h *heartbeats) back() moment {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.came
}

// inForce is called when everything before a heartbeat that came back is in force. It returns how
// long before that one the previous one was sent, 0 for the first one.
func (h *heartbeats) inForce(came moment) (gap time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !came.After(h.current.Time) {
		return 0
	}
	if !h.current.IsZero() {
		gap = came.up.Sub(h.current.up)
	}
	h.current = came
	return gap
}

// run writes heartbeats, and tells when this member becomes current or stale, until ctx ends.
func (h *heartbeats) run(ctx context.Context) {
	look := time.NewTicker(currentLook)
	defer look.Stop()
	var sending sync.WaitGroup
	defer sending.Wait()
	for next := time.Now(); ; {
		if now := time.Now(); !now.Before(next) {
			next = now.Add(heartbeatEvery)
			sending.Go(func() { h.send(ctx, now) }) // an answer may take long, and this must not wait
		}
		h.check()
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// send writes a heartbeat. A failure needs no handling: the next one follows.
func (h *heartbeats) send(ctx context.Context, now time.Time) {
	one := sent{newN(), moment{now, h.up()}}
	h.mu.Lock()
	h.sent = append(h.sent, one)
	h.sent = h.sent[max(0, len(h.sent)-mostSent):]
	h.mu.Unlock()
	value, err := json.Marshal(one.n)
	if err != nil {
		return // a number can always be marshalled
	}
	ctx, cancel := context.WithTimeout(ctx, heartbeatEvery)
	defer cancel()
	_ = h.table.Put(ctx, heartbeatPrefix+h.name, value)
}

// check tells whether this member is current, if that has changed.
func (h *heartbeats) check() {
	current, last := h.isCurrent()
	h.mu.Lock()
	changed := h.fresh != current
	h.fresh = current
	h.mu.Unlock()
	if !changed {
		return
	}
	if current {
		h.log.Info("this master knows what all masters have decided about keys")
	} else {
		h.log.Error("this master does not know what the others decide about keys", "since", last)
	}
	if h.tell != nil {
		h.tell(current)
	}
}

func (h *heartbeats) isCurrent() (is bool, since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.current.IsZero() && h.up().Sub(h.current.up) <= h.stale, h.current.Time
}

// Current returns a time before which all that any member has decided about keys, and stored, is in
// force here; the zero time if there is none yet.
func (s *Shared) Current() time.Time {
	_, since := s.pulse.isCurrent()
	return since
}

// Stale reports whether that time is so long ago, longer than an election takes, that keys that are
// accepted here may have been refused elsewhere. It is so from the start until all is read.
func (s *Shared) Stale() bool {
	is, _ := s.pulse.isCurrent()
	return !is
}
