package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/lease"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// Limits of what other members are told of the jobs of this one.
const (
	// maxPage is the size of an answer, in bytes. One message between members has 900 KB.
	maxPage = 256 << 10
	// maxSent is the most, in bytes, of the updates in one answer, without what is around each: many short
	// ones, up to maxPage, need nearly as much for that.
	maxSent = 640 << 10
	// maxAudience is how many watchers other members may have here, and userAudience how many of these may be of
	// one user, whichever members they ask. A user has no more than there are free, either, so that others find
	// some when several have as many as they can.
	maxAudience  = 512
	userAudience = 64
	// pollTime is how long a member waits for an update before it answers that there is none.
	pollTime = 10 * time.Second
	// pollEnd is when a watcher is given up whose member does not ask for more, nor says that it ends.
	pollEnd  = time.Minute
	runsTime = 10 * time.Second
	// closeTime limits how long another member may take to hear that nobody watches a job any more.
	closeTime = 5 * time.Second
)

// poll is a request for the next updates of a job.
type poll struct {
	JID  salt.JID `json:"jid"`
	Name string   `json:"name"` // of the watcher, made by the member that asks
	N    uint64   `json:"n"`    // the number of the answer, from 1; a repetition gets the same answer
	// User is who follows the job, as that member knows it; one of an earlier version does not say it.
	User string `json:"user,omitempty"`
	// End means that nobody watches any more. A member of an earlier version gives the watcher up after pollEnd.
	End bool `json:"end,omitempty"`
}

// polled is the answer.
type polled struct {
	Updates []sentUpdate `json:"updates,omitempty"`
	End     bool         `json:"end,omitempty"` // no more is expected for now
}

// sentUpdate is an update on its way to another member. Sequences are those of the journal of the
// member that sends it.
type sentUpdate struct {
	Update json.RawMessage `json:"update"`
	Seqs   []uint64        `json:"seqs,omitempty"`
}

// audience are the watchers that other members have here.
type audience struct {
	mu  sync.Mutex
	all map[string]*listener
}

// listener is one of them.
type listener struct {
	w     *watcher
	user  string     // who follows, with the member that asks if that does not say it
	mu    sync.Mutex // held while it is answered
	n     uint64     // the number of the last answer
	last  polled
	rest  []update // not sent yet
	timer *time.Timer
	gone  chan struct{} // closed when it is given up
}

// errEnded is the answer about a job that has no run here, and about a watcher that was given up.
var errEnded = rpc.Errorf(rpc.NotFound, "this master does not follow the job")

// listener returns the watcher of a member, which the first request makes.
func (d relay) listener(from string, q poll) (*listener, error) {
	a := &d.audience
	a.mu.Lock()
	defer a.mu.Unlock()
	name := from + " " + q.Name
	if l := a.all[name]; l != nil || q.N != 1 {
		if l == nil {
			return nil, errEnded
		}
		return l, nil
	}
	run := d.jobs.running(q.JID)
	switch {
	case run == nil:
		return nil, errEnded
	}
	user, err := a.room(from, q.User)
	if err != nil {
		return nil, err
	}
	if a.all == nil {
		a.all = map[string]*listener{}
	}
	l := &listener{w: run.watchAll(), user: user, gone: make(chan struct{})}
	l.timer = time.AfterFunc(pollEnd, func() { d.dropListener(name) })
	a.all[name] = l
	return l, nil
}

// room refuses one more watcher if there are too many of all, or of its user, whom it returns. The caller holds the lock.
func (a *audience) room(from, user string) (string, error) {
	free, most := maxAudience-len(a.all), userAudience
	if user == "" {
		user, most = "member "+from, maxAudience
	}
	own := 0
	for _, l := range a.all {
		if l.user == user {
			own++
		}
	}
	switch {
	case free <= 0:
		return "", rpc.Errorf(rpc.Busy, "other members follow %d jobs of this one: that is the limit", maxAudience)
	case own >= most || own > 0 && own >= free:
		return "", rpc.Errorf(rpc.Busy, "other members follow %d jobs of this one for this user: that is the limit at the moment", own).
			WithHint("end some of the commands that follow jobs, or follow this one at the member that has it")
	}
	return user, nil
}

func (d relay) dropListener(name string) {
	d.audience.mu.Lock()
	l := d.audience.all[name]
	delete(d.audience.all, name)
	d.audience.mu.Unlock()
	if l != nil {
		l.timer.Stop()
		l.w.close()
		close(l.gone)
	}
}

