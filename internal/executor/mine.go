package executor

import (
	"context"
	"errors"
	"time"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/module"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/upstream"
)

// mineSchedule is the name under which the jobs of mine_return_job are shown, as in Salt.
const mineSchedule = "__mine_interval"

// CheckMine checks the setting mine_functions.
func CheckMine(l config.Located) error {
	if err := module.CheckMineFunctions(l.Value()); err != nil {
		return l.At(nil, err)
	}
	return nil
}

// MineOptions are the settings of a Mine.
type MineOptions struct {
	Interval time.Duration
	Tell     bool // each run is reported to the master, like a job of the schedule
}

// Mine keeps the minion's mine entries at the masters of one uplink up to date.
type Mine struct {
	MineOptions
	x      *Executor
	u      *upstream.Uplink
	linked chan struct{}
}

// NewMine makes the Mine of an uplink, for Keep.
func (x *Executor) NewMine(u *upstream.Uplink, o MineOptions) *Mine {
	return &Mine{MineOptions: o, x: x, u: u, linked: make(chan struct{}, 1)}
}

// Linked tells it about a new connection.
func (m *Mine) Linked() {
	select {
	case m.linked <- struct{}{}:
	default:
	}
}

// Keep updates the mine as soon as the minion is connected, then each interval, until ctx ends.
// A reconnect to the same master is not a reason to run the functions again, another master is.
// With several masters at once each has a Mine; of those of one cluster only that of the first connected one is in use.
func (m *Mine) Keep(ctx context.Context) {
	updated := map[string]time.Time{} // by the master's name
	timer := time.NewTimer(m.Interval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.linked:
		case <-timer.C:
		}
		s := m.u.Session()
		if s == nil {
			continue // the next connection wakes this
		}
		if of := m.x.Masters.System(m.u.Number); len(of) == 0 || of[0] != s {
			timer.Reset(m.Interval)
			continue // all members of a cluster have what the first one gets, and one that was removed gets nothing
		}
		wait := m.Interval - time.Since(updated[s.Name])
		if wait <= 0 {
			wait = m.Interval
			if m.update(ctx) {
				updated[s.Name] = time.Now()
			}
		}
		timer.Reset(wait)
	}
}

// update runs mine.update; a function that does not return when the daemon stops is abandoned. It returns false if that must be repeated as soon as there is a
// master.
func (m *Mine) update(ctx context.Context) bool {
	x, e := m.x, &job.Envelope{JID: m.x.ownID(), Commands: []job.Command{{Function: "mine.update"}}, Reach: salt.Reach{Free: true}}
	res := x.run(ctx, function.Call{JID: e.JID, Function: e.Commands[0].Function, Host: x.Host.ForJob(e, m.u), Reach: e.Reach})
	if res.Err != nil {
		x.Log.Warn("the mine is not up to date", "err", res.Err)
	}
	if m.Tell && res.Return != nil {
		x.sendOwn(ctx, m.u, protocol.LocalReturn{JID: e.JID, Command: e.Commands[0], Report: report(ctx, res), Schedule: mineSchedule})
	}
	return !errors.Is(res.Err, function.ErrUnavailable)
}
