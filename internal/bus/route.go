package bus

import "github.com/brinebus/brine/internal/event"

// RouteSubjects are what goes over the routes between the members of a cluster; everything else
// stays at the server that it was published to. It is a list of what is allowed, so that a new
// kind of subject is kept at home until somebody decides otherwise.
//
// Requests, jobs, returns and inboxes of minions and users are not in it. Each member answers
// its own connections, so no request is answered twice, what floods one member does not reach
// the others, and no member learns the inboxes of connections that are not its own: with the
// inbox of a user it could ask in the name of that user.
var RouteSubjects = []string{
	MemberRoot + ".>",
	"salt.journal.>", "salt.event.>", "salt.kept.>", "salt.over.>", "salt.queue.>", // the streams of the store
	"$KV.>", "$O.>", "$JS.>", "$JSC.>", // tables, objects, and what JetStream says to its clients
	"_INBOX." + string(RoleMaster) + ".>", // answers to the daemons
	"$SYS.>", "$NRG.>", "_R_.>",           // what the servers say to each other; their account is not that of clients
}

// MemberRoot is the first part of the subjects on which members talk to each other. No role of a
// client may publish or subscribe to any of them.
const MemberRoot = "salt.member"

// MemberSubject is for messages of one kind to the member with this name.
func MemberSubject(to, kind string) string { return MemberRoot + "." + event.Escape(to) + "." + kind }

// MembersSubject is for messages of one kind to all members. No member can have a name that is
// escaped to the token in it.
func MembersSubject(kind string) string { return MemberRoot + ".+." + kind }