// answerWatch answers with the next updates of a job of this master.
func (d relay) answerWatch(ctx context.Context, from string, body []byte) (any, error) {
	var q poll
	if err := json.Unmarshal(body, &q); err != nil || bus.CheckNonce(q.Name) != nil {
		return nil, rpc.Errorf(rpc.Usage, "unreadable request: %v", err)
	}
	if q.End {
		d.dropListener(from + " " + q.Name)
		return polled{End: true}, nil
	}
	l, err := d.listener(from, q)
	if err != nil {
		return nil, err
	}
	if !l.mu.TryLock() {
		return nil, rpc.Errorf(rpc.Busy, "this request is being answered")
	}
	defer l.mu.Unlock()
	l.timer.Reset(pollEnd)
	switch q.N {
	case l.n:
		return l.last, nil
	case l.n + 1:
	default:
		return nil, rpc.Errorf(rpc.Usage, "answer %d is not the next one", q.N)
	}
	answer, err := l.next(ctx)
	if err != nil {
		return nil, err
	}
	l.n, l.last = q.N, answer
	return answer, nil
}

// next waits for updates.
func (l *listener) next(ctx context.Context) (p polled, err error) {
	late := time.NewTimer(pollTime)
	defer late.Stop()
	for {
		list, settled, left := l.w.take()
		if left != nil {
			return p, errEnded
		}
		l.rest = append(l.rest, list...)
		if len(l.rest) > 0 || settled {
			p, err = l.page()
			p.End = settled && len(l.rest) == 0
			return p, err
		}
		select {
		case <-l.w.wake:
		case <-late.C:
			return p, nil
		case <-l.gone:
			return p, errEnded
		case <-ctx.Done():
			return p, context.Cause(ctx)
		}
	}
}

// page takes as many updates as one answer may have.
func (l *listener) page() (p polled, err error) {
	size := 0
	for len(l.rest) > 0 && size < maxPage {
		t := l.rest[0]
		b, err := t.encode()
		if err == nil && len(b) > maxSent { // for example one that was stored elsewhere, and read from there
			t.State, t.Retcode.V, t.Success.V = job.Failed, int64(1), false
			t.Return.V = "the return is too long to be passed on by another member: 'salt-run jobs.lookup_jid " + string(l.w.run.plan.Start.JID) + "' shows it"
			b, err = t.encode()
		}
		if err != nil {
			return p, err
		}
		if size += len(b); size > maxSent {
			break // in the next answer
		}
		p.Updates, l.rest = append(p.Updates, sentUpdate{b, t.seqs}), l.rest[1:]
	}
	return p, nil
}

// encode returns an update as it is within an answer, where some characters take more space.
func (t update) encode() (json.RawMessage, error) {
	b, err := t.Append(nil)
	if err != nil {
		return nil, err
	}
	return json.Marshal(json.RawMessage(b))
}

// remote is the progress of a job that another member follows.
type remote struct {
	relay
	member string
	poll   poll
	first  polled // the answer to the first request
}

