package authz

import (
	"context"
	"errors"

	"github.com/brinebus/brine/internal/acl"
	"github.com/brinebus/brine/internal/authz/command"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/target"
)

// errNoRule is for a principal without any rule who was allowed something nevertheless.
var errNoRule = errors.New("no rule applies to the principal")

// Publish decides about a job by its target expression, and then resolves it among the minions
// that the rules allow: neither the answer nor its time depends on other minions. Only a
// principal who may run the functions somewhere learns that the target cannot be parsed;
// without any rule it is not even read.
func (a *Authorizer) Publish(ctx context.Context, who Principal, q protocol.Publish) Permission {
	commands := q.Commands
	if q.Preview && len(commands) == 0 {
		commands = []job.Command{{Function: "test.ping"}} // it reveals as much
	}
	if len(commands) == 0 {
		return refuse(rpc.Errorf(rpc.Usage, "there is no function to run"))
	}
	if (q.ReturnConfig != "" || q.ReturnKwargs.V != nil) && !who.operator {
		return refuse(rpc.Errorf(rpc.Denied, "Authorization error occurred. User %s may not set the returners of minions: they write files and reach other machines as root does", who.name).
			WithHint("root may; else leave --return_config and --return_kwargs out"))
	}
	question := acl.Question{Commands: commandsOf(commands...)}
	if !a.rulesOf(who).Any(acl.Question{Subject: who.subject}) {
		if p := a.decide(who, question, q.Target, q.TargetType); p.Err() != nil {
			return p
		}
		return refuse(errNoRule)
	}
	if q.ReturnTag != "" { // the minions fire their returns, as with that function
		question.Beside = []acl.Inner{{Command: command.Sending(q.ReturnTag)}}
	}
	t, mistake := a.Fleet.ParseTarget(ctx, who.Key(), q)
	end, err := a.Fleet.TakeTurn(ctx, who.Key(), t)
	if err != nil {
		return refuse(err)
	}
	defer end()
	question.Target = t
	p := a.decide(who, question, q.Target, q.TargetType)
	if p.Err() != nil {
		return p
	}
	return a.resolve(p, t, mistake)
}

// resolve finds the minions of a permission. mistake is the error of parsing the target.
func (a *Authorizer) resolve(p Permission, t *target.Target, mistake error) Permission {
	var start job.Start
	if mistake == nil {
		start, mistake = a.Fleet.Resolve(t, p.within)
	}
	if mistake != nil {
		a.Note(p)
		return refuse(mistake)
	}
	p.start, p.target = start, t
	return p.Only(start.Minions)
}

// Ping decides about a test.ping that a runner needs itself: whoever may run the runner may
// have it done.
func (a *Authorizer) Ping(ctx context.Context, who Principal, q protocol.Publish) Permission {
	for _, c := range q.Commands {
		if c.Function != "test.ping" || len(c.Args)+len(c.Kwargs) > 0 {
			return refuse(errNoRule)
		}
	}
	t, end, err := a.runnerTarget(ctx, who, q)
	if err != nil {
		return refuse(err)
	}
	defer end()
	start, err := a.Fleet.Resolve(t, nil)
	if err != nil {
		return refuse(err)
	}
	d := acl.Decision{Verdict: acl.Allow, Rule: "runner"}
	question := acl.Question{Commands: commandsOf(q.Commands...), Minions: start.Minions}
	return Permission{Decision: allow(bus.Published), start: start, target: t, entry: entry(who, question, d, q.Target, q.TargetType)}
}

// runnerTarget parses a target of a runner, and waits for the turn to resolve it. It refuses a
// target that matches by pillar if no rule grants that to the principal.
func (a *Authorizer) runnerTarget(ctx context.Context, who Principal, q protocol.Publish) (t *target.Target, end func(), err error) {
	if t, err = a.Fleet.ParseTarget(ctx, who.Key(), q); err != nil {
		return nil, nil, err
	}
	if why := a.rulesOf(who).MayTarget(who.subject, t); why != "" {
		return nil, nil, rpc.Errorf(rpc.Denied, "Authorization error occurred. %s may not use this target: %s", who.name, why).
			WithHint("root may do this; an operator grants it in the master's configuration, by '@target'")
	}
	end, err = a.Fleet.TakeTurn(ctx, who.Key(), t)
	return t, end, err
}
