package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// Small returns of minions here go to the member that has sent the job with those that come at about the same
// time: for hundreds of them, a request and a wait for the journal each would cost more than the returns
// themselves. It is only a quicker way: what the other member could not store at once is told to it alone, as all
// other messages are, so that no minion can make the returns of others wait for its own.

const (
	// kindTogether stores returns of several minions. A member of an older version does not know it.
	kindTogether = "together"
	// maxTogether and maxTogetherSize limit the returns in one request. The last one may exceed the size.
	maxTogether     = 256
	maxTogetherSize = 256 << 10
)

// together is the part of a relay that does this.
type together struct{ relay }

// apart is the answer: the returns that are told alone, by their places in the request.
type apart struct {
	Places []int `json:"places,omitempty"`
}

// gathered are the returns that wait while a request to the same member is under way. With two requests at a time
// there were twice as many of them, and the last return came no sooner.
type gathered struct{ waiting []*waiting }

type waiting struct {
	said
	result chan error // gets one
}

// gathering are those for all members.
type gathering struct {
	mu sync.Mutex
	of map[string]*gathered
}

// add adds a return to those for a member. If send is true, nobody sends these, and the caller sees to it.
func (g *gathering) add(member string, w *waiting) (send bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.of == nil {
		g.of = map[string]*gathered{}
	}
	to := g.of[member]
	if send = to == nil; send {
		to = &gathered{}
		g.of[member] = to
	}
	to.waiting = append(to.waiting, w)
	return send
}

// take returns the next returns for a member. If there are none, the caller sends nothing any more.
func (g *gathering) take(member string) []*waiting {
	g.mu.Lock()
	defer g.mu.Unlock()
	to := g.of[member]
	n, size := 0, 0
	for n < len(to.waiting) && n < maxTogether && size < maxTogetherSize {
		size += len(to.waiting[n].Report)
		n++
	}
	if n == 0 {
		delete(g.of, member)
		return nil
	}
	list := to.waiting[:n:n]
	to.waiting = to.waiting[n:]
	return list
}

// isSmall reports whether a return is sent with others.
func isSmall(rep job.Report, size int) bool {
	return rep.State.Returned() && !rep.Live && len(rep.Output) == 0 && !rep.OutputEnd && size <= maxInline
}

// tellOwner sends a minion's message to the member that has sent its job.
func (d together) tellOwner(ctx context.Context, owner string, s said) error {
	if s.small {
		w := &waiting{s, make(chan error, 1)}
		if d.gathering.add(owner, w) {
			d.wg.Go(func() { d.sendTogether(owner) })
		}
		select {
		case err := <-w.result:
			if !errors.Is(err, errAlone) {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return d.Members.Ask(ctx, owner, kindSaid, s, nil)
}

// errAlone means that a return has to be told alone.
var errAlone = errors.New("not with others")

// sendTogether sends what there is for a member.
func (d together) sendTogether(member string) {
	ctx := context.WithoutCancel(d.ctx) // what has begun is finished; the exchange limits how long it may take
	for list := d.gathering.take(member); len(list) > 0; list = d.gathering.take(member) {
		returns := make([]said, len(list))
		for i, w := range list {
			returns[i] = w.said
		}
		var answer apart
		err := d.Members.Ask(ctx, member, kindTogether, returns, &answer)
		alone := map[int]bool{}
		for _, i := range answer.Places {
			alone[i] = true
		}
		unknown := rpc.CodeOf(err) == rpc.NotFound // the kind of request
		for i, w := range list {
			if unknown || err == nil && alone[i] {
				w.result <- errAlone
			} else {
				w.result <- err
			}
		}
	}
}

// storeTogether stores returns of minions at another member.
func (d together) storeTogether(ctx context.Context, member string, body []byte) (any, error) {
	if err := rpc.CheckBuilt(body); err != nil {
		return nil, err
	}
	var list []said
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, rpc.Errorf(rpc.Usage, "unreadable messages of minions: %v", err)
	}
	if len(list) == 0 || len(list) > maxTogether {
		return nil, rpc.Errorf(rpc.Usage, "%d messages of minions at once: the limit is %d", len(list), maxTogether)
	}
	var answer apart
	var begun []toStore
	var batches []journal.Batch
	for i, s := range list {
		switch one, done, err := d.readTogether(member, s); {
		case err != nil:
			answer.Places = append(answer.Places, i)
		case one.job != nil:
			defer done()
			begun, batches = append(begun, one), append(batches, one.batch)
		}
	}
	if len(batches) == 0 {
		return answer, d.Durable()
	}
	p, err := d.Journal.BeginEach(batches)
	if err == nil {
		_, err = p.Wait(ctx)
	}
	if err != nil {
		return nil, err
	}
	for _, r := range begun {
		d.heard(ctx, r.Minion, r.JID, r.job, r.report, nil)
	}
	return answer, d.Durable()
}

// toStore is a return that is being stored with others.
type toStore struct {
	said
	job    *Job
	report job.Report
	batch  journal.Batch
}

// readTogether reads a return of a job that runs here. done is called when it is stored; the result is the zero
// value if it is stored already. With an error, it has to come alone: it may have to wait for something, or is
// refused.
func (d together) readTogether(member string, s said) (r toStore, done func(), err error) {
	run := d.jobs.running(s.JID)
	if _, err := salt.ParseMinionID(string(s.Minion)); err != nil || run == nil || spooling(d.relay).has(s.JID) {
		return r, nil, errAlone
	}
	k := run.job
	if !run.holds() || d.jobs.ownerOf(k) != "" || !d.jobs.isFor(k, s.Minion) {
		return r, nil, errAlone
	}
	rep, err := job.ReadReport(s.Report, func(key string, _ []byte) error {
		if key == "live" {
			return errAlone // it may be one that is only to be shown
		}
		return nil
	})
	if err != nil || !isSmall(rep, len(s.Report)) {
		return r, nil, errAlone
	}
	if d.jobs.hasReturned(k, s.Minion) {
		return r, nil, nil
	}
	e, err := returnEvent(s.Minion, s.JID, k, rep)
	if err != nil {
		return r, nil, errAlone
	}
	if done, err = d.passed.begin(member, s.Minion, rep, len(s.Report)); err != nil {
		return r, nil, errAlone
	}
	return toStore{s, k, rep, journal.Single(e, returnID(s.Minion, s.JID), 0)}, done, nil
}
