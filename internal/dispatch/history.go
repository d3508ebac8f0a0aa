package dispatch

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// history is what the journals contain about a job.
type history struct {
	load     load
	states   map[salt.MinionID]job.Standing
	returned map[salt.MinionID]job.State
}

// load is the event of the start of a job.
type load struct{ job.Load }

// plan returns as much of the plan as is needed to follow a job that will not be sent any more.
func (l *load) plan() plan {
	p := plan{
		Start: job.Start{JID: l.JID, Minions: l.Minions, Missing: l.Missing}, Timeout: job.Seconds(defaultTimeout.Seconds()), Internal: l.Internal, Metadata: l.Metadata.V,
		Envelope: job.Envelope{JID: l.JID, Target: l.target(), TargetType: l.TargetType, User: l.User},
	}
	names, args := []any{l.Fun.V}, []any{l.Arg.V}
	if list, ok := l.Fun.V.([]any); ok {
		p.Envelope.Compound, names = true, list
		args, _ = l.Arg.V.([]any)
	}
	for i, name := range names {
		text, _ := name.(string)
		c := job.Command{Function: salt.Function(text)}
		if i < len(args) {
			c.Args, _ = args[i].([]any)
		}
		p.Envelope.Commands = append(p.Envelope.Commands, c)
	}
	return p
}

// target is the target expression; a list is a list in the event.
func (l *load) target() string {
	list, ok := l.Target.V.([]any)
	if !ok {
		text, _ := l.Target.V.(string)
		return text
	}
	words := make([]string, len(list))
	for i, v := range list {
		words[i], _ = v.(string)
	}
	return strings.Join(words, ",")
}

// standing returns the last recorded state of the job on a minion.
func (h *history) standing(id salt.MinionID) job.Standing {
	if s, ok := h.returned[id]; ok {
		return job.Standing{State: s}
	}
	return h.states[id]
}

// noteReturned makes the returns known that are stored: they are not stored again.
func (h *history) noteReturned(k *Job) {
	k.read, k.returned = true, make(map[salt.MinionID]bool, len(h.returned))
	for id := range h.returned {
		k.returned[id] = true
	}
}

// describe takes the arguments of a run from the start of its job if its plan was too large to have them:
// they are in its returns, and shown with the job.
func (h *history) describe(r *Run) {
	for _, c := range r.plan.Envelope.Commands {
		if len(c.Args) > 0 || len(c.Kwargs) > 0 {
			return
		}
	}
	r.job.args = h.load.Arg.V
	r.job.measured()
}

func (h *history) standings(ids []salt.MinionID) map[salt.MinionID]job.State {
	all := make(map[salt.MinionID]job.State, len(ids))
	for _, id := range ids {
		all[id] = h.standing(id).State
	}
	return all
}

// guess returns what became of a job, whose start is gone, on the minion with that number, of which the journals have nothing
// either. It is not sent to one that has had its turn in a batch, as the first ones have, nor to one that it never was for.
func guess(p *plan, number, reached int, now time.Time) job.Standing {
	switch ids := p.Start.Minions; {
	case number >= len(ids):
		return job.Standing{State: job.NotConnected, Text: noKey}
	case number < reached && !p.waits(ids[number], now):
		return job.Standing{State: job.Silent, Text: "its turn in the batch has been, and what became of it is not in the journal any more"}
	}
	return job.Standing{}
}

// reached returns how many minions of a batch, whose turns come in their order, have had their turn at least: up to the last
// one of which the journals have something. What they have of the ones before may have been removed.
func (h *history) reached(p *plan) int {
	for i, id := range slices.Backward(p.Start.Minions) {
		if s := h.standing(id).State; s != job.Sent && s != job.Queued {
			return i
		}
	}
	return 0
}

// history reads what the journals of all members contain about a job. For an unknown job the
// error is NotFound.
func (d *Dispatcher) history(ctx context.Context, jid salt.JID) (*history, error) {
	h := &history{states: map[salt.MinionID]job.Standing{}, returned: map[salt.MinionID]job.State{}}
	err := d.Journals.Read(ctx, journal.Query{Subjects: []string{event.JobSubject(jid, "")}, Whole: true}, h.add)
	if err == nil && h.load.JID == "" {
		err = rpc.Errorf(rpc.NotFound, "the journal has no job %s", jid)
	}
	return h, err
}

func (h *history) add(e event.Event) error {
	switch kind := event.JobKind(e.Tag); kind {
	case "new":
		return json.Unmarshal(e.Data, &h.load)
	case "ret":
		r, err := readReturn(e)
		if err == nil {
			h.returned[r.ID] = r.State
		}
		return err
	case "state":
		return h.addStates(e)
	}
	return nil
}

func (h *history) addStates(e event.Event) error {
	states, err := readStates(e)
	for id, s := range states {
		h.states[id] = s
	}
	return err
}

// readStates is the inverse of recordStates.
func readStates(e event.Event) (map[salt.MinionID]job.Standing, error) {
	var data struct {
		Minions map[salt.MinionID]struct {
			State job.State `json:"state"`
			Text  string    `json:"text"`
			Until time.Time `json:"until"`
		} `json:"minions"`
	}
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return nil, err
	}
	all := make(map[salt.MinionID]job.Standing, len(data.Minions))
	for id, s := range data.Minions {
		if s.State == "sent" {
			s.State = job.Sent
		}
		all[id] = job.Standing(s)
	}
	return all, nil
}
