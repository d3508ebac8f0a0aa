package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/outbox"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// Members are the other masters of a cluster. A job belongs to its owner, the master that got
// the request, which follows it and stores its returns. Minions at other members get it from
// their member, which signs it: a minion trusts only the key of its own master, whose clock
// also determines the expiry. Their messages about the job are passed to the owner.
type Members interface {
	// Where returns the other member that a minion is connected to.
	Where(id salt.MinionID) (member string, ok bool)
	// Others returns the other members that are running.
	Others() []string
	// Ask sends a request to a member. IsGone reports whether its error means that the member is
	// not running, or has stopped.
	Ask(ctx context.Context, member, kind string, body, answer any) error
	IsGone(error) bool
}

// MaxMembers is how many members may have numbers, see Options. The numbers make the ids of
// their jobs different.
const MaxMembers = 16

// relay is the part of a Dispatcher that exchanges requests with other members.
type relay struct{ *Dispatcher }

// The requests of members.
const (
	kindJob     = "job"     // send a job to minions
	kindSaid    = "said"    // handle a minion's message about a job
	kindReturns = "returns" // store short returns of several minions
	kindJobOf   = "jobof"   // what is known about a job named by a minion
	kindAwaited = "awaited" // which jobs of a minion are not finished
	kindRuns    = "runs"    // the unfinished jobs
	kindWatch   = "watch"   // the next updates of a job
	kindCancel  = "cancel"  // withdraw a job from the minions that it was not sent to yet
)

// ServeMembers registers the handlers for requests of other members.
func ServeMembers(of *Dispatcher, handle func(kind string, h func(ctx context.Context, from string, body []byte) (any, error))) {
	d := relay{of}
	handle(kindJob, d.runFor)
	handle(kindSaid, d.saidElsewhere)
	handle(kindReturns, together{d}.answerReturns)
	handle(kindJobOf, d.answerJobOf)
	handle(kindAwaited, d.answerAwaited)
	handle(kindRuns, d.answerRuns)
	handle(kindWatch, d.answerWatch)
	handle(kindCancel, d.answerCancel)
	handle(kindStored, d.answerStored)
}

// Timeouts of requests to other members.
const (
	handTime = 15 * time.Second // a job must reach its minions
	// handPause is the pause before a member that could not tell whose job it is gets it again.
	// The same goes for one that has too many requests under way.
	handPause = 250 * time.Millisecond
	// handAgainPause is the pause before a job that waits goes again to a member that did not get it.
	handAgainPause = 3 * time.Second
	// awaitedTime is short, since a minion waits for the answer to its hello.
	awaitedTime = time.Second
	jobOfTime   = 5 * time.Second
)

// handed is a request to send a job to minions of another member.
type handed struct {
	Envelope job.Envelope    `json:"envelope"` // not signed, and without expiry
	Minions  []salt.MinionID `json:"minions"`
	// Keys has, of a job that waits for minions, the keys that they had when it was sent: it is left for nobody
	// else, and the member that a minion is connected to hears first of another key.
	Keys map[salt.MinionID]string `json:"keys,omitempty"`
}

// absent is the answer: the minions that are not connected there.
type absent struct {
	Minions []salt.MinionID `json:"minions,omitempty"`
}

// handOn sends the job to the members that minions are connected to, and returns the minions
// that are connected here.
func (r *Run) handOn(ids []salt.MinionID) (here []salt.MinionID) {
	if r.d.Members == nil {
		return ids
	}
	elsewhere := map[string][]salt.MinionID{}
	for _, id := range ids {
		if !r.d.Fleet.Here(id) {
			if member, ok := r.d.Members.Where(id); ok {
				elsewhere[member] = append(elsewhere[member], id)
				continue
			}
		}
		here = append(here, id)
	}
	for member, ids := range elsewhere {
		resume := suspend(r, ids...) // they cannot answer before their member has the job, which may be busy
		r.d.wg.Go(func() { r.handTo(member, ids, resume) })
	}
	return here
}

