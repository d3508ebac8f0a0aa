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

// Permission is a decision about functions, and what it applies to. The zero value is a
// refusal.
type Permission struct {
	decision.Decision
	entry  audit.Entry // of an allowed request; not written yet
	within []*target.Target
	reach  salt.Reach
	own    string

	start  job.Start
	target *target.Target
}

// Own is why a principal without a rule may do it, restricted to what is their own; "" if a
// rule allows it without that restriction.
func (p Permission) Own() string { return p.own }

// Reach is what the functions may make others do.
func (p Permission) Reach() salt.Reach { return p.reach }

// Start holds the only minions that the job may go to.
func (p Permission) Start() job.Start { return p.start }

// Target is the target of the job.
func (p Permission) Target() *target.Target { return p.target }

// Only returns the permission for some of its minions.
func (p Permission) Only(ids []salt.MinionID) Permission {
	p.start.Minions = ids
	p.entry.Minions, p.entry.Count = ids, len(ids)
	return p
}

func refuse(err error) Permission { return Permission{Decision: seal.Refuse(err)} }

// allow is the only place in this package that makes an allowing decision.
func allow(c bus.Check) decision.Decision { return seal.Allow(string(c)) }

// checkOf returns the check for a question of the principal about functions.
func (p Principal) checkOf(s acl.Scope) bus.Check {
	if p.subject.Kind != acl.Peer {
		return bus.Published
	}
	return map[acl.Scope]bus.Check{acl.Minions: bus.Peers, acl.Runner: bus.PeerRuns, acl.Wheel: bus.PeerRuns, acl.Mine: bus.MineReads}[s]
}

// decide answers a question about functions for a principal. A refusal goes to the principal,
// the log and the audit log: nothing is refused silently. An allowed request has an entry that
// must be written before it takes effect, see Book. tgt is the target as written.
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
		p := Permission{Decision: allow(who.checkOf(q.Scope)), entry: e, within: d.Within, reach: a.Tables.Reach(q.Scope, q.Commands, d)}
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

// rulesOf returns the rules for a principal.
func (a *Authorizer) rulesOf(who Principal) *acl.Rules {
	if who.rules != nil {
		return who.rules
	}
	return a.Rules().rules
}

// verdict is the only place that asks rules about functions: for requests, and for questions
// without a request.
func (a *Authorizer) verdict(rules *acl.Rules, q acl.Question) acl.Decision {
	q.Fleet, q.Functions, q.Parse = a.Fleet, a.Tables, a.Fleet.ReadInner
	return rules.Decide(q)
}

// Run decides about a runner or a wheel function. With own, the caller is able to restrict the
// principal to what is their own, and must do so if Permission.Own is not "".
func (a *Authorizer) Run(who Principal, c job.Command, wheel, own bool) Permission {
	scope := acl.Runner
	if wheel {
		scope = acl.Wheel
	}
	return a.decide(who, acl.Question{Scope: scope, Own: own, Commands: commandsOf(c)}, "", "")
}

// Follow decides about the progress of a job: it allows the user who started it, and users with
// permission for the runner jobs.follow. Only the latter is recorded.
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

// Mine decides whether a minion may read the entries of the mine with these names, and records
// that. The target is nil if it cannot be parsed; tgt and kind are as written.
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

// MayTarget reports whether the rules let a minion use what the target matches by.
func (a *Authorizer) MayTarget(id salt.MinionID, t *target.Target) bool {
	return a.Rules().rules.MayTarget(acl.Subject{Kind: acl.Peer, Name: string(id)}, t) == ""
}

// RefuseEntry records that a minion may not store an entry of the mine for a target that
// matches by pillar, and returns the refusal.
func (a *Authorizer) RefuseEntry(id salt.MinionID, name, expression string) error {
	reason := "the target of an entry looks at pillar only where a rule grants that by name"
	if a.Audit.Note(audit.Entry{Kind: audit.Mine, Who: audit.Who{Minion: string(id)}, Fun: "mine.keep", Target: expression, Reason: reason}) {
		a.Log.Warn("mine not changed", "minion", id, "entry", name, "reason", reason)
	}
	return rpc.Errorf(rpc.Denied, "Authorization error occurred. Minion %s may not keep %q for %s: %s", id, name, expression, reason).
		WithHint("an operator grants it in the master's configuration, by '@target' under peer")
}

// Authorize decides about requests for which only the sender matters.
func (a *Authorizer) Authorize(ctx context.Context, r *rpc.Request, c bus.Check) decision.Decision {
	on, refusal := false, rpc.Errorf(rpc.Denied, "nobody may do this")
	switch c {
	case bus.Operator:
		return a.operator(ctx, r)
	case bus.FileRecv:
		if on = a.FileRecv; !on {
			a.NoteFile(r, "", "file_recv is off")
			refusal = rpc.Errorf(rpc.Denied, "the master accepts no files from minions").WithHint("set file_recv: True in its configuration, and restart it")
		}
	case bus.KeyRevoke:
		on, refusal = a.KeyRevoke, rpc.Errorf(rpc.Denied, "this master does not let minions revoke their keys (allow_minion_key_revoke)")
	}
	if !on {
		return seal.Refuse(refusal)
	}
	return allow(c)
}

// operator refuses everybody but root and the daemon's own user. Operators through sudo are
// allowed with sudo_acl, too: they act on files that they can write anyway.
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

// refusal returns the refusal for the principal.
func refusal(who Principal, q acl.Question, d acl.Decision) error {
	what := functions(q)
	if who.subject.Kind == acl.Peer {
		return refusePeer(who, q, what, d)
	}
	hint := "root may do this; an operator grants it in the master's configuration"
	if who.subject.Operator { // an operator may do everything that is not blacklisted
		hint = "publisher_acl_blacklist in the master's configuration forbids it to everybody"
	}
	return rpc.Errorf(rpc.Denied, "Authorization error occurred. User %s may not use %s: %s", who.name, what, d.Reason).WithHint("%s", hint)
}

// refusePeer returns the refusal for a minion, and names the setting that could allow it.
func refusePeer(who Principal, q acl.Question, what string, d acl.Decision) error {
	denied := rpc.Errorf(rpc.Denied, "Authorization error occurred. Minion %s may not use %s through the master: %s", who.subject.Name, what, d.Reason)
	if d.Closed {
		return denied.WithHint("no rule can grant this to a minion: run it at the master")
	}
	setting := map[acl.Scope]string{acl.Minions: "peer", acl.Runner: "peer_run", acl.Wheel: "peer_run, below @wheel", acl.Mine: "mine_get"}[q.Scope]
	return denied.WithHint("an operator grants it in the master's configuration, under %s", setting)
}

// functions names the functions of a question.
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
