package dispatch

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/salt"
)

// A return counts when it is stored, which may wait for an election. Its minion has answered in time nevertheless: from
// when the return arrives at a member until it is stored, or was not, the minion is not given up.

const (
	// tellArrived is how often the member that has sent a job is told of a return that waits at another one, the
	// first time after it has waited that long.
	tellArrived = time.Second
	// maxTellArrived is of how many jobs of other members that is told for one request of a minion.
	maxTellArrived = 8
)

// suspend stops the timeouts of minions until resume is called.
func suspend(r *Run, ids ...salt.MinionID) (resume func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		r.tracker.Suspend(id)
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		open := false
		for _, id := range ids {
			r.tracker.Resume(id, time.Now())
			open = open || r.tracker.Open(id)
		}
		if open { // their timeouts count again
			r.stir()
		}
	}
}

// Arrived implements outbox.Returns.
func (d *Dispatcher) Arrived(ctx context.Context, id salt.MinionID, jids []salt.JID) (end func()) {
	var ends []func()
	var elsewhere []salt.JID
	for _, jid := range jids {
		if run := d.jobs.running(jid); run != nil {
			ends = append(ends, suspend(run, id))
		} else if d.Members != nil && len(elsewhere) < maxTellArrived {
			elsewhere = append(elsewhere, jid)
		}
	}
	if len(elsewhere) > 0 {
		ends = append(ends, sayArrived(ctx, d, id, elsewhere))
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// sayArrived tells the members that have sent these jobs, until end is called, that the minion has not gone silent.
func sayArrived(ctx context.Context, d *Dispatcher, id salt.MinionID, jids []salt.JID) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Add(1)
	late := time.AfterFunc(tellArrived, func() { // most are stored by then
		defer running.Done()
		for ctx.Err() == nil {
			for _, jid := range jids {
				sayOneArrived(ctx, d, id, jid)
			}
			backoff.Sleep(ctx, tellArrived)
		}
	})
	return func() {
		cancel()
		if !late.Stop() {
			running.Wait()
		}
	}
}

// sayOneArrived tells the member that has sent a job, if that is known, that the minion has it. If that does not arrive,
// it is told again.
func sayOneArrived(ctx context.Context, d *Dispatcher, id salt.MinionID, jid salt.JID) {
	k := d.jobs.find(jid)
	if k == nil || !d.jobs.isFor(k, id) || d.jobs.ownerOf(k) == "" {
		return
	}
	rep := job.Report{State: job.Received, Text: "its return waits to be stored"}
	b, err := json.Marshal(rep)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, tellArrived)
	defer cancel()
	_ = d.Members.Ask(ctx, d.jobs.ownerOf(k), kindSaid, said{Minion: id, JID: jid, Report: b}, nil)
}

// stallTime is how long nothing was stored of what is under way until that counts as an election, and stallLook
// the pause until that is looked at again. After maxStalls of one job a store is slow, and its timeouts count.
const (
	stallTime = 500 * time.Millisecond
	stallLook = 100 * time.Millisecond
	maxStalls = 5
)

// stalls reports whether what is written here waits, most likely for an election. It is false once that has taken too long.
func stalls(d *Dispatcher) bool { return d.Journal.Err() == nil && d.Journal.Waited() >= stallTime }

// tick handles the time. What minions have sent may wait for the store behind something else, so no minion is given
// up while the store waits for an election, and then each has the whole timeout again. The caller holds mu.
func tick(r *Run, now time.Time) (given []job.Update, next time.Time) {
	switch {
	case r.stalls >= maxStalls:
	case stalls(r.d):
		r.stalled = true
		return nil, now.Add(stallLook)
	case r.stalled:
		r.stalled = false
		r.stalls++
		r.tracker.Restart(now)
	}
	return r.tracker.Tick(now)
}

// noteStall notes that the store was waited for since begun, if that was long: tick has not looked meanwhile.
func noteStall(r *Run, begun time.Time) {
	if time.Since(begun) < stallTime {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stalled = true
}

// sayElecting tells who watches a job that what its minions return waits for an election, once for each, until stop is
// called.
func sayElecting(d *Dispatcher, w *watcher) (stop func()) {
	if d.Members == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(d.ctx)
	var running sync.WaitGroup
	running.Go(func() {
		for before := false; backoff.Sleep(ctx, protocol.TellTime); {
			now := stalls(d)
			if now && !before {
				w.push(update{Update: job.Update{Waiting: protocol.Electing}})
			}
			before = now
		}
	})
	return func() { cancel(); running.Wait() }
}
