package audit

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/event"
)

// Decided records decisions that have taken effect already: somebody has moved the file of a key. So they cannot be
// refused while nothing can be stored, and they are not lost then.
type Decided struct {
	log      *Log
	announce func(tag string, data any)

	life   context.Context
	giveUp context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex
	last chan struct{} // closed when the decision before is recorded; nil for the first
}

// NewDecided returns a Decided that stores the events about decisions with announce.
func NewDecided(l *Log, announce func(tag string, data any)) *Decided {
	d := &Decided{log: l, announce: announce}
	d.life, d.giveUp = context.WithCancel(context.Background())
	return d
}

// Tell records a decision, and then stores the event that tells of it, unless tag is "". It does not wait. If the entry cannot be stored,
// the spool gets both, in the order of the calls, and they are stored as soon as that is possible, also after a restart; while
// the audit log is damaged, that is after Repair.
// An entry whose write got no answer may be there twice.
func (d *Decided) Tell(e Entry, tag string, data any) {
	at := time.Now()
	p, err := d.log.Begin(e)
	recorded := make(chan struct{})
	d.mu.Lock()
	before := d.last
	d.last = recorded
	d.mu.Unlock()
	d.wg.Go(func() {
		defer close(recorded)
		if err == nil {
			err = p.Wait(d.life)
		}
		if before != nil {
			<-before
		}
		if err != nil {
			err = d.keep(e, at, tag, data, err)
		} else if tag != "" {
			d.announce(tag, data)
		}
		if err != nil {
			d.log.opts.Log.Error("a decision that has taken effect is not recorded", "kind", e.Kind, "user", e.User, "rule", e.Rule, "fun", e.Fun, "minions", e.Minions, "err", err)
		}
	})
}

// keep puts a decision into the spool. It returns why, if that fails, the decision is not stored either.
func (d *Decided) keep(e Entry, at time.Time, tag string, data any, why error) error {
	if d.log.opts.Spool == nil {
		return why
	}
	e, err := d.log.taken(e)
	if err != nil {
		return err
	}
	e.Time = at.UTC()
	if tag == "" {
		return d.log.opts.Spool.decision(e)
	}
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	about, err := event.New(tag, text, "", at)
	if err != nil {
		return err
	}
	return d.log.opts.Spool.decision(e, about)
}

// Close waits until all decisions are recorded. After some seconds those that are still under way are recorded in the
// spool. The Log is closed after it.
func (d *Decided) Close() {
	defer time.AfterFunc(closeTime, d.giveUp).Stop()
	d.wg.Wait()
	d.giveUp()
}
