package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/salt"
)

// BatchOptions are how a job goes to its minions a few at a time. Shares are numbers, or
// percentages of all minions, as in 25%.
type BatchOptions struct {
	Size    string  `json:"size,omitempty"`     // share of the minions that run it at a time; "" is all
	Wait    Seconds `json:"wait,omitempty"`     // pause before the slot of a finished one is used again
	MaxFail string  `json:"max_fail,omitempty"` // share that may fail before no more are begun; "" means any
	// If Size is "", SafeSize of more than SafeLimit minions run it at a time.
	SafeLimit int `json:"safe_limit,omitempty"`
	SafeSize  int `json:"safe_size,omitempty"`
}

// Batch decides when it is each minion's turn. Like Tracker it is a state machine, and not safe
// for concurrent use.
type Batch struct {
	size    int
	wait    time.Duration
	budget  int // how many may fail; negative for any number
	waiting []salt.MinionID
	active  map[salt.MinionID]bool
	cooling []time.Time // when the slots of finished ones are free
	failed  int
}

// NewBatch returns the batch of the minions ids, in that order; nil if the options request
// none. Percentages are of all minions; a small one is at least one minion.
func NewBatch(o BatchOptions, ids []salt.MinionID) (*Batch, error) {
	size := o.Size
	if size == "" && o.SafeLimit > 0 && len(ids) > o.SafeLimit {
		size = strconv.Itoa(max(o.SafeSize, 1))
	}
	b := &Batch{size: len(ids), wait: o.Wait.Duration(), budget: -1, waiting: slices.Clone(ids), active: map[salt.MinionID]bool{}}
	var err error
	if size != "" {
		if b.size, err = share(size, len(ids), 1); err != nil {
			return nil, fmt.Errorf("Invalid batch data sent: %s. Data must be in the form of %%10, 10%% or 3", size)
		}
	}
	if o.MaxFail != "" {
		if b.budget, err = share(o.MaxFail, len(ids), 0); err != nil {
			return nil, fmt.Errorf("maximum of failures %q: want a number such as 3, or a part such as 10%%", o.MaxFail)
		}
	}
	if size == "" {
		return nil, nil
	}
	return b, nil
}

// share parses a number, or a percentage of all; less than least counts as least.
func share(text string, all, least int) (int, error) {
	number, percent := strings.CutSuffix(text, "%")
	if !percent {
		number, percent = strings.CutPrefix(text, "%")
	}
	if !percent {
		n, err := strconv.Atoi(number)
		if err != nil || n < least {
			return 0, fmt.Errorf("%q is not a share", text)
		}
		return n, nil
	}
	part, err := strconv.ParseFloat(number, 64)
	if err != nil || !(part >= 0 && part <= 100) || part == 0 && least > 0 {
		return 0, fmt.Errorf("%q is not a share", text)
	}
	return max(int(part/100*float64(all)), least), nil
}

// Next returns the minions whose turn has come, and when to ask again if nothing else happens;
// a zero time means only after something has happened.
func (b *Batch) Next(now time.Time) (ids []salt.MinionID, again time.Time) {
	b.cooling = slices.DeleteFunc(b.cooling, func(t time.Time) bool { return !t.After(now) })
	free := max(b.size-len(b.active)-len(b.cooling), 0)
	ids = slices.Clone(b.waiting[:min(free, len(b.waiting))])
	b.waiting = b.waiting[len(ids):]
	for _, id := range ids {
		b.active[id] = true
	}
	if len(b.waiting) > 0 && len(b.cooling) > 0 {
		again = slices.MinFunc(b.cooling, time.Time.Compare)
	}
	return ids, again
}

// Ended releases the slot of a minion. One that was away has run nothing: it causes no pause
// and is not a failure.
func (b *Batch) Ended(id salt.MinionID, s State, now time.Time) {
	b.waiting = slices.DeleteFunc(b.waiting, func(w salt.MinionID) bool { return w == id })
	if !b.active[id] {
		return
	}
	delete(b.active, id)
	switch s {
	case Queued, NotConnected, NotTargeted, Cancelled:
		return
	case Done:
	default:
		b.failed++
	}
	if b.wait > 0 {
		b.cooling = append(b.cooling, now.Add(b.wait))
	}
}

// Failed is how many have failed.
func (b *Batch) Failed() int { return b.failed }

// Spent reports whether more have failed than allowed.
func (b *Batch) Spent() bool { return b.budget >= 0 && b.failed > b.budget }

// Clear removes and returns everything whose turn has not come.
func (b *Batch) Clear() []salt.MinionID {
	rest := b.waiting
	b.waiting = nil
	return rest
}

// Resume restores a batch: rest has not had its turn, the others have the given states.
func (b *Batch) Resume(rest []salt.MinionID, states map[salt.MinionID]State) {
	b.waiting = slices.Clone(rest)
	turn := make(map[salt.MinionID]bool, len(rest))
	for _, id := range rest {
		turn[id] = true
	}
	for id, s := range states {
		switch {
		case turn[id]:
		case s == Done || s == Queued || s == NotConnected || s == NotTargeted || s == Cancelled:
		case s.Final():
			b.failed++
		default:
			b.active[id] = true
		}
	}
}
