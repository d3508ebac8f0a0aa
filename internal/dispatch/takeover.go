package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/lease"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

const (
	// goneTime is how long a member must be gone before another one takes over its jobs: much
	// longer than a missing heartbeat takes to be noticed (2.5 s), and than a restart.
	goneTime = 6 * time.Second
	// goneLook is how often members that are gone are looked for.
	goneLook = time.Second
	// plansLook is how often the plans are read although nobody is gone: of members that have
	// been gone since before this one has started, and of earlier leases of its own.
	plansLook = 10 * time.Second
	// takeTime limits one round: what is not taken over then is so in the next one.
	takeTime = 10 * time.Second
	// leaseTime is how long a lease is waited for.
	leaseTime = 100 * time.Millisecond
)

// TakeOver carries on the jobs of members that are gone, and those that a restart of this one has
// interrupted, until ctx ends. Of the members that run, the first by name does it.
func (a All) TakeOver(ctx context.Context) {
	if a.Leases == nil {
		return
	}
	t := takeover{relay: relay(a), gone: map[string]time.Time{}, seen: map[string]bool{}, unread: map[salt.JID]plan{}, unsure: map[salt.JID]bool{}}
	for {
		t.look(ctx, time.Now())
		if !backoff.Sleep(ctx, goneLook) {
			return
		}
	}
}

// takeover looks for jobs that nobody carries on. It is used by one goroutine.
type takeover struct {
	relay
	seen   map[string]bool      // members that have been seen, or hold a plan
	gone   map[string]time.Time // those that do not run, and since when
	read   time.Time            // when the plans were read last
	unread map[salt.JID]plan    // jobs that are taken over, whose history could not be read yet
	unsure map[salt.JID]bool    // jobs whose plan may name this member since it has tried to take them over
}

// look finds out who is gone, and takes over what is free.
func (t *takeover) look(ctx context.Context, now time.Time) {
	others := t.Members.Others()
	for _, name := range others {
		t.seen[name] = true
	}
	due := now.Sub(t.read) >= plansLook
	for name := range t.seen {
		switch since, gone := t.gone[name]; {
		case name == t.Name:
		case slices.Contains(others, name):
			delete(t.gone, name)
		case !gone:
			t.gone[name] = now
			t.Leases.Look(ctx, name)
		default:
			t.Leases.Look(ctx, name)
			due = due || now.Sub(since) >= goneTime && t.first(others)
		}
	}
	for jid, p := range t.unread {
		t.again(ctx, jid, p)
	}
	if due {
		t.takeFree(ctx, now, others)
	}
}

// first reports whether this is the member that takes over.
func (t *takeover) first(others []string) bool {
	return len(others) == 0 || t.Name < slices.Min(others)
}

// takeFree reads the plans and takes over those that are free.
func (t *takeover) takeFree(ctx context.Context, now time.Time, others []string) {
	ctx, cancel := context.WithTimeout(ctx, takeTime)
	defer cancel()
	if !t.leased(ctx) {
		return
	}
	holders, err := t.holders(ctx)
	if err != nil {
		t.throttle.Log(t.Log, slog.LevelWarn, "holders", 1, "the plans of some jobs cannot be read: those of members that are gone are not carried on yet", "err", err)
	} else {
		t.read = now
	}
	free := map[lease.Holder]bool{}
	for _, jid := range slices.Sorted(maps.Keys(holders)) {
		h := holders[jid]
		t.seen[h.Member] = true
		if _, judged := free[h]; !judged {
			free[h] = t.free(ctx, h, now, others)
		}
		if !free[h] && !t.unsure[jid] || ctx.Err() != nil {
			continue
		}
		if err := t.take(ctx, jid); err != nil {
			t.throttle.Log(t.Log, slog.LevelWarn, "take over", 5, "a job is not taken over yet", "jid", jid, "member", h.Member, "err", err)
		}
	}
}

// leased reports whether this member has a lease: without one it cannot take anything over.
func (t *takeover) leased(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, leaseTime)
	defer cancel()
	_, _, err := t.Leases.Holder(ctx)
	return err == nil
}

// free reports whether this member may take over the jobs of a holder.
func (t *takeover) free(ctx context.Context, h lease.Holder, now time.Time, others []string) bool {
	since, gone := t.gone[h.Member]
	switch {
	case h.Member == t.Name: // under an earlier lease
	case h.Member == "": // before the members were a cluster
		if !t.first(others) {
			return false
		}
	case !gone || now.Sub(since) < goneTime || !t.first(others):
		return false
	}
	live, err := t.Leases.Live(ctx, h)
	return err == nil && !live
}

// errAtWork is why a job cannot be taken over.
var errAtWork = errors.New("the member that has it may be at work")

// take takes a job over, unless another member does so at the same time.
func (t *takeover) take(ctx context.Context, jid salt.JID) error {
	t.jobs.adopting.Lock()
	defer t.jobs.adopting.Unlock()
	if t.jobs.isOurs(jid) {
		return nil
	}
	e, err := t.plans.find(ctx, jid, "")
	if e.Value == nil {
		if err == nil {
			delete(t.unsure, jid)
		}
		return err
	}
	p, err := readPlan(e.Value)
	if err != nil {
		return err
	}
	p.table = e.table
	if !t.unsure[jid] || p.Holder.Member != t.Name {
		if live, err := t.Leases.Live(ctx, p.Holder); err != nil || live {
			return errors.Join(errAtWork, err)
		}
	}
	batch, err := job.NewBatch(p.Batch, p.Start.Minions)
	if err != nil {
		return err
	}
	from := p.Holder.Member
	p.revision = e.Revision
	err = t.hold(ctx, &p, batch)
	if errors.Is(err, journal.ErrChanged) {
		return nil // another member was faster
	}
	if err != nil {
		t.unsure[jid] = true
		return err
	}
	delete(t.unsure, jid)
	if from != t.Name {
		t.Log.Warn("a job of a member that is gone is taken over", "jid", jid, "member", from)
	}
	if err := t.carryOn(ctx, p); err != nil {
		p.absent = rpc.CodeOf(err) == rpc.NotFound
		t.unread[jid] = p
		return err
	}
	return nil
}

// again is another attempt to read the history of a job that is taken over.
func (t *takeover) again(ctx context.Context, jid salt.JID, p plan) {
	t.jobs.adopting.Lock()
	defer t.jobs.adopting.Unlock()
	if p.term.Err() != nil || t.jobs.running(jid) != nil {
		delete(t.unread, jid) // in the first case it is taken over once more
		return
	}
	// The member that began the job may have read the plan before it was taken over. It then still stores the start, and
	// an end behind it: both must be there before the journals are read again.
	if p.absent && mayStart(jid) {
		return
	}
	if err := t.carryOn(ctx, p); err == nil {
		delete(t.unread, jid)
	}
}

// holders returns the holder of the plan of each unfinished job. With an error it lacks those in a
// table that did not answer.
func (d relay) holders(ctx context.Context) (map[salt.JID]lease.Holder, error) {
	all := map[salt.JID]lease.Holder{}
	err := d.plans.each(ctx, func(e planned) {
		h, err := holderOf(e.Value)
		if err != nil {
			d.throttle.Log(d.Log, slog.LevelError, "bad plan", 1, "a job cannot be resumed", "jid", e.Key, "err", err)
			return
		}
		all[salt.JID(e.Key)] = h
	})
	return all, err
}
