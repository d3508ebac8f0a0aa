package bus

import (
	"strings"

	"github.com/brinebus/brine/internal/event"
)

// Rule lets a role publish to, or subscribe to, the subjects of one pattern.
// In a pattern <id> is the escaped minion id, <client> the escaped name of a
// client, <uid> the user's number, <login> the escaped LoginName, <key> the
// SHA-256 of the connection's key and <inbox> its private prefix; * is one token
// and > all that follow, as in NATS.
type Rule struct {
	Role    Role
	Verb    Verb
	Pattern string
	Why     string
}

// Verb is what a rule allows.
type Verb string

// The two things one can do with a subject.
const (
	Publish   Verb = "publish"
	Subscribe Verb = "subscribe"
)

// Rights are the rules of one daemon, see Endpoints.Rights.
type Rights []Rule

// Table is what connections may do besides requests. Together with the rules derived from the
// endpoints of a daemon it is complete: everything else is refused. There are no rules that
// deny, and a role without rules for a verb may do nothing of that kind. The JetStream API and
// the system account are only in the daemon's own rules.
var Table = Rights{
	{RoleMaster, Publish, ">", "the daemon speaks for itself on its own embedded server"},
	{RoleMaster, Subscribe, ">", "the daemon hears everything that its clients may publish"},

	{RoleMinion, Publish, "salt.minion.<id>.ack.*.*", "how much of an answer was read"},
	{RoleMinion, Publish, "salt.minion.<id>.credit", "the same as `ack`, from programs that speak protocol 1"},
	{RoleMinion, Subscribe, "salt.minion.<id>.job", "its own jobs only"},
	{RoleMinion, Subscribe, "<inbox>.>", "answers to this connection, and what the master says about its cluster"},

	{RoleCaller, Publish, "salt.minion.<id>.ack.*.*", "how much of an answer was read"},
	{RoleCaller, Publish, "salt.minion.<id>.credit", "the same as `ack`, from programs that speak protocol 1"},
	{RoleCaller, Subscribe, "<inbox>.>", "answers to this connection"},

	{RoleClient, Publish, "salt.client.<client>.ack.*.*", "how much of an answer was read"},
	{RoleClient, Subscribe, "<inbox>.>", "answers to this connection"},

	{RoleRemote, Publish, "salt.remote.<login>.ack.*.*", "how much of an answer was read"},
	{RoleRemote, Publish, "salt.remote.<login>.credit", "the same as `ack`, from programs that speak protocol 1"},
	{RoleRemote, Subscribe, "<inbox>.>", "answers to this connection"},

	{RoleGuest, Subscribe, "<inbox>.>", "the answer to the login"},

	{RoleUnaccepted, Subscribe, "<inbox>.>", "the answer, and updates of it"},

	{RoleUser, Publish, "salt.user.<uid>.ack.*.*", "how much of an answer was read"},
	{RoleUser, Publish, "salt.user.<uid>.credit", "the same as `ack`, from programs that speak protocol 1"},
	{RoleUser, Subscribe, "<inbox>.>", "answers to this connection"},
}

// Allowed returns the subjects on which the identity may use verb, filled in. An identity with
// an empty name or key, or an invalid nonce, gets nothing from a rule whose pattern needs it.
func (rules Rights) Allowed(i Identity, verb Verb) []string {
	var subjects []string
	for _, r := range rules {
		if r.Role != i.Role || r.Verb != verb || i.Role == RoleNobody {
			continue
		}
		if s, ok := i.fill(r.Pattern); ok {
			subjects = append(subjects, s)
		}
	}
	return subjects
}

func (i Identity) fill(pattern string) (string, bool) {
	for _, part := range []struct {
		mark, value string
	}{
		{"<id>", i.Name}, {"<client>", i.Name}, {"<uid>", i.Name}, {"<login>", i.Name}, {"<key>", i.Key},
	} {
		if !strings.Contains(pattern, part.mark) {
			continue
		}
		if part.value == "" {
			return "", false
		}
		pattern = strings.ReplaceAll(pattern, part.mark, event.Escape(part.value))
	}
	if !strings.Contains(pattern, "<inbox>") {
		return pattern, true
	}
	if i.owner() == "" || CheckNonce(i.Nonce) != nil {
		return "", false
	}
	return strings.ReplaceAll(pattern, "<inbox>", i.Inbox()), true
}
