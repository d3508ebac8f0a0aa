package authz

import (
	"context"

	"github.com/brinebus/brine/internal/acl"
	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/authz/decision"
	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/authz/internal/seal"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
)

// Send decides about an event that a runner fires: its user may fire only what they could fire
// without the runner. from is the sender of the event, the user of the runner. The tag spaces
// of the master are for operators.
func (a *Authorizer) Send(ctx context.Context, who Principal, tag string) (from string, d decision.Decision) {
	if id := who.Minion(); id != "" {
		return id, a.MinionFire(salt.MinionID(id), tag)
	}
	p := a.onBus(ctx, who)
	if who.subject.Kind != acl.Local && who.subject.Kind != acl.External {
		return "", seal.Refuse(nil)
	}
	if !p.Operator() && event.Reserved(tag) {
		return "", seal.Refuse(rpc.Errorf(rpc.Denied, "user %s may not fire %s: the tag spaces of the master are for operators", p.Name(), tag))
	}
	if err := a.Events.Fire(p).Check(tag); err != nil {
		return "", seal.Refuse(err)
	}
	return a.sender(who, p), allow(bus.EventGrant) // the runner is in the audit log
}

// sender returns the sender, with the name that the runner uses for them.
func (a *Authorizer) sender(who Principal, p eventacl.Principal) string {
	if who.subject.Backend != "" {
		return p.Sender
	}
	return salt.UserPrefix + who.name
}

// MinionFire decides about events of a minion: it may not use tags of the master or of other
// minions.
func (a *Authorizer) MinionFire(id salt.MinionID, tags ...string) decision.Decision {
	for _, tag := range tags {
		err := event.CheckMinionTag(id, tag)
		if err == nil {
			continue
		}
		if a.Audit.Note(audit.Entry{Kind: audit.Fire, Who: audit.Who{Minion: string(id)}, Fun: "event.fire_master", Tags: []string{tag}, Reason: err.Error()}) {
			a.Log.Warn("event refused", "minion", id, "tag", tag, "err", err)
		}
		return seal.Refuse(rpc.Errorf(rpc.Denied, "minion %s may not fire this event: %v", id, err))
	}
	return allow(bus.TagSpace)
}

// tell records a decision about a user's use of the bus. written is false for a refusal that is
// only counted.
func (a *Authorizer) tell(ctx context.Context, d eventacl.Record) (written bool, err error) {
	who := audit.Who{User: d.Who.Name(), Sudo: d.Who.Sudo, Source: d.Who.Source}
	if d.Who.UID >= 0 {
		who.UID = &d.Who.UID
	}
	e := audit.Entry{
		Kind: audit.Kind(d.Verb), Who: who, Fun: "event." + d.Verb, Tags: d.Tags, Count: d.Count, Rule: d.Rule, Where: d.Where, Reason: d.Reason,
	}
	if !d.Allowed {
		return a.Audit.Note(e), nil
	}
	e.Verdict = audit.Allowed
	err = a.Unwritten(a.Audit.Record(ctx, e))
	if err != nil && d.Verb == "listen" && d.Who.Operator() {
		// An operator who looks for the cause must be able to listen. It changes nothing, and
		// they could read the files as well.
		a.Log.Warn("an operator listens, which is not in the audit log", "user", d.Who.Name())
		err = nil
	}
	return true, err
}
