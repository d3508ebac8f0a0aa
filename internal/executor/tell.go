package executor

import (
	"context"
	"slices"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/upstream"
)

// answerTime limits how long a master may take for one request.
const answerTime = 10 * time.Second

// Account reports to the master the state of the jobs that it asks about after it, or the
// connection, was gone for a while. There may be many, so each is sent after the previous one
// was answered.
func (x *Executor) Account(ctx context.Context, s *upstream.Session) {
	for _, jid := range s.Asked {
		r := x.standing(jid)
		asking, cancel := context.WithTimeout(ctx, answerTime)
		err := s.Ask(asking, "ret."+string(jid), r, nil)
		cancel()
		if err != nil {
			x.Log.Warn("cannot report the state of a job to the master", "jid", jid, "err", err)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// standing returns the state of a job that the master asks about. A job that waits for its
// record is known before the record exists; it is looked for first, since a job that ends
// between the two checks has its record then.
func (x *Executor) standing(jid salt.JID) job.Report {
	if len(x.origins.Of(jid)) == 0 && !x.seen.Has(jid) {
		return job.Report{State: job.Unknown}
	}
	return x.before(jid)
}

// before returns the state of a job that arrived before.
func (x *Executor) before(jid salt.JID) job.Report {
	state := job.Received
	if x.jobs.has(jid) {
		state = job.Running
	}
	return job.Report{State: state, Text: "it came before"}
}

// tellAgain answers a job that arrived again, for example because its receipt was lost: it is
// not started again.
func (x *Executor) tellAgain(s *upstream.Session, jid salt.JID) { x.tell(s, jid, x.before(jid)) }

func (x *Executor) tellNotMeant(e *job.Envelope, err error) {
	senders := x.origins.End(e.JID)
	if err != nil {
		x.Log.Warn("job refused: its target cannot be judged", "jid", e.JID, "err", err)
		x.tellAll(senders, e.JID, job.Report{State: job.Refused, Text: "target: " + err.Error()})
		return
	}
	x.Log.Debug("job is not for this minion", "jid", e.JID, "target", e.Target)
	x.tellAll(senders, e.JID, job.Report{State: job.NotTargeted})
}

// tellAll sends a report to the connected ones of the masters. For one that is not, another member of its cluster
// gets it.
func (x *Executor) tellAll(senders []upstream.Sender, jid salt.JID, r job.Report) {
	var sent []*upstream.Session
	for _, w := range senders {
		if s := w.Session(); s != nil && !slices.Contains(sent, s) {
			sent = append(sent, s)
			x.tell(s, jid, r)
		}
	}
}

// tell sends a receipt or a heartbeat. If it is lost, that does no harm.
func (x *Executor) tell(s *upstream.Session, jid salt.JID, r job.Report) {
	if err := s.Tell("ret."+string(jid), r); err != nil {
		x.Log.Debug("receipt not sent", "jid", jid, "err", err)
	}
}