// handTo sends the job to a member; resume is called when that has ended. Minions that it does not reach count as
// disconnected: they are asked about the job when they reconnect.
func (r *Run) handTo(member string, ids []salt.MinionID, resume func()) {
	defer resume()
	ctx, cancel := context.WithTimeout(r.d.ctx, handTime)
	defer cancel()
	q := handed{Envelope: r.plan.Envelope, Minions: ids}
	if !r.plan.Until.IsZero() {
		q.Keys = map[salt.MinionID]string{}
		for _, id := range ids {
			if key := r.plan.Keys[id]; key != "" {
				q.Keys[id] = key
			}
		}
	}
	var not absent
	err := r.d.Members.Ask(ctx, member, kindJob, q, &not)
	for isLater(err) && r.holds() && backoff.Sleep(ctx, handPause) {
		err = r.d.Members.Ask(ctx, member, kindJob, q, &not)
	}
	if err != nil {
		r.d.Log.Warn("a job did not reach the minions of another member", "jid", r.plan.Start.JID, "member", member, "minions", len(ids), "err", err)
		not.Minions = ids
	}
	if len(not.Minions) > 0 && !r.plan.Until.IsZero() {
		r.d.wg.Go(func() { r.handAgain(not.Minions) })
	}
	for _, id := range not.Minions {
		switch {
		case !r.job.minions[id]:
		case err != nil:
			notHanded(r, id, fmt.Sprintf("member %s, to which it is connected, has not confirmed that it got the job: %v", member, err))
		default:
			r.lost(id)
		}
	}
}

// notHanded records that the member of a minion may not have got the job, for this reason.
func notHanded(r *Run, id salt.MinionID, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.plan.waits(id, time.Now()) && r.tracker.Unheard(id) {
		r.away(id, text)
		return
	}
	r.notify(r.tracker.Unsure(id, text, time.Now()))
}

// handAgain sends a job that waits for minions again to those that are connected nevertheless: only the member did not
// get it, or they were just connecting, and they will not connect again for that.
func (r *Run) handAgain(ids []salt.MinionID) {
	if !backoff.Sleep(r.d.ctx, handAgainPause) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		if there, _ := r.d.Fleet.Connected(id); there && r.tracker.Parked(id) && !slices.Contains(r.due, id) {
			r.due = append(r.due, id)
		}
	}
	r.stir()
}

// isLater reports whether a member may be able to do soon what it has refused.
func isLater(err error) bool {
	code := rpc.CodeOf(err)
	return code == rpc.Unavailable || code == rpc.Busy
}

// runFor sends a job of another member to minions that are connected here.
func (d relay) runFor(ctx context.Context, owner string, body []byte) (any, error) {
	if err := rpc.CheckBuilt(body); err != nil {
		return nil, err
	}
	var q handed
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, rpc.Errorf(rpc.Usage, "unreadable job: %v", err)
	}
	e := q.Envelope
	if _, err := salt.ParseJID(string(e.JID)); err != nil || len(e.Commands) == 0 {
		return nil, rpc.Errorf(rpc.Usage, "no job: %v", err)
	}
	var there []salt.MinionID
	var not absent
	for _, id := range q.Minions {
		if key := q.Keys[id]; d.Fleet.Here(id) && (key == "" || key == d.Fleet.KeyHere(id)) {
			there = append(there, id)
		} else {
			not.Minions = append(not.Minions, id)
		}
	}
	if len(there) == 0 {
		return not, nil
	}
	k := &Job{fun: e.Fun(), args: e.Arguments(), User: e.User, owner: owner}
	if err := d.noteElsewhere(ctx, e.JID, k.measured(), there); err != nil {
		d.Log.Warn("a job of another member is refused", "jid", e.JID, "member", owner, "err", err)
		return nil, err
	}
	e.Expires = d.Now().Add(expiry)
	sealed, err := job.Seal(&e, d.Key)
	if err != nil {
		return nil, err
	}
	d.Log.Info("job of another member", "jid", e.JID, "fun", functionList(e.Commands), "user", e.User, "member", owner, "minions", len(there))
	for _, id := range there {
		if err := rpc.Publish(d.Conn, bus.JobSubject(id), sealed, d.Fleet.Framed(id)); err != nil {
			return nil, fmt.Errorf("job not sent: %w", err)
		}
	}
	return not, nil
}

// noteElsewhere records that a job of another member was sent to minions here. It refuses a job
// that is known as that of a third member: otherwise a member could divert the returns of
// others.
func (j *jobs) noteElsewhere(jid salt.JID, k *Job, ids []salt.MinionID) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	old := j.known[jid]
	if r := j.runs[jid]; r != nil {
		old = r.job
	}
	if old != nil {
		if old.owner != k.owner {
			return rpc.Errorf(rpc.Denied, "job %s is that of another master", jid)
		}
		k = old
	} else {
		k.minions, k.partial = map[salt.MinionID]bool{}, true
		j.remember(jid, k)
	}
	before := len(k.minions)
	for _, id := range ids {
		k.minions[id] = true
	}
	if k.counted > 0 {
		j.count(k, minionSize*(len(k.minions)-before))
	}
	return nil
}

