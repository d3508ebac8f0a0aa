package authz

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/brinebus/brine/internal/acl"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/runner"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
)

// Explain answers what would be decided. Operators learn which minions the target
// means by now, and which of them the nearest rule does not cover; others learn only
// what they may do themselves. own is why who asks may ask about themselves alone, ""
// where they may ask about others.
func (a *Authorizer) Explain(ctx context.Context, who Principal, e runner.Explain, own string) (runner.Explained, error) {
	subject, rules, err := a.subjectOf(ctx, who, e, own)
	if err != nil {
		return runner.Explained{}, err
	}
	if e.Tag != "" {
		return explainTag(a, subject, e), nil
	}
	if e.Kind != "mine" {
		if err := ParseWords(e.Commands); err != nil { // as a command line does, and the master for a minion
			return runner.Explained{}, err
		}
	}
	q := acl.Question{Commands: commandsOf(e.Commands...), Subject: subject}
	var mistake error
	switch e.Kind {
	case "runner":
		q.Scope, q.Own = acl.Runner, true
	case "wheel":
		q.Scope = acl.Wheel
	case "mine":
		q.Scope = acl.Mine
	default:
		var end func()
		if q.Target, end, mistake = a.runnerTarget(ctx, who, protocol.Publish{Target: e.Target, TargetType: e.TargetType}); end != nil {
			defer end()
		}
		if mistake != nil && own == "" {
			return runner.Explained{}, mistake
		}
	}
	d := a.verdict(rules, q)
	if mistake != nil && d.Verdict == acl.Allow {
		return runner.Explained{}, mistake // who may nothing is not told how a target is read
	}
	out := runner.Explained{Allowed: d.Verdict == acl.Allow, Rule: d.Rule, Where: d.Where, Reason: d.Reason, Outside: d.Outside, Inner: d.Inner}
	if d.Own {
		out.Reason = "for what is their own: " + d.Reason
	}
	if q.Target == nil || !who.operator && !(out.Allowed && who.is(q.Subject)) {
		return out, nil
	}
	start, err := a.Fleet.Resolve(q.Target, d.Within)
	out.Minions = start.Minions
	if !out.Allowed && d.Nearest != nil {
		out.Outside = append(out.Outside, a.outside(start.Minions, d.Nearest)...)
	}
	return out, err
}

// explainTag answers what would be decided about events.
func explainTag(a *Authorizer, s acl.Subject, e runner.Explain) runner.Explained {
	var grant event.Grant
	allowed := false
	switch {
	case s.Kind == acl.Peer:
		allowed = e.Kind == "fire" && event.CheckMinionTag(salt.MinionID(s.Name), e.Tag) == nil
	case s.Kind == acl.External:
		grant, allowed = a.Events.Explain(a.Events.External(-1, s.Backend, s.Name), e.Kind == "listen", e.Tag)
	case s.Operator && s.Sudo != "" && a.Rules().sudo:
		grant, allowed = a.Events.Explain(a.Events.User(-1, s.Sudo, false), e.Kind == "listen", e.Tag)
	case s.Kind == acl.Local:
		grant, allowed = a.Events.Explain(a.Events.User(-1, s.Name, s.Operator), e.Kind == "listen", e.Tag)
	}
	out := runner.Explained{Allowed: allowed, Rule: grant.Rule, Where: grant.Where, Reason: "allowed by a rule"}
	switch {
	case allowed && s.Kind == acl.Peer:
		out.Reason = "minions fire what is in no tag space of the master or of another minion"
	case !allowed && s.Kind == acl.Peer:
		out.Reason = "minions fire nothing in a tag space of the master or of another minion, and do not listen"
	case !allowed:
		out.Reason = "no rule of event_acl allows it"
	}
	return out
}

// subjectOf is whom a question is about, with the rules that hold for them.
func (a *Authorizer) subjectOf(ctx context.Context, who Principal, e runner.Explain, own string) (acl.Subject, *acl.Rules, error) {
	rules := a.Rules().rules
	switch self := e.Minion == "" && e.Groups == nil && (e.User == "" && e.Backend == "" || e.User == who.name && e.Backend == who.subject.Backend); {
	case e.User == "" && e.Minion == "" && who.operator:
		return acl.Subject{}, nil, salt.WithHint(errors.New("nobody is asked for"), "name a user= or a minion=")
	case self:
		return who.subject, a.rulesOf(who), nil
	case own != "":
		q := acl.Question{Scope: acl.Runner, Commands: []salt.Command{{Function: "acl.explain"}}}
		d := acl.Decision{Reason: "without a rule for it one may ask about oneself alone: " + own}
		a.Audit.Note(entry(who, q, d, "", ""))
		return acl.Subject{}, nil, refusal(who, q, d)
	}
	return a.explained(ctx, e), rules, nil
}

// outside are those of the minions that a target does not mean, ten at most.
func (a *Authorizer) outside(ids []salt.MinionID, t *target.Target) []salt.MinionID {
	var out []salt.MinionID
	for _, id := range ids {
		if ok, err := t.Match(a.Fleet.Facts(id)); (!ok || err != nil) && len(out) < maxOutside {
			out = append(out, id)
		}
	}
	return out
}

// maxOutside is how many ids somebody reads.
const maxOutside = 10

// explained is the subject that a question about somebody means.
func (a *Authorizer) explained(ctx context.Context, e runner.Explain) acl.Subject {
	switch {
	case e.Minion != "":
		return acl.Subject{Kind: acl.Peer, Name: e.Minion}
	case e.Backend != "":
		return acl.Subject{Kind: acl.External, Name: e.User, Backend: e.Backend, Groups: e.Groups}
	}
	if s, ok := a.bySudo(ctx, e.User); ok {
		if e.Groups != nil {
			s.Groups = e.Groups
		}
		return s
	}
	s := acl.Subject{Kind: acl.Local, Name: e.User, Groups: e.Groups}
	for _, uid := range []int{0, os.Geteuid()} {
		s.Operator = s.Operator || string(a.Users.Lookup(ctx, uid).Name) == e.User
	}
	if name, err := salt.ParseUserName(e.User); err == nil && !s.Operator && e.Groups == nil {
		s.Groups = a.Users.Groups(ctx, name)
	}
	return s
}

// bySudo is whom jobs and the audit log call sudo_fred, where no account has that name.
func (a *Authorizer) bySudo(ctx context.Context, user string) (acl.Subject, bool) {
	name, ok := strings.CutPrefix(user, sudoPrefix)
	if _, err := salt.ParseUserName(name); !ok || err != nil || a.Users.Exists(ctx, salt.UserName(user)) {
		return acl.Subject{}, false
	}
	return a.subject(ctx, a.Users.Lookup(ctx, os.Geteuid()), name), true
}

// Rights are what who asks may do.
func (a *Authorizer) Rights(ctx context.Context, who Principal) (runner.Rights, error) {
	rules := a.rulesOf(who)
	grants, err := rules.Grants(who.subject)
	if err != nil {
		return runner.Rights{}, err
	}
	out := runner.Rights{User: who.name, Backend: who.subject.Backend, Groups: who.subject.Groups, Operator: rules.Operator(who.subject), Barred: rules.Barred()}
	for _, g := range grants {
		out.Rules = append(out.Rules, runner.Right(g))
	}
	if who.Minion() == "" {
		out.Fire, out.Listen = a.Events.Tags(a.onBus(ctx, who))
	}
	return out, nil
}
