package eventbus

import (
	"context"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// mostWords limits the words of one answer: a shell cannot usefully show more.
const mostWords = 200

// SetWords sets the source of the daemon's own words beside tags and jobs. It is called before
// any request is served.
func (r *Bus) SetWords(words func(kind protocol.WordKind) []string) { r.words = words }

// Complete answers with the words that begin with what a user has typed: tags only of events
// that they may hear, minions and nodegroups only for operators. Function names are for all, as
// their documentation is.
func (r *Bus) Complete(ctx context.Context, req *rpc.Request, who eventacl.Principal) error {
	var q protocol.Complete
	if err := req.Decode(&q); err != nil {
		return err
	}
	list := slices.DeleteFunc(r.wordsFor(who, q.Kind), func(w string) bool { return !strings.HasPrefix(w, q.Prefix) })
	slices.Sort(list)
	list = slices.Compact(list)
	return req.Send(ctx, protocol.Words{Words: list[:min(len(list), mostWords)]})
}

func (r *Bus) wordsFor(who eventacl.Principal, kind protocol.WordKind) []string {
	switch kind {
	case protocol.TagWords:
		return slices.DeleteFunc(r.journal.Recent.Tags(), func(tag string) bool { return !who.Hearing().May(tag) })
	case protocol.JobWords:
		return slices.DeleteFunc(r.journal.Recent.Jobs(), func(jid string) bool { return !who.Hearing().May("salt/job/" + jid + "/new") })
	case protocol.FunctionWords, protocol.RunnerWords, protocol.WheelWords:
	case protocol.MinionWords, protocol.GroupWords:
		if !who.Operator() {
			return nil
		}
	default:
		return nil
	}
	if r.words == nil {
		return nil
	}
	return slices.Clone(r.words(kind))
}
