package localapi

import (
	"context"
	"errors"

	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/internal/value"
)

// refresh collects again, for salt-call, what the next job sees.
func (a *API) refresh(ctx context.Context, r *rpc.Request) error {
	var q protocol.Refresh
	if err := r.Decode(&q); err != nil {
		return err
	}
	var failed error
	if q.Grains {
		failed = a.Facts.RefreshGrains(ctx)
	}
	if q.Pillar {
		failed = errors.Join(failed, a.Masters.RefreshPillar(ctx))
	}
	if failed != nil {
		return rpc.Errorf(rpc.Unavailable, "%w", failed) // an operator may see the cause
	}
	return nil
}

func (a *API) status(ctx context.Context, r *rpc.Request) error {
	facts, err := a.Facts.Facts(ctx)
	if err != nil {
		a.Log.Debug("facts are incomplete", "err", err)
	}
	s := protocol.Status{ID: a.ID, Version: a.Version, Grains: value.Value{V: facts}}
	for _, u := range a.Masters.All() {
		one := a.masterStatus(u)
		s.Masters = append(s.Masters, one)
		s.Outbox += one.Outbox
		s.OutboxLost += a.Boxes.At(u.Number).Lost()
		if one.Connected && !s.Connected {
			s.Master, s.Connected = one.Master, true
		}
	}
	if !s.Connected && len(s.Masters) > 0 {
		s.Waiting = s.Masters[0].Waiting
	}
	return r.Send(ctx, s)
}

func (a *API) masterStatus(u *upstream.Uplink) protocol.MasterStatus {
	s := protocol.MasterStatus{Master: u.Name(), Connected: u.Session() != nil, Outbox: a.Boxes.At(u.Number).Waiting()}
	if !s.Connected {
		s.Waiting = u.Waiting()
	}
	return s
}

// showPillar sends the pillar to salt-call.
func (a *API) showPillar(ctx context.Context, r *rpc.Request) error {
	return r.Send(ctx, protocol.Pillar{Data: value.Value{V: a.Masters.Pillar()}, Errors: a.Masters.PillarErrors()})
}

// scheduleRequest serves the schedule to salt-call, which runs functions in its own process.
func (a *API) scheduleRequest(ctx context.Context, r *rpc.Request) error {
	var q protocol.Schedule
	if err := r.Decode(&q); err != nil {
		return err
	}
	var err error
	switch q.Do {
	case protocol.ScheduleSet:
		if _, ok := q.Jobs.V.(map[string]any); !ok {
			return rpc.Errorf(rpc.Usage, "the schedule is not a dictionary")
		}
		err = a.Scheduler.SetSchedule(ctx, q.Status(), q.Save)
	case protocol.ScheduleRun:
		err = a.Scheduler.RunScheduled(ctx, q.Name)
	case protocol.ScheduleReload:
		err = a.Scheduler.ReloadSchedule(ctx)
	}
	if err != nil {
		return rpc.Errorf(rpc.Usage, "%w", err)
	}
	now, err := a.Scheduler.Schedule(ctx)
	if err != nil {
		return err
	}
	return r.Send(ctx, protocol.NewSchedule(now))
}
