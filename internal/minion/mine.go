package minion

import (
	"context"
	"errors"
	"time"

	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/module"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/upstream"
)

// mineSchedule is the name under which the jobs of mine_return_job are shown. It is
// Salt's.
const mineSchedule = "__mine_interval"

// keepMine keeps what this minion has in the mine of its master up to date: as soon
// as it is connected, then each mine_interval. A connection that is made anew is no
// reason to run the functions again, another master is. With several masters at once
// each has a mine.
func (m *Minion) keepMine(ctx context.Context, u *upstream.Uplink) {
	if !m.cfg.MineEnabled {
		return
	}
	updated := map[string]time.Time{} // by the master's name
	timer := time.NewTimer(m.cfg.MineInterval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.linked[u.Number]:
		case <-timer.C:
		}
		s := u.Session()
		if s == nil {
			continue // the next connection wakes this
		}
		wait := m.cfg.MineInterval - time.Since(updated[s.Name])
		if wait <= 0 {
			wait = m.cfg.MineInterval
			if m.updateMine(ctx, u) {
				updated[s.Name] = time.Now()
			}
		}
		timer.Reset(wait)
	}
}

// updateMine runs mine.update. It returns false where that is to be done again as
// soon as there is a master.
func (m *Minion) updateMine(ctx context.Context, u *upstream.Uplink) bool {
	jid := m.schedule.ids.Next(time.Now())
	command := job.Command{Function: "mine.update"}
	res := module.Run(ctx, function.Call{JID: jid, Function: command.Function, Host: m.hostFor(u), Reach: salt.Reach{Free: true}})
	if res.Err != nil {
		m.log.Warn("the mine is not up to date", "err", res.Err)
	}
	if m.cfg.MineReturnJob && res.Return != nil {
		q := protocol.LocalReturn{JID: jid, Command: command, Report: report(ctx, res), Schedule: mineSchedule}
		if _, err := m.box(u).Send(ctx, outbox.Outgoing{Op: protocol.OpReturn, Body: q}); err != nil {
			m.log.Error("return not delivered", "jid", jid, "err", err)
		}
	}
	return !errors.Is(res.Err, function.ErrUnavailable)
}

// checkMine looks at the setting mine_functions.
func checkMine(cfg *config.Minion) error {
	if err := module.CheckMineFunctions(cfg.MineFunctions.Value()); err != nil {
		return cfg.MineFunctions.At(nil, err)
	}
	return nil
}
