package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/rpc"
)

// A job of many minions has many returns at about the same time. Those of the minions of one member go to
// the member that has sent the job in few requests, and are stored there with a single wait for the journal.

// Limits of the returns that are passed to another member in one request.
const (
	maxTogether = 100
	// maxTogetherEach is the size, in bytes, of the largest report of such a return, and of what its job runs, which
	// is in each event. Larger ones go alone.
	maxTogetherEach = 4 << 10
	// maxTogetherSize is more than all of them have, with what is around them. The reports are not decoded.
	maxTogetherSize = maxTogether * (maxTogetherEach + 2<<10)
	// sendersToMember is how many of these requests to one member are under way: what comes meanwhile waits
	// for the next one.
	sendersToMember = 2
	// lateSender is when such a request does not count any more: one that waits for something delays no others.
	lateSender = 100 * time.Millisecond
	// togetherTime limits how long one of them may take. The minions' outboxes keep what it has.
	togetherTime = storeTime
	// aloneTime is how long a member that does not know these requests, which is of an older version, is not
	// asked again.
	aloneTime = time.Minute
)

// returnAnswer is the answer for one of the returns.
type returnAnswer struct {
	Err *rpc.Error `json:"err,omitempty"`
	// Alone means that nothing was done: this return cannot be stored without waiting for something else, and is
	// to be sent in a request of its own.
	Alone bool `json:"alone,omitempty"`
}

// together is the part of a relay that passes them.
type together struct{ relay }

// isQuick reports whether a message may go together with others: it is a short return.
func isQuick(s said, rep job.Report) bool {
	return rep.State.Returned() && !rep.Live && len(rep.Output) == 0 && !rep.OutputEnd && len(s.Report) <= maxTogetherEach
}

// returnsTo are the returns on their way to other members.
type returnsTo struct {
	late time.Duration // lateSender, but for tests
	mu   sync.Mutex
	of   map[string]*returnsOut // by member
}

func newReturnsTo() returnsTo { return returnsTo{late: lateSender, of: map[string]*returnsOut{}} }

// returnsOut are those to one member.
type returnsOut struct {
	waiting []*returnOut // for the next request
	senders int          // requests under way that are not late
	older   time.Time    // until when the member is taken for one that does not know these requests
}

// returnOut is one of them, until done is closed.
type returnOut struct {
	said said
	done chan struct{}
	returnAnswer
	err error // of the request
}

