package eventbus

import (
	"context"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// mostWords is how many words one answer has: nobody reads more of them.
const mostWords = 200

// SetWords sets what knows the words of its daemon beside tags and jobs; it is set before
// anybody is served.
func (r *Bus) SetWords(words func(kind protocol.WordKind) []string) { r.words = words }

// Complete answers with the words that begin as a user has typed: of events only those which
// they may hear, of minions and nodegroups none but for operators. Functions are for all,
// as their documentation is.
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
