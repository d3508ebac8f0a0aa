package route

import (
	"context"

	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/schedule"
	"github.com/brinebus/brine/internal/value"
)

// daemonSchedule is the schedule of the minion's daemon; it implements
// module.Scheduler.
type daemonSchedule struct{ *throughDaemon }

func (d *daemonSchedule) ask(ctx context.Context, q protocol.Schedule) (s protocol.Schedule, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.wait)
	defer cancel()
	err = d.conn.Ask(ctx, protocol.OpSchedule, q, &s)
	return s, err
}

// Schedule implements module.Scheduler.
func (d *daemonSchedule) Schedule(ctx context.Context) (schedule.Status, error) {
	s, err := d.ask(ctx, protocol.Schedule{})
	return s.Status(), err
}

// SetSchedule implements module.Scheduler.
func (d *daemonSchedule) SetSchedule(ctx context.Context, s schedule.Status, save bool) error {
	_, err := d.ask(ctx, protocol.Schedule{Do: protocol.ScheduleSet, Jobs: value.Value{V: s.Jobs}, Revision: s.Revision, Save: save})
	return err
}

// RunScheduled implements module.Scheduler.
func (d *daemonSchedule) RunScheduled(ctx context.Context, name string) error {
	_, err := d.ask(ctx, protocol.Schedule{Do: protocol.ScheduleRun, Name: name})
	return err
}

// ReloadSchedule implements module.Scheduler.
func (d *daemonSchedule) ReloadSchedule(ctx context.Context) error {
	_, err := d.ask(ctx, protocol.Schedule{Do: protocol.ScheduleReload})
	return err
}
