package authz

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/brinebus/brine/internal/acl"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
)

// Access answers questions of a principal about the rules. It decides nothing.
type Access struct {
	*Authorizer
	who Principal
	own string // why they may ask about themselves only, "" if they may ask about others
}

// Access answers the questions of who, about themselves only if own says why.
func (a *Authorizer) Access(who Principal, own string) Access { return Access{a, who, own} }

// Explain answers what would be decided. Operators also learn which minions the target matches
// now, and which of them the nearest rule does not cover; others learn only what they may do
// themselves.
func (a Access) Explain(ctx context.Context, e acl.Explain) (acl.Explained, error) {
	subject, rules, err := a.subjectOf(ctx, e)
	if err != nil {
		return acl.Explained{}, err
	}
	if e.Tag != "" {
		return explainTag(a, subject, e), nil
	}
	commands := make([]job.Command, len(e.Commands))
	for i, c := range e.Commands {
		commands[i] = job.Command(c)
	}
	if e.Kind != "mine" {
		if err := protocol.ParseWords(commands); err != nil { // as the command line does, and the master for a minion
			return acl.Explained{}, err
		}
	}
	q := acl.Question{Commands: commandsOf(commands...), Subject: subject}
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
		if q.Target, end, mistake = a.runnerTarget(ctx, a.who, protocol.Publish{Target: e.Target, TargetType: e.TargetType}); end != nil {
			defer end()
		}
		if mistake != nil && a.own == "" {
			return acl.Explained{}, mistake
		}
	}
	d := a.verdict(rules, q)
	if mistake != nil && d.Verdict == acl.Allow {
		return acl.Explained{}, mistake // without any permission they do not learn how a target is read
	}
	out := acl.Explained{Allowed: d.Verdict == acl.Allow, Rule: d.Rule, Where: d.Where, Reason: d.Reason, Outside: d.Outside, Inner: d.Inner}
	if d.Own {
		out.Reason = "for what is their own: " + d.Reason
	}
	if q.Target == nil || !a.who.operator && !(out.Allowed && a.who.is(q.Subject)) {
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
func explainTag(a Access, s acl.Subject, e acl.Explain) acl.Explained {
	var grant event.Grant
	allowed := false
	switch {
	case s.Kind == acl.Peer:
		allowed = e.Kind == "fire" && event.CheckMinionTag(salt.MinionID(s.Name), e.Tag) == nil
	case s.Kind == acl.External:
		grant, allowed = a.Events.Explain(a.Events.External(-1, s.Backend, s.Name), e.Kind == "listen", e.Tag)
	case s.Operator && s.Sudo != "" && a.Rules().config.SudoACL:
		grant, allowed = a.Events.Explain(a.Events.User(-1, s.Sudo, false), e.Kind == "listen", e.Tag)
	case s.Kind == acl.Local:
		grant, allowed = a.Events.Explain(a.Events.User(-1, s.Name, s.Operator), e.Kind == "listen", e.Tag)
	}
	out := acl.Explained{Allowed: allowed, Rule: grant.Rule, Where: grant.Where, Reason: "allowed by a rule"}
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

// subjectOf returns the subject of a question, and the rules for it.
func (a Access) subjectOf(ctx context.Context, e acl.Explain) (acl.Subject, *acl.Rules, error) {
	who, rules := a.who, a.Rules().rules
	switch self := e.Minion == "" && e.Groups == nil && (e.User == "" && e.Backend == "" || e.User == who.name && e.Backend == who.subject.Backend); {
	case e.User == "" && e.Minion == "" && who.operator:
		return acl.Subject{}, nil, salt.WithHint(errors.New("no subject is given"), "name a user= or a minion=")
	case self:
		return who.subject, a.rulesOf(who), nil
	case a.own != "":
		q := acl.Question{Scope: acl.Runner, Commands: []salt.Command{{Function: "acl.explain"}}}
		d := acl.Decision{Reason: "without a rule for it one may ask about oneself alone: " + a.own}
		a.Audit.Note(entry(who, q, d, "", ""))
		return acl.Subject{}, nil, refusal(who, q, d)
	}
	return a.explained(ctx, e), rules, nil
}

// outside returns those of the minions that a target does not match, ten at most.
func (a Access) outside(ids []salt.MinionID, t *target.Target) []salt.MinionID {
	var out []salt.MinionID
	for _, id := range ids {
		if ok, err := t.Match(a.Fleet.Facts(id)); (!ok || err != nil) && len(out) < maxOutside {
			out = append(out, id)
		}
	}
	return out
}

// maxOutside limits the listed ids to a readable number.
const maxOutside = 10

// explained returns the subject for a question about somebody.
func (a Access) explained(ctx context.Context, e acl.Explain) acl.Subject {
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

// bySudo returns the user whom jobs and the audit log call sudo_fred, if no account has that
// name.
func (a Access) bySudo(ctx context.Context, user string) (acl.Subject, bool) {
	name, ok := strings.CutPrefix(user, sudoPrefix)
	if _, err := salt.ParseUserName(name); !ok || err != nil || a.Users.Exists(ctx, salt.UserName(user)) {
		return acl.Subject{}, false
	}
	return a.subject(ctx, a.Users.Lookup(ctx, os.Geteuid()), name), true
}

// Rights returns what the principal may do.
func (a Access) Rights(ctx context.Context) (acl.Rights, error) {
	who := a.who
	rules := a.rulesOf(who)
	grants, err := rules.Grants(who.subject)
	if err != nil {
		return acl.Rights{}, err
	}
	out := acl.Rights{User: who.name, Backend: who.subject.Backend, Groups: who.subject.Groups, Operator: rules.Operator(who.subject), Rules: grants, Barred: rules.Barred()}
	if who.Minion() == "" {
		out.Fire, out.Listen = a.Events.Tags(a.onBus(ctx, who))
	}
	return out, nil
}