// watchElsewhere begins to watch a job of another member for a user; nil if that does not follow it.
func (d relay) watchElsewhere(ctx context.Context, user string, jid salt.JID, member string) (progress, error) {
	if member == "" {
		return nil, nil
	}
	r := &remote{relay: d, member: member, poll: poll{JID: jid, Name: bus.NewNonce(), N: 1, User: user}}
	err := d.Members.Ask(ctx, member, kindWatch, r.poll, &r.first)
	if err != nil && ctx.Err() != nil {
		r.close() // it may have come
	}
	switch {
	case d.isGone(err), rpc.CodeOf(err) == rpc.NotFound:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return r, nil
}

// close implements progress. It does not wait for the other member, which may be gone.
func (r *remote) close() {
	end := r.poll
	end.End = true
	r.wg.Go(func() {
		ctx, cancel := context.WithTimeout(r.ctx, closeTime)
		defer cancel()
		_ = r.Members.Ask(ctx, r.member, kindWatch, end, nil) // otherwise it gives the watcher up after pollEnd
	})
}

// batches implements progress.
func (r *remote) batches(ctx context.Context, f func([]update) error) error {
	for p := r.first; ; {
		list, err := r.read(p)
		if err == nil && len(list) > 0 {
			err = f(list)
		}
		if err != nil || p.End {
			return err
		}
		r.poll.N++
		if p, err = r.ask(ctx); err != nil {
			return err
		}
	}
}

func (r *remote) read(p polled) (list []update, err error) {
	for _, s := range p.Updates {
		u, err := readUpdate(s.Update)
		if err != nil {
			return nil, rpc.Errorf(rpc.Unavailable, "unreadable answer of member %s: %v", r.member, err)
		}
		list = append(list, update{Update: u, seqs: s.Seqs, of: r.member})
	}
	return list, nil
}

// readUpdate reads an update without decoding its return.
func readUpdate(b []byte) (u job.Update, err error) {
	u.Report, err = job.ReadReport(b, func(key string, v []byte) error {
		switch key {
		case "id":
			return value.Text(v, &u.ID)
		case "begun":
			return json.Unmarshal(v, &u.Begun)
		}
		return nil
	})
	return u, err
}

// pollPause is the pause before a request is repeated.
const pollPause = 200 * time.Millisecond

// ask asks for the next updates, again if the answer is lost.
func (r *remote) ask(ctx context.Context) (p polled, err error) {
	for {
		p = polled{}
		err = r.Members.Ask(ctx, r.member, kindWatch, r.poll, &p)
		switch {
		case err == nil:
			return p, nil
		case ctx.Err() != nil:
			return p, context.Cause(ctx)
		case r.isGone(err), rpc.CodeOf(err) == rpc.NotFound:
			return p, errLeft(r.member, r.poll.JID)
		case rpc.CodeOf(err) == rpc.Usage, !backoff.Sleep(ctx, pollPause):
			return p, err
		}
	}
}

// errLeft is the error for those who follow a job whose member is gone, or has lost it to another
// one.
func errLeft(member string, jid salt.JID) error {
	return moved{rpc.Errorf(rpc.Unavailable, "member %s, which had the job, is gone", member).
		WithHint("another member carries it on within some seconds: 'salt-run jobs.follow %s' follows it there", jid)}
}

// moved is wrapped around the error of a job that another member carries on, or will.
type moved struct{ err *rpc.Error }

func (m moved) Error() string { return m.err.Error() }
func (m moved) Unwrap() error { return m.err }

func hasMoved(err error) bool { return errors.As(err, new(moved)) }

// active is an unfinished job as a member tells others of it.
type active struct {
	JID        salt.JID                       `json:"jid"`
	User       string                         `json:"user,omitempty"`
	Backend    string                         `json:"backend,omitempty"`
	Target     string                         `json:"tgt,omitempty"`
	TargetType string                         `json:"tgt_type,omitempty"`
	Fun        value.Value                    `json:"fun,omitzero"`
	Args       value.Value                    `json:"args,omitzero"`
	Until      time.Time                      `json:"until,omitzero"`
	Internal   bool                           `json:"internal,omitempty"`
	Standings  map[salt.MinionID]job.Standing `json:"standings,omitempty"`
	// Recorded means that the rest is too long for an answer, and is read from the journals.
	Recorded bool `json:"recorded,omitempty"`
}

// runsPage is a request for unfinished jobs, and its answer.
type runsPage struct {
	JID   salt.JID          `json:"jid,omitempty"`   // only this one; "" means all
	After salt.JID          `json:"after,omitempty"` // only later ones
	Jobs  []json.RawMessage `json:"jobs,omitempty"`
	More  bool              `json:"more,omitempty"`
}

// answerRuns tells another member the unfinished jobs of this one.
func (d relay) answerRuns(_ context.Context, _ string, body []byte) (any, error) {
	var q runsPage
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, rpc.Errorf(rpc.Usage, "%v", err)
	}
	var answer runsPage
	size := 0
	for _, r := range d.jobs.all() {
		jid := r.plan.Start.JID
		if jid <= q.After || q.JID != "" && q.JID != jid {
			continue
		}
		if size > maxPage {
			answer.More = true
			break
		}
		b, err := r.active()
		if err != nil {
			return nil, err
		}
		answer.Jobs = append(answer.Jobs, b)
		size += len(b)
	}
	return answer, nil
}

func (r *Run) active() ([]byte, error) {
	s := r.summary()
	b, err := json.Marshal(active{
		s.JID, s.User, r.job.Backend, s.Target, s.TargetType, value.Value{V: s.Fun}, value.Value{V: s.Args}, s.Until, s.Internal, s.Standings, false,
	})
	if err == nil && len(b) > maxPage {
		b, err = json.Marshal(active{JID: s.JID, Recorded: true})
	}
	return b, err
}

