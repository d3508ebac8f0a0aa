package executor

import (
	"context"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/upstream"
)

// answerTime bounds how long a master may take for one request.
const answerTime = 10 * time.Second

// Account tells the master where the jobs stand that it expects something of: it, or
// the connection, was gone for a while. They may be many, so one is told after the
// other was heard.
func (x *Executor) Account(ctx context.Context, s *upstream.Session) {
	for _, jid := range s.Asked {
		r := x.standing(jid)
		asking, cancel := context.WithTimeout(ctx, answerTime)
		err := s.Ask(asking, "ret."+string(jid), r, nil)
		cancel()
		if err != nil {
			x.Log.Warn("what became of a job is not told", "jid", jid, "err", err)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// standing is where a job stands that the master asks for. One that waits for its record is
// known, though the record is not there; it is looked for first, since one that ends between
// the two looks has its record then.
func (x *Executor) standing(jid salt.JID) job.Report {
	if len(x.origins.Of(jid)) == 0 && !x.seen.Has(jid) {
		return job.Report{State: job.Unknown}
	}
	return x.before(jid)
}

// before is where a job stands that came before.
func (x *Executor) before(jid salt.JID) job.Report {
	state := job.Received
	if x.jobs.has(jid) {
		state = job.Running
	}
	return job.Report{State: state, Text: "it came before"}
}

// tellAgain answers a job that came once more, as one does whose receipt was lost:
// it is not begun again.
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

// tellAll tells those of the masters that are connected.
func (x *Executor) tellAll(senders []upstream.Sender, jid salt.JID, r job.Report) {
	for _, w := range senders {
		if s := w.Session(); s != nil {
			x.tell(s, jid, r)
		}
	}
}

// tell sends a receipt or a heartbeat; if it is lost, nothing is.
func (x *Executor) tell(s *upstream.Session, jid salt.JID, r job.Report) {
	if err := s.Tell("ret."+string(jid), r); err != nil {
		x.Log.Debug("receipt not sent", "jid", jid, "err", err)
	}
}
