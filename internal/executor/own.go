package executor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/function"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/module"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/returner"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/schedule"
	"github.com/brinebus/brine/internal/upstream"
)

// CheckScheduled returns an error for a scheduled job that could not run here.
func (x *Executor) CheckScheduled(j schedule.Job) error {
	_, err := x.Host.Returners(strings.Join(j.Returner, ","), returner.Options{Tag: j.ReturnTag})
	return err
}

// MissingFunction returns an error if this minion does not have the function of a job now.
func (x *Executor) MissingFunction(j schedule.Job) error {
	return module.Builtin().Missing(x.ctx, function.Call{Function: j.Function, Host: x.Host.ForJob(&job.Envelope{}, nil)})
}

// Status returns the result of the function status.NAME on this minion.
func (x *Executor) Status(ctx context.Context, name string) (any, error) {
	r := module.Run(ctx, function.Call{Function: salt.Function("status." + name), Host: x.Host.ForJob(&job.Envelope{}, nil)})
	return r.Return, r.Err
}

// RunScheduled runs a scheduled job as salt-call would, and reports it to the master if the job
// is set so.
func (x *Executor) RunScheduled(j schedule.Job) {
	e := &job.Envelope{
		JID: x.ownID(), Commands: []job.Command{{Function: j.Function, Args: j.Args, Kwargs: j.Kwargs}},
		Target: string(x.ID), TargetType: "glob", User: "schedule", Returner: strings.Join(j.Returner, ","), ReturnTag: j.ReturnTag,
		Reach: salt.Reach{Free: true}, // permission was decided when it was stored
	}
	log := x.Log.With("job", j.Name, "jid", e.JID, "fun", j.Function)
	back, err := x.Host.Returners(e.Returner, options(e))
	if err != nil {
		log.Error("scheduled job not started", "err", err)
		return
	}
	ctx, run, err := x.jobs.begin(x.ctx, x.ctx, e)
	if err != nil {
		log.Info("scheduled job not started", "err", err)
		return
	}
	defer run.end()
	log.Info("scheduled job")
	report := x.execute(ctx, e, nil, nil)
	ret := x.asReturn(e, report)
	ctx = context.WithoutCancel(x.ctx)
	if report.State != job.Done {
		log.Warn("scheduled job failed", "return", logging.Shorten(fmt.Sprint(report.Return.V)))
	}
	back.Early(ctx, ret)
	if u := x.Masters.First(); u != nil && j.ReturnJob {
		x.sendOwn(ctx, u, protocol.LocalReturn{JID: e.JID, Command: e.Commands[0], Report: report, Schedule: j.Name})
	}
	back.Late(ctx, ret)
}

// sendOwn sends to a master what the minion ran by itself.
func (x *Executor) sendOwn(ctx context.Context, u *upstream.Uplink, q protocol.LocalReturn) {
	if _, err := x.box(u).Send(ctx, outbox.Outgoing{Op: protocol.OpReturn, Body: q}); err != nil {
		x.Log.Error("return not delivered", "jid", q.JID, "fun", q.Command.Function, "job", q.Schedule, "err", err)
	}
}

// ownID returns an id for a job that the minion runs by itself.
func (x *Executor) ownID() salt.JID { return x.ids.Next(time.Now()) }