// passOn passes a minion's message about a job to the owner of the job, and returns when the
// owner has handled it. A return for an owner that is gone is stored here.
func (d relay) passOn(ctx context.Context, k *Job, s said, rep job.Report) error {
	err := d.tell(ctx, k, s, rep)
	switch {
	case errors.Is(err, errHere):
		return d.said(ctx, s, rep)
	case !d.isGone(err):
		return err
	case rep.State.Returned():
		if stored, err := d.hasReturn(ctx, k, s); err != nil || stored {
			return err
		}
		d.noteOrphan(k, s)
		if k, err = k.described(ctx, d, s.JID); err != nil {
			return err
		}
		if err := d.keepSaid(ctx, k, s, rep); err != nil {
			return err
		}
		d.checkHolder(ctx, k, s.JID)
		return nil
	case len(rep.Output) > 0 || rep.OutputEnd:
		return errNobody
	}
	return nil
}

// errHere means that this member has the job now.
var errHere = errors.New("this member has the job")

// maxMoves is how often the owner of a job is looked up again for one message.
const maxMoves = 3

// tell passes a message to the owner of a job. If that is gone, or does not have the job any
// more, the table of plans says who has it.
func (d relay) tell(ctx context.Context, k *Job, s said, rep job.Report) (err error) {
	for range maxMoves {
		owner := d.jobs.ownerOf(k)
		if owner == "" || d.jobs.running(s.JID) != nil {
			return errHere
		}
		if isQuick(s, rep) {
			err = together{d}.passReturn(ctx, owner, s)
		} else {
			err = d.Members.Ask(ctx, owner, kindSaid, s, nil)
		}
		moved := rpc.CodeOf(err) == rpc.NotFound
		if err == nil || d.Leases == nil || !moved && !d.isGone(err) {
			return err
		}
		now, bad := d.holder(ctx, s.JID)
		switch {
		case bad != nil:
			return bad
		case now == d.Name:
			return errUnconfirmed // it is being taken over
		case now == "" || now == owner:
			if moved {
				return fmt.Errorf("%w: %w", errNoOwner, err)
			}
			return err
		}
		d.jobs.setOwner(k, now)
	}
	if rpc.CodeOf(err) == rpc.NotFound { // a minion would drop a return that is refused so
		return errUnconfirmed
	}
	return err
}

// errNoOwner means that the owner of a job has lost it, and nobody has taken it over.
var errNoOwner = errors.New("no member has the job")

func (d relay) isGone(err error) bool {
	return err != nil && (errors.Is(err, errNoOwner) || d.Members.IsGone(err))
}

// checkHolder is called when a return for a member that is gone was stored. If another one has
// taken the job over meanwhile, it may have read the journals before.
func (d relay) checkHolder(ctx context.Context, k *Job, jid salt.JID) {
	now, err := d.holder(ctx, jid)
	if err != nil || now == "" || now == d.Name || now == d.jobs.ownerOf(k) {
		return
	}
	d.jobs.setOwner(k, now)
	d.tellStored(ctx, now, jid)
}

// maxOrphans is how many returns for a member that is gone are logged in a minute.
const maxOrphans = 20

func (d relay) noteOrphan(k *Job, s said) {
	d.throttle.Log(d.Log, slog.LevelInfo, "orphan "+k.owner, maxOrphans, "a return is stored here, since the member that has sent the job is gone", "jid", s.JID, "minion", s.Minion, "member", k.owner)
}

// readElsewhere handles a return from an outbox for a job of another member. It stays in the
// outbox while the owner cannot store it.
func (d relay) readElsewhere(ctx context.Context, k *Job, s said, rep job.Report) (r outbox.Record, err error) {
	err = d.tell(ctx, k, s, rep)
	switch {
	case errors.Is(err, errHere):
		return r, errUnconfirmed // it has just been taken over
	case !d.isGone(err):
		return r, err
	case !rep.State.Returned():
		return r, nil // the owner is gone, so nobody is informed
	}
	if stored, err := d.hasReturn(ctx, k, s); err != nil || stored {
		return r, err
	}
	d.noteOrphan(k, s)
	if k, err = k.described(ctx, d, s.JID); err != nil {
		return r, err
	}
	e, err := returnEvent(s.Minion, s.JID, k, rep)
	if err != nil {
		return r, rpc.Errorf(rpc.Usage, "%v", err)
	}
	r.Events = []event.Event{e}
	r.After = func(*journal.Pending) { d.checkHolder(ctx, k, s.JID) }
	return r, nil
}

