package authz

import (
	"context"

	"github.com/brinebus/brine/internal/acl"
	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/authz/decision"
	"github.com/brinebus/brine/internal/authz/internal/seal"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
)

// Permission is what was decided about functions, and what it holds for. The zero value is
// a refusal.
type Permission struct {
	decision.Decision
	entry  audit.Entry // of what is allowed; not written yet
	within []*target.Target
	reach  salt.Reach
	own    string

	start  job.Start
	target *target.Target
}

// Own is why somebody without a rule is allowed it for what is their own; "" where a rule
// allows it for all.
func (p Permission) Own() string { return p.own }

// Reach is what the functions may make others do.
func (p Permission) Reach() salt.Reach { return p.reach }

// Start are the minions that a job may go to, and no others.
func (p Permission) Start() job.Start { return p.start }

// Target is what a job asks for.
func (p Permission) Target() *target.Target { return p.target }

// Only is the permission for some of its minions.
func (p Permission) Only(ids []salt.MinionID) Permission {
	p.start.Minions = ids
	p.entry.Minions, p.entry.Count = ids, len(ids)
	return p
}

func refuse(err error) Permission { return Permission{Decision: seal.Refuse(err)} }

// allow is the one place where this package allows anything.
func allow(c bus.Check) decision.Decision { return seal.Allow(string(c)) }

// checkOf is the check that answers a question of the principal about functions.
func (p Principal) checkOf(s acl.Scope) bus.Check {
	if p.subject.Kind != acl.Peer {
		return bus.Published
	}
	return map[acl.Scope]bus.Check{acl.Minions: bus.Peers, acl.Runner: bus.PeerRuns, acl.Wheel: bus.PeerRuns, acl.Mine: bus.MineReads}[s]
}

// decide decides whether who may do what the question says. A refusal is told to the
// principal, to the log and to the audit log: nothing is refused silently. What is allowed
// is an entry that must be written before it takes effect, see Book. The target is as it
// was written.
func (a *Authorizer) decide(who Principal, q acl.Question, tgt, kind string) Permission {
	if who.refused != nil {
		a.Audit.Note(entry(who, q, acl.Decision{Reason: "the login has ended"}, tgt, kind))
		return refuse(who.refused)
	}
	q.Subject = who.subject
	d := a.verdict(a.rulesOf(who), q)
	e := entry(who, q, d, tgt, kind)
	log := a.Log.With("user", who.name, "fun", functions(q), "target", tgt, "rule", d.Rule, "where", d.Where)
	if d.Verdict == acl.Allow {
		log.Debug("permitted")
		p := Permission{Decision: allow(who.checkOf(q.Scope)), entry: e, within: d.Within, reach: a.Tables.reach(q.Scope, q.Commands, d)}
		if d.Own {
			p.own = d.Reason
		}
		return p
	}
	if a.Audit.Note(e) {
		log.Warn("refused", "reason", d.Reason, "outside", d.Outside)
	}
	return refuse(refusal(who, q, d))
}

// rulesOf are the rules that hold for somebody.
func (a *Authorizer) rulesOf(who Principal) *acl.Rules {
	if who.rules != nil {
		return who.rules
	}
	return a.Rules().rules
}

// verdict is the one place where rules are asked about functions: for what is to happen,
// and for who only wants to know.
func (a *Authorizer) verdict(rules *acl.Rules, q acl.Question) acl.Decision {
	q.Fleet, q.Functions, q.Parse = a.Fleet, a.Tables, a.Fleet.ReadInner
	return rules.Decide(q)
}

// Run decides about a runner, or a wheel function. Where own is true the caller can hold
// who asks to what is their own, and must where Permission.Own says so.
func (a *Authorizer) Run(who Principal, c job.Command, wheel, own bool) Permission {
	scope := acl.Runner
	if wheel {
		scope = acl.Wheel
	}
	return a.decide(who, acl.Question{Scope: scope, Own: own, Commands: commandsOf(c)}, "", "")
}

// Follow decides about the course of a job: whoever started it may follow it, and who may
// use the runner jobs.follow. Only the latter is written down.
func (a *Authorizer) Follow(ctx context.Context, who Principal, jid salt.JID, started bool) decision.Decision {
	if started && who.refused == nil {
		return allow(bus.Started)
	}
	p := a.Run(who, job.Command{Function: "jobs.follow", Args: []any{string(jid)}}, false, false)
	if err := a.Record(ctx, p, jid); err != nil {
		return seal.Refuse(err)
	}
	return allow(bus.Started)
}