// passReturn passes a return to the owner of its job, with others that come at this moment.
func (d together) passReturn(ctx context.Context, owner string, s said) error {
	one := &returnOut{said: s, done: make(chan struct{})}
	if !d.joinReturns(owner, one) {
		return d.Members.Ask(ctx, owner, kindSaid, s, nil)
	}
	select {
	case <-one.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	switch {
	case one.Alone:
		return d.Members.Ask(ctx, owner, kindSaid, s, nil)
	case one.Err != nil:
		return one.Err
	}
	return one.err
}

// joinReturns puts a return to those that wait for the next request to a member, unless that does not know
// such requests.
func (d together) joinReturns(member string, one *returnOut) bool {
	out := &d.returns
	out.mu.Lock()
	defer out.mu.Unlock()
	to := out.of[member]
	if to == nil {
		to = &returnsOut{}
		out.of[member] = to
	}
	if time.Now().Before(to.older) {
		return false
	}
	to.waiting = append(to.waiting, one)
	d.startSender(member, to)
	return true
}

// startSender sends what waits for a member, unless enough requests are under way. The caller holds the lock.
func (d together) startSender(member string, to *returnsOut) {
	if len(to.waiting) > 0 && to.senders < sendersToMember {
		to.senders++
		d.wg.Go(func() { d.sendReturns(member, to) })
	}
}

// sendReturns sends what waits for a member, until nothing does, or a request was late: then another sender goes on.
func (d together) sendReturns(member string, to *returnsOut) {
	for {
		runtime.Gosched() // what is just being read goes with it
		list := d.takeReturns(to)
		if len(list) == 0 {
			return
		}
		replaced := make(chan struct{})
		late := time.AfterFunc(d.returns.late, func() {
			defer close(replaced)
			d.returns.mu.Lock()
			defer d.returns.mu.Unlock()
			to.senders--
			d.startSender(member, to)
		})
		answer, err := d.askReturns(member, to, list)
		for i, one := range list {
			if one.err = err; err == nil {
				one.returnAnswer = answer[i]
			}
			close(one.done)
		}
		if !late.Stop() {
			<-replaced // while this one runs, another one may be started
			return
		}
	}
}

// takeReturns takes the next ones. If there are none, the caller is no sender any more.
func (d together) takeReturns(to *returnsOut) (list []*returnOut) {
	d.returns.mu.Lock()
	defer d.returns.mu.Unlock()
	n := min(len(to.waiting), maxTogether)
	if list, to.waiting = to.waiting[:n:n], to.waiting[n:]; n == 0 {
		to.waiting = nil
		to.senders--
	}
	return list
}

// askReturns sends one request. A single return goes as members of older versions know it.
func (d together) askReturns(member string, to *returnsOut, list []*returnOut) (answer []returnAnswer, err error) {
	ctx, cancel := context.WithTimeout(d.ctx, togetherTime)
	defer cancel()
	if len(list) == 1 {
		return make([]returnAnswer, 1), d.Members.Ask(ctx, member, kindSaid, list[0].said, nil)
	}
	all := make([]said, len(list))
	for i, one := range list {
		all[i] = one.said
	}
	err = d.Members.Ask(ctx, member, kindReturns, all, &answer)
	var refused *rpc.Error
	switch {
	case errors.As(err, &refused) && refused.Permanent(): // the request, and so none of the returns
		if refused.Code == rpc.NotFound { // the member does not know it
			d.returns.mu.Lock()
			to.older = time.Now().Add(aloneTime)
			d.returns.mu.Unlock()
		}
		return slices.Repeat([]returnAnswer{{Alone: true}}, len(list)), nil
	case err == nil && len(answer) != len(list):
		err = rpc.Errorf(rpc.Unavailable, "unreadable answer of member %s: %d of %d returns", member, len(answer), len(list))
	}
	return answer, err
}

// returnIn is a return of a minion at another member, on its way into the journal.
type returnIn struct {
	said
	job    *Job
	report job.Report
	answer *returnAnswer
	batch  journal.Batch
}

// answerReturns stores returns of minions at another member, of jobs that this one follows.
func (d together) answerReturns(ctx context.Context, member string, body []byte) (any, error) {
	if len(body) > maxTogetherSize {
		return nil, rpc.Errorf(rpc.Usage, "returns of %d bytes: the limit is %d", len(body), maxTogetherSize)
	}
	var all []said
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, rpc.Errorf(rpc.Usage, "unreadable returns: %v", err)
	}
	if len(all) > maxTogether {
		return nil, rpc.Errorf(rpc.Usage, "%d returns at once: the limit is %d", len(all), maxTogether)
	}
	answer := make([]returnAnswer, len(all))
	var list []*returnIn
	var batches []journal.Batch
	for i, s := range all {
		in := &returnIn{said: s, answer: &answer[i]}
		done, ok := d.quickReturn(member, in)
		defer done()
		if ok {
			list, batches = append(list, in), append(batches, in.batch)
		}
	}
	if len(list) == 0 {
		return answer, nil
	}
	p, err := d.Journal.BeginEach(batches)
	if err == nil {
		_, err = p.Wait(ctx)
	}
	if err == nil {
		for _, in := range list {
			d.heard(ctx, in.Minion, in.JID, in.job, in.report, nil)
		}
		err = d.Durable()
	}
	if err != nil {
		failed := d.errorOf(err)
		for _, in := range list {
			in.answer.Err = failed
		}
	}
	return answer, nil
}

// quickReturn reads a return. ok means that it is to be stored, and can be without waiting for something else;
// otherwise the answer says what to do. done ends what is under way of it.
func (d together) quickReturn(member string, in *returnIn) (done func(), ok bool) {
	done = func() {}
	run := d.jobs.running(in.JID)
	live := false
	rep, err := job.ReadReport(in.Report, func(key string, v []byte) error {
		if key == "live" {
			return json.Unmarshal(v, &live)
		}
		return nil
	})
	rep.Live = live
	if err != nil || run == nil || !run.holds() || !isQuick(in.said, rep) || spooling(d.relay).has(in.JID) ||
		run.job.size > maxTogetherEach || d.jobs.ownerOf(run.job) != "" || !d.jobs.isFor(run.job, in.Minion) {
		in.answer.Alone = true
		return done, false
	}
	if in.job, in.report = run.job, rep; d.jobs.hasReturned(run.job, in.Minion) {
		return done, false
	}
	e, err := returnEvent(in.Minion, in.JID, run.job, rep)
	if err == nil {
		done, err = d.passed.begin(member, in.Minion, rep, len(in.Report))
	}
	if err != nil {
		in.answer.Err = d.errorOf(err)
		return func() {}, false
	}
	in.batch = journal.Single(e, returnID(in.Minion, in.JID), 0)
	counted, resume := done, suspend(run, in.Minion)
	return func() { resume(); counted() }, true
}

// errorOf returns an error for another member, which only gets the text of those that are meant for it.
func (d together) errorOf(err error) (e *rpc.Error) {
	if errors.As(err, &e) {
		return e
	}
	d.throttle.Log(d.Log, slog.LevelWarn, "returns", 5, "returns of minions at another member are not stored", "err", err)
	return rpc.Errorf(rpc.Unavailable, "member %s could not store this return; its log names the cause", d.Name)
}