// saidElsewhere handles the message of a minion at another member about a job of this master.
func (d relay) saidElsewhere(ctx context.Context, member string, body []byte) (any, error) {
	if err := rpc.CheckBuilt(body); err != nil {
		return nil, err
	}
	var s said
	var rep job.Report
	err := json.Unmarshal(body, &s)
	if err == nil {
		err = json.Unmarshal(s.Report, &rep)
	}
	if err == nil {
		_, err = salt.ParseMinionID(string(s.Minion))
	}
	if err != nil {
		return nil, rpc.Errorf(rpc.Usage, "unreadable message of a minion: %v", err)
	}
	done, err := d.passed.begin(member, s.Minion, rep, len(body))
	if err != nil {
		return nil, err
	}
	defer done()
	k, err := d.ownJob(ctx, s.JID)
	if err != nil {
		return nil, err
	}
	if k == nil {
		return nil, rpc.Errorf(rpc.Denied, "job %s was not sent by this master", s.JID)
	}
	if rep.State.Returned() { // it is never passed to a third member
		if stored, err := d.hasReturn(ctx, k, s); err != nil || stored {
			return nil, err
		}
	}
	return nil, d.said(ctx, s, rep)
}

// hasReturn reports whether the return of a job is already stored, at this member or another one: a
// message that was passed on may be repeated much later, when the journal has forgotten its name, and the
// member that has sent the job may have stored it before it was lost.
func (d relay) hasReturn(ctx context.Context, k *Job, s said) (found bool, err error) {
	switch {
	case d.jobs.hasReturned(k, s.Minion):
		return true, nil
	case d.jobs.running(s.JID) != nil, !d.jobs.isFor(k, s.Minion), d.jobs.isRead(k):
		return false, nil
	}
	done, end, err := d.jobs.beginRead(ctx, k) // thousands of minions may return at once: one of them reads for all
	if err != nil {
		return false, err
	}
	defer end()
	if d.jobs.isRead(k) {
		return d.jobs.hasReturned(k, s.Minion), nil
	}
	err = d.Journals.Read(ctx, journal.Query{Subjects: []string{event.JobSubject(s.JID, "ret")}, Whole: true}, func(e event.Event) error {
		if id, ok := strings.CutPrefix(e.Tag, returnTag("", s.JID)); ok {
			d.jobs.note(k, salt.MinionID(id), true)
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	done()
	return d.jobs.hasReturned(k, s.Minion), nil
}

// described returns a job of another member with its arguments. They are read from the journals if the
// member has left them out, and stay away if no journal has the job any more.
func (k *Job) described(ctx context.Context, d relay, jid salt.JID) (*Job, error) {
	if !k.recorded {
		return k, nil
	}
	whole, err := d.Lookup(ctx, jid)
	if err != nil || whole == nil {
		return k, err
	}
	return whole, nil
}

// origin is a request about a job that a minion names, and the owner's answer.
type origin struct {
	JID      salt.JID      `json:"jid"`
	Minion   salt.MinionID `json:"minion"`
	Fun      value.Value   `json:"fun,omitzero"`
	Args     value.Value   `json:"args,omitzero"`
	User     string        `json:"user,omitempty"`
	Backend  string        `json:"backend,omitempty"`
	Metadata value.Value   `json:"metadata,omitzero"`
	// Recorded means that the rest is too long for an answer, and is read from the journals if it is needed.
	Recorded bool `json:"recorded,omitempty"`
}

func (d relay) answerJobOf(ctx context.Context, _ string, body []byte) (any, error) {
	var q origin
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, rpc.Errorf(rpc.Usage, "%v", err)
	}
	if _, err := salt.ParseJID(string(q.JID)); err != nil {
		return nil, rpc.Errorf(rpc.Usage, "%v", err)
	}
	k, err := d.lookupOwn(ctx, q.JID)
	if err != nil {
		return nil, err
	}
	if k == nil || d.jobs.ownerOf(k) != "" || !d.jobs.isFor(k, q.Minion) {
		return nil, rpc.Errorf(rpc.NotFound, "job %s was not sent to %s by this master", q.JID, q.Minion)
	}
	return k.describe(q.JID, q.Minion, maxPage)
}

// describe returns an origin for another member. What the job runs is left out if that would be longer
// than most bytes.
func (k *Job) describe(jid salt.JID, id salt.MinionID, most int) (json.RawMessage, error) {
	if k.size <= most {
		b, err := json.Marshal(origin{
			JID: jid, Minion: id, Fun: value.Value{V: k.fun}, Args: value.Value{V: k.args}, User: k.User, Backend: k.Backend, Metadata: value.Value{V: k.metadata},
		})
		if err != nil || len(b) <= most {
			return b, err
		}
	}
	return json.Marshal(origin{JID: jid, Minion: id, Recorded: true})
}

// noteOrigin records a member's answer about a job of its own.
func (d relay) noteOrigin(ctx context.Context, member string, jid salt.JID, id salt.MinionID, o origin) error {
	k := &Job{fun: o.Fun.V, args: o.Args.V, User: o.User, Backend: o.Backend, metadata: o.Metadata.V, owner: member, recorded: o.Recorded}
	return d.noteElsewhere(ctx, jid, k.measured(), []salt.MinionID{id})
}

// maxUnknown is how often in a minute the other members are asked about unknown jobs that one
// minion names: invented job ids must not load all members.
const maxUnknown = 10

// lookupFor is Lookup for a job that a minion names. If the job may be one of another member,
// it asks those that run, and then reads the journals of all.
func (d relay) lookupFor(ctx context.Context, id salt.MinionID, jid salt.JID) (*Job, error) {
	k, err := d.lookupRunning(ctx, id, jid, string(id))
	if d.Members == nil || err != nil || k != nil {
		return k, err
	}
	k, err = d.Lookup(ctx, jid)
	if k != nil && d.jobs.isFor(k, id) {
		d.unknown.Undo(string(id)) // it was not invented: a member that is gone has sent it
	}
	return k, err
}

// lookupRunning is lookupFor for a job of a member that runs; nil for any other. A question about an
// unknown job counts under this name.
func (d relay) lookupRunning(ctx context.Context, id salt.MinionID, jid salt.JID, counted string) (*Job, error) {
	k, err := d.lookupOwn(ctx, jid)
	if d.Members == nil || err != nil || k != nil && (!k.partial || d.jobs.isFor(k, id)) {
		return k, err
	}
	if _, tell := d.unknown.Count(counted, time.Now(), maxUnknown); !tell {
		return nil, rpc.Errorf(rpc.Busy, "minion %s names too many jobs that no master has sent", id)
	}
	asking, cancel := context.WithTimeout(ctx, jobOfTime)
	defer cancel()
	for _, member := range d.Members.Others() {
		found := origin{}
		err := d.Members.Ask(asking, member, kindJobOf, origin{JID: jid, Minion: id}, &found)
		switch {
		case rpc.CodeOf(err) == rpc.NotFound, d.isGone(err):
			continue
		case err != nil:
			return nil, rpc.Errorf(rpc.Unavailable, "member %s does not say whether job %s is its own: %v", member, jid, err)
		}
		if err := d.noteOrigin(ctx, member, jid, id, found); err != nil {
			return nil, err
		}
		d.unknown.Undo(counted) // it was not invented: the minion got it at the member that it was connected to before
		return d.jobs.find(jid), nil
	}
	return nil, nil
}

// answerAwaited returns the jobs of this master that a minion has not finished.
func (d relay) answerAwaited(_ context.Context, _ string, body []byte) (any, error) {
	var id salt.MinionID
	if err := json.Unmarshal(body, &id); err != nil {
		return nil, rpc.Errorf(rpc.Usage, "%v", err)
	}
	var list []json.RawMessage
	size := 0
	for _, jid := range d.jobs.open(id) {
		k := d.jobs.find(jid)
		if k == nil {
			continue
		}
		b, err := k.describe(jid, id, maxPage-size)
		if err != nil {
			return nil, err
		}
		if size += len(b); size > 2*maxPage {
			break // some thousand jobs
		}
		list = append(list, b)
	}
	return list, nil
}

// awaitedElsewhere asks the other members. One that does not answer in time asks about its jobs
// when the minion connects again.
func (d relay) awaitedElsewhere(id salt.MinionID) (all []salt.JID) {
	if d.Members == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(d.ctx, awaitedTime)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, member := range d.Members.Others() {
		wg.Go(func() {
			var list []origin
			if err := d.Members.Ask(ctx, member, kindAwaited, id, &list); err != nil {
				d.throttle.Log(d.Log, slog.LevelWarn, "awaited "+member, 1, "a member does not say which jobs of a minion it follows", "member", member, "minion", id, "err", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, o := range list {
				if _, err := salt.ParseJID(string(o.JID)); err == nil && d.noteOrigin(ctx, member, o.JID, id, o) == nil {
					all = append(all, o.JID)
				}
			}
		})
	}
	wg.Wait()
	return all
}