// Mine decides whether a minion may read the entries of the mine with these names, and writes that down. The
// target is nil where it cannot be read; tgt and kind are it as it was written.
func (a *Authorizer) Mine(ctx context.Context, from bus.Identity, t *target.Target, tgt, kind string, names []string) decision.Decision {
	commands := make([]salt.Command, len(names))
	for i, name := range names {
		commands[i].Function = salt.Function(name)
	}
	p := a.decide(a.Peer(from), acl.Question{Scope: acl.Mine, Commands: commands, Target: t}, tgt, kind)
	if err := a.Record(ctx, p, ""); err != nil {
		return seal.Refuse(err)
	}
	return p.Decision
}

// MayTarget says whether the rules let a minion name others by what a target looks at.
func (a *Authorizer) MayTarget(id salt.MinionID, t *target.Target) bool {
	return a.Rules().rules.MayTarget(acl.Subject{Kind: acl.Peer, Name: string(id)}, t) == ""
}

// RefuseEntry writes down that a minion may not keep an entry of the mine for a target that
// looks at pillar, and returns what it is told.
func (a *Authorizer) RefuseEntry(id salt.MinionID, name, expression string) error {
	reason := "the target of an entry looks at pillar only where a rule grants that by name"
	if a.Audit.Note(audit.Entry{Kind: audit.Mine, Who: audit.Who{Minion: string(id)}, Fun: "mine.keep", Target: expression, Reason: reason}) {
		a.Log.Warn("mine not changed", "minion", id, "entry", name, "reason", reason)
	}
	return rpc.Errorf(rpc.Denied, "Authorization error occurred. Minion %s may not keep %q for %s: %s", id, name, expression, reason).
		WithHint("an operator grants it in the master's configuration, by '@target' under peer")
}

// Authorize decides what needs nothing of a request but who sends it.
func (a *Authorizer) Authorize(ctx context.Context, r *rpc.Request, c bus.Check) decision.Decision {
	on, refusal := false, rpc.Errorf(rpc.Denied, "nobody may do this")
	switch c {
	case bus.Operator:
		return a.operator(ctx, r)
	case bus.FileRecv:
		if on = a.FileRecv; !on {
			a.NoteFile(r, "", "file_recv is off")
			refusal = rpc.Errorf(rpc.Denied, "the master takes no files of minions").WithHint("set file_recv: True in its configuration, and restart it")
		}
	case bus.KeyRevoke:
		on, refusal = a.KeyRevoke, rpc.Errorf(rpc.Denied, "this master does not let minions revoke their keys (allow_minion_key_revoke)")
	}
	if !on {
		return seal.Refuse(refusal)
	}
	return allow(c)
}

// operator refuses everybody but root and the daemon's own user. Who is one of them by sudo
// is let through with sudo_acl too: they say what they do with files that they can write.
func (a *Authorizer) operator(ctx context.Context, r *rpc.Request) decision.Decision {
	who := a.Principal(ctx, r.From)
	if who.subject.Operator {
		return allow(bus.Operator)
	}
	reason := "it is for root and the master's own user"
	if a.Audit.Note(audit.Entry{Kind: audit.Key, Who: who.Who(), Fun: "bus." + r.Op, Reason: reason}) {
		a.Log.Warn("request refused", "op", r.Op, "user", who.name, "reason", reason)
	}
	return seal.Refuse(rpc.Errorf(rpc.Denied, "user %s may not do this (%s): %s", who.name, r.Op, reason).WithHint("root may do this"))
}

// refusal is what the principal is told.
func refusal(who Principal, q acl.Question, d acl.Decision) error {
	what := functions(q)
	if who.subject.Kind == acl.Peer {
		return refusePeer(who, q, what, d)
	}
	return rpc.Errorf(rpc.Denied, "Authorization error occurred. User %s may not use %s: %s", who.name, what, d.Reason).
		WithHint("root may do this; an operator grants it in the master's configuration")
}

// refusePeer tells a minion that it may not, and where an operator would let it.
func refusePeer(who Principal, q acl.Question, what string, d acl.Decision) error {
	setting := map[acl.Scope]string{acl.Minions: "peer", acl.Runner: "peer_run", acl.Wheel: "peer_run, below @wheel", acl.Mine: "mine_get"}[q.Scope]
	return rpc.Errorf(rpc.Denied, "Authorization error occurred. Minion %s may not use %s through the master: %s", who.subject.Name, what, d.Reason).
		WithHint("an operator grants it in the master's configuration, under %s", setting)
}

// functions names what a question is about.
func functions(q acl.Question) string {
	list := ""
	for i, c := range q.Commands {
		if i > 0 {
			list += ","
		}
		list += string(c.Function)
	}
	return map[acl.Scope]string{acl.Runner: "@runner ", acl.Wheel: "@wheel ", acl.Mine: "@mine "}[q.Scope] + list
}

func commandsOf(list ...job.Command) []salt.Command {
	out := make([]salt.Command, len(list))
	for i, c := range list {
		out[i] = salt.Command(c)
	}
	return out
}
