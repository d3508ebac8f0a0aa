package master

import (
	"context"
	"reflect"

	"github.com/brinebus/brine/internal/acl"
	"github.com/brinebus/brine/internal/argument"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/target"
)

// peer is a minion that asks. Which one, the connection says; the message has no
// word in it.
func (m *Master) peer(i bus.Identity) asker {
	return asker{name: "minion:" + i.Name, subject: acl.Subject{Kind: acl.Peer, Name: i.Name}, identity: i}
}

// peerPublish runs a job for a minion and tells its course to the connection that
// asked and to no other: the id of a job opens nothing.
func (m *Master) peerPublish(ctx context.Context, r *rpc.Request) error {
	var q protocol.Publish
	if err := r.Decode(&q); err != nil {
		return err
	}
	if !plain(q) {
		return rpc.Errorf(rpc.Usage, "a minion publishes to others at once: not in batches, not for later, not to follow, and without settings for their returners")
	}
	q.Async = false // nobody could fetch what it returned
	if err := parseWords(q.Commands); err != nil {
		return err
	}
	return m.publishFor(ctx, r, q, m.peer(r.From))
}

// mayReadMine decides whether a minion may read entries of the mine: those that the
// commands name, of the minions that a target means.
func (m *Master) mayReadMine(ctx context.Context, r *rpc.Request, commands []acl.Command, t *target.Target, q protocol.MineGet) error {
	e, err := m.permit(m.peer(r.From), acl.Question{Scope: acl.Mine, Commands: commands, Target: t}, q.Target, q.TargetType)
	if err == nil {
		err = m.unwritten(m.trail.Record(ctx, e))
	}
	return r.Decide(err)
}

// plain says whether a request has nothing in it beside what a minion may ask for.
// All else a user may ask for is refused: the settings of a returner, say, could
// have the returning minion write where it pleases the asking one.
func plain(q protocol.Publish) bool {
	q.Target, q.TargetType, q.Delimiter, q.Commands, q.Compound = "", "", "", nil, false
	q.Timeout, q.Async, q.Preview, q.Lines, q.Returner, q.ReturnTag, q.Via = 0, false, false, false, "", "", ""
	return reflect.ValueOf(q).IsZero()
}

// peerRun runs a runner for a minion.
func (m *Master) peerRun(ctx context.Context, r *rpc.Request) error {
	var q protocol.Run
	if err := r.Decode(&q); err != nil {
		return err
	}
	q.Async, q.Wheel = false, false // neither is for minions
	list := []job.Command{q.Command}
	if err := parseWords(list); err != nil {
		return err
	}
	q.Command = list[0]
	return m.runFor(ctx, r, q, m.peer(r.From))
}

// parseWords reads the texts among the arguments as the words of a command line:
// 5 is a number and k=v a keyword. Salt's master does so for publish.publish;
// here it comes before the decision, which is about what the minions will get.
func parseWords(commands []job.Command) error {
	for i := range commands {
		c := &commands[i]
		args := []any{}
		for _, a := range c.Args {
			word, ok := a.(string)
			if !ok {
				args = append(args, a)
				continue
			}
			more, kwargs, err := argument.Parse([]string{word}, argument.Options{})
			if err != nil {
				return rpc.Errorf(rpc.Usage, "argument of %s: %v", c.Function, err)
			}
			args = append(args, more...)
			for k, v := range kwargs {
				if c.Kwargs == nil {
					c.Kwargs = map[string]any{}
				}
				c.Kwargs[k] = v
			}
		}
		c.Args = args
	}
	return nil
}
