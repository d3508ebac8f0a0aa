package authz

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/brinebus/brine/internal/acl"
	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// SetAudit sets where decisions are recorded, including those about events.
func (a *Authorizer) SetAudit(log *audit.Log) {
	a.Audit = log
	a.Events.Tell = a.tell
}

// kinds are the kinds of entries, by scope of the command.
var kinds = map[acl.Scope]audit.Kind{acl.Minions: audit.Publish, acl.Runner: audit.Runner, acl.Wheel: audit.Wheel, acl.Mine: audit.Mine}

// entry describes a decision, with the target as written.
func entry(who Principal, q acl.Question, d acl.Decision, tgt, kind string) audit.Entry {
	e := audit.Entry{
		Kind: kinds[q.Scope], Who: who.Who(), Target: tgt, TargetType: kind, Commands: q.Commands, Minions: q.Minions, Count: len(q.Minions),
		Rule: d.Rule, Where: d.Where, Reason: d.Reason, Outside: d.Outside, Inner: d.Inner,
	}
	if d.Verdict == acl.Allow { // the reason is its rule
		e.Verdict, e.Reason = audit.Allowed, ""
	}
	return e
}

// Record records what was allowed before it takes effect. A refusal is returned unchanged.
func (a *Authorizer) Record(ctx context.Context, p Permission, jid salt.JID) error {
	if err := p.Err(); err != nil {
		return err
	}
	e := p.entry
	e.JID = jid
	return a.Unwritten(a.Audit.Record(ctx, e))
}

// Note records, without waiting, what was allowed and is not done.
func (a *Authorizer) Note(p Permission) {
	if p.Err() == nil {
		a.Audit.Note(p.entry)
	}
}

// Book is Record while store stores the rest. It returns nil when both are stored; otherwise
// nothing may take effect.
func (a *Authorizer) Book(ctx context.Context, p Permission, jid salt.JID, store func() error) error {
	if err := p.Err(); err != nil {
		return err
	}
	e := p.entry
	e.JID = jid
	pending, err := a.Audit.Begin(e)
	if err != nil {
		return a.Unwritten(err)
	}
	if err := store(); err != nil {
		return a.Unwritten(err)
	}
	return a.Unwritten(pending.Wait(ctx))
}

// BookSpooled is Book for a job that a member of a cluster starts although it can store nothing: the
// decision, and the events with which the job begins, are on its own disk when it returns nil.
func (a *Authorizer) BookSpooled(p Permission, jid salt.JID, events []event.Event, operator bool) error {
	if err := p.Err(); err != nil {
		return err
	}
	e := p.entry
	e.JID = jid
	return a.unwritten(a.Audit.BookSpooled(e, jid, events, operator))
}

// NoteReturn records a refused return. It is false for one that is only counted.
func (a *Authorizer) NoteReturn(id salt.MinionID, jid salt.JID, reason string) bool {
	return a.Audit.Note(audit.Entry{Kind: audit.Return, Who: audit.Who{Minion: string(id)}, JID: jid, Reason: reason})
}

// NoteFile writes into the log and the audit log that a minion may not upload or read a file;
// repetitions are limited in both.
func (a *Authorizer) NoteFile(r *rpc.Request, path, reason string) {
	if a.Audit.Note(audit.Entry{Kind: audit.File, Who: audit.Who{Minion: r.From.Name}, Fun: "file." + r.Op, Reason: reason}) {
		a.Log.Warn("file refused", "minion", r.From.Name, "path", path, "reason", reason)
	}
}

// Unwritten returns the refusal for what cannot be recorded in the audit log or the journal.
// Other errors are returned unchanged.
func (a *Authorizer) Unwritten(err error) error {
	if errors.As(err, new(salt.Unwritten)) && a.Audit.Spool().Active() != nil {
		err = fmt.Errorf("without the quorum only jobs on minions are run, also with cluster_without_quorum: run: %w", err)
	}
	return a.unwritten(err)
}

func (a *Authorizer) unwritten(err error) error {
	var what salt.Unwritten
	if !errors.As(err, &what) {
		return err
	}
	a.Log.Error("refused: "+what.Error(), "err", err)
	if a.Audit.Damaged() {
		return rpc.Errorf(rpc.Unavailable, "nothing was done: %v: a file of it is damaged", what).WithHint("%s", salt.Hint(err))
	}
	if errors.Is(err, syscall.ENOSPC) {
		return rpc.Errorf(rpc.Unavailable, "nothing was done: %v: %w", what, syscall.ENOSPC).WithHint("the disk of the master is full: free some space, and it continues by itself")
	}
	if salt.Hint(err) != "" { // for example that most members of the cluster are not reached
		return rpc.Errorf(rpc.Unavailable, "nothing was done: %w", err)
	}
	return rpc.Errorf(rpc.Unavailable, "nothing was done: %v", what).WithHint("the log of the master says why")
}