// runsElsewhere returns the unfinished jobs of the other members that run.
func (d relay) runsElsewhere(ctx context.Context, jid salt.JID, shown func(*Job) bool) (all []job.Summary) {
	ctx, cancel := context.WithTimeout(ctx, runsTime)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, member := range d.Members.Others() {
		wg.Go(func() {
			list, err := d.runsOf(ctx, member, jid, shown)
			if err != nil {
				d.throttle.Log(d.Log, slog.LevelWarn, "runs "+member, 1, "a member does not say which jobs it follows", "member", member, "err", err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, list...)
		})
	}
	wg.Wait()
	list, err := d.runsOfGone(ctx, jid, shown)
	if err != nil {
		d.throttle.Log(d.Log, slog.LevelWarn, "runs", 1, "the jobs of members that are gone are not known now", "err", err)
	}
	return append(all, list...)
}

// runsOfGone returns the unfinished jobs of members that are gone, before one takes them over.
func (d relay) runsOfGone(ctx context.Context, jid salt.JID, shown func(*Job) bool) (all []job.Summary, err error) {
	if d.Leases == nil {
		return nil, nil
	}
	holders := map[salt.JID]lease.Holder{}
	if jid == "" {
		holders, err = d.holders(ctx)
	} else if member, bad := d.holder(ctx, jid); bad != nil {
		return nil, bad
	} else if member != "" {
		holders[jid] = lease.Holder{Member: member}
	}
	for jid, h := range holders {
		if h.Member == d.Name || slices.Contains(d.Members.Others(), h.Member) {
			continue
		}
		one, err := d.recorded(ctx, jid)
		if rpc.CodeOf(err) == rpc.NotFound { // it was never begun
			continue
		}
		if err != nil {
			return all, err
		}
		if shown(&Job{User: one.User, Backend: one.Backend}) {
			all = append(all, one.summary())
		}
	}
	return all, err
}

func (d relay) runsOf(ctx context.Context, member string, jid salt.JID, shown func(*Job) bool) (all []job.Summary, err error) {
	for q := (runsPage{JID: jid}); ; {
		var got runsPage
		if err := d.Members.Ask(ctx, member, kindRuns, q, &got); err != nil {
			return all, err
		}
		for _, b := range got.Jobs {
			one, err := d.readActive(ctx, b)
			if err != nil {
				return all, err
			}
			if q.After = one.JID; shown(&Job{User: one.User, Backend: one.Backend}) {
				all = append(all, one.summary())
			}
		}
		if !got.More || len(got.Jobs) == 0 {
			return all, nil
		}
	}
}

func (d relay) readActive(ctx context.Context, b []byte) (one active, err error) {
	if err := json.Unmarshal(b, &one); err != nil || !one.Recorded {
		return one, err
	}
	return d.recorded(ctx, one.JID)
}

// recorded is what the journals have of an unfinished job.
func (d relay) recorded(ctx context.Context, jid salt.JID) (active, error) {
	h, err := d.history(ctx, jid)
	if err != nil {
		return active{}, err
	}
	k, err := d.Lookup(ctx, jid)
	if err != nil || k == nil {
		return active{}, err
	}
	l := &h.load
	one := active{JID: jid, User: l.User, Backend: k.Backend, Target: l.target(), TargetType: l.TargetType, Fun: l.Fun, Args: l.Arg, Internal: l.Internal, Standings: map[salt.MinionID]job.Standing{}}
	for _, id := range l.Minions {
		one.Standings[id] = h.standing(id)
	}
	return one, nil
}

func (a *active) summary() job.Summary {
	return job.Summary{JID: a.JID, User: a.User, Target: a.Target, TargetType: a.TargetType, Fun: a.Fun.V, Args: a.Args.V, Until: a.Until, Internal: a.Internal, Standings: a.Standings}
}

// cancelled is a request to withdraw a job, and its answer.
type cancelled struct {
	JID     salt.JID        `json:"jid"`
	By      string          `json:"by,omitempty"`
	Minions []salt.MinionID `json:"minions,omitempty"`
}

func (d relay) answerCancel(_ context.Context, _ string, body []byte) (any, error) {
	var q cancelled
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, rpc.Errorf(rpc.Usage, "%v", err)
	}
	ids, err := d.cancelHere(q.JID, q.By)
	if err != nil {
		return nil, rpc.Errorf(rpc.NotFound, "%w", err)
	}
	return cancelled{JID: q.JID, Minions: ids}, nil
}

func (d relay) cancelElsewhere(ctx context.Context, member string, jid salt.JID, by string) ([]salt.MinionID, error) {
	var got cancelled
	err := d.Members.Ask(ctx, member, kindCancel, cancelled{JID: jid, By: by}, &got)
	if d.isGone(err) {
		return nil, errLeft(member, jid)
	}
	return got.Minions, err
}
