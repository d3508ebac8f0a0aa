package bus

import (
	"fmt"
	"slices"
	"strings"
)

// Endpoint is one operation that a role may ask of a daemon. There is no other way to
// be answered: the rights on subjects are made from the endpoints, and a handler is
// registered for one of them or not at all.
//
// A row is written without the names of its fields, so that none of them, the check
// above all, can be left out.
type Endpoint struct {
	Op      string
	Roles   []Role
	Check   Check
	Body    int    // bytes of the largest request
	Handler string // under which a daemon registers what answers
	Why     string
}

// Endpoints are what one daemon can be asked.
type Endpoints []Endpoint

// Check is what stands between a request and its answer. The zero value refuses.
type Check string

// The checks. The first group is decided by who asks alone: the server asks for the
// decision before the handler is called, and so before a body is decoded.
const (
	Own        Check = "own"                     // it is about the sender itself, whom the broker has verified
	Operator   Check = "operator"                // root and the daemon's own user
	FileRecv   Check = "file_recv"               // the setting lets minions hand in files
	KeyRevoke  Check = "allow_minion_key_revoke" // the setting lets minions forget their keys
	Published  Check = "publisher_acl"           // publisher_acl and external_auth, on functions, arguments and targets
	Started    Check = "job"                     // who started the job, and else publisher_acl
	Proof      Check = "external_auth"           // the proof of who logs in
	Peers      Check = "peer"                    // peer, on functions, arguments and targets
	PeerRuns   Check = "peer_run"                // peer_run, on runners, wheel functions and arguments
	MineReads  Check = "mine_get"                // mine_get, on names and targets, and what the owners of entries allow
	EventGrant Check = "event_acl"               // event_acl, on tags
	TagSpace   Check = "tag"                     // no tag of the master's or of another minion's
)

// checks has all of them, with their words for the document.
var checks = []struct {
	Check
	early bool
	words string
}{
	{Own, true, "it is about the sender itself, whom the server has verified: its facts, its returns, its own place"},
	{Operator, true, "root and the daemon's own user"},
	{FileRecv, true, "the setting lets minions hand in files"},
	{KeyRevoke, true, "the setting lets minions have their own keys forgotten"},
	{Published, false, "`publisher_acl`, its blacklist and `external_auth`, on functions, arguments and targets; runners about what is one's own need no rule"},
	{Started, false, "whoever started the job; else as `publisher_acl`"},
	{Proof, false, "the password, certificate or token of who logs in"},
	{Peers, false, "the setting, on functions, arguments and targets"},
	{PeerRuns, false, "the setting, on runners, wheel functions and arguments"},
	{MineReads, false, "the setting, on names and targets; then what the owner of each entry allows"},
	{EventGrant, false, "the setting, on tags; operators need no rule, and `stat` and `purge` are for them, but for one's own position"},
	{TagSpace, false, "no tag space of the master or of another minion"},
}

// Early says whether the decision needs nothing of the body, which then is not decoded
// before it.
func (c Check) Early() bool {
	for _, k := range checks {
		if k.Check == c {
			return k.early
		}
	}
	return false
}

// Weight is for how many requests one counts in its sender's pace: what makes others work,
// jobs and runners, takes the daemon some ten times as long as the rest.
func (c Check) Weight() float64 {
	switch c {
	case Published, Peers, PeerRuns:
		return 10
	}
	return 1
}

func (c Check) known() bool {
	for _, k := range checks {
		if k.Check == c {
			return true
		}
	}
	return false
}

// Sizes of requests.
const (
	tinyBody = 1 << 10 // nothing, a word, or the few grains that may have a key accepted
	// KeyBody is for the question of a key that is not accepted, where no grains can have
	// it accepted: a version.
	KeyBody   = 512
	shortBody = 64 << 10 // names and patterns
	factsBody = 2 << 20  // grains; entries of the mine
	peerBody  = 4 << 20  // what a minion publishes: it is held against rules, signed, stored and sent to many
	callBody  = 16 << 20 // what a user publishes, a file handed over as an argument say
	LargeBody = 64 << 20 // a return or an event, which nothing shortens
)

var (
	minions = []Role{RoleMinion, RoleCaller}
	users   = []Role{RoleUser}
	clients = []Role{RoleClient}
	people  = []Role{RoleUser, RoleRemote}
	guests  = []Role{RoleGuest}
)

// MasterEndpoints are all that a master can be asked.
var MasterEndpoints = Endpoints{
	{"ask", []Role{RoleMinion, RoleCaller, RoleUnaccepted}, Own, tinyBody, "ask", "am I accepted? With a version, and a few grains where `autosign_grains_dir` is set; else it has 512 B"},

	{"file", minions, Own, shortBody, "sendFile", "a file of file_roots, which are for all minions"},
	{"files", minions, Own, shortBody, "listFiles", "the names of those files"},
	{"fire", minions, TagSpace, LargeBody, "minionFire", "events for the master's bus, answered when stored"},
	{"grains", []Role{RoleMinion}, Own, factsBody, "grains", "its facts have changed"},
	{"hello", []Role{RoleMinion}, Own, factsBody, "hello", "a minion is ready for jobs"},
	{"letters", []Role{RoleMinion}, Own, LargeBody, "letters", "what has waited in its outbox"},
	{"mine", minions, Own, factsBody, "changeMine", "what it keeps for others"},
	{"mine_get", minions, MineReads, shortBody, "readMine", "what others keep for it"},
	{"pillar", minions, Own, tinyBody, "pillar", "its own pillar"},
	{"publish", minions, Peers, peerBody, "peerPublish", "a job on other minions"},
	{"push", minions, FileRecv, factsBody, "push", "a piece of a file that it hands in"},
	{"ret", []Role{RoleMinion}, Own, LargeBody, "returned", "receipts, progress and returns of jobs that it was sent"},
	{"return", minions, Own, LargeBody, "localReturn", "what salt-call ran"},
	{"revoke", minions, KeyRevoke, tinyBody, "revoke", "forget my key"},
	{"room", []Role{RoleMinion}, Own, tinyBody, "reserve", "is there space for large returns?"},
	{"run", minions, PeerRuns, peerBody, "peerRun", "a runner, or a wheel function, on the master"},

	{"confirm", clients, EventGrant, shortBody, "clientConfirm", "a durable listener has done its work up to here"},
	{"dead", clients, EventGrant, LargeBody, "clientDead", "events that a handler could not be brought to take"},
	{"fire", clients, EventGrant, LargeBody, "clientFire", "events for the master's bus, answered when stored"},
	{"follow", clients, Started, tinyBody, "follow", "the course of a job"},
	{"listen", clients, EventGrant, shortBody, "clientListen", "the events of the master's bus"},
	{"login", clients, Proof, shortBody, "login", "be a user of external_auth"},
	{"place", clients, EventGrant, tinyBody, "clientEnd", "where does the journal end?"},
	{"publish", clients, Published, peerBody, "publish", "a job on minions"},
	{"run", clients, Published, peerBody, "run", "a runner, or a wheel function"},

	{"login", guests, Proof, shortBody, "login", "be let in as a user of external_auth, with the next connection"},

	{"complete", users, Own, tinyBody, "complete", "words that the sender's command line may go on with, of those that they may know"},
	{"confirm", people, EventGrant, shortBody, "userConfirm", "a durable listener has done its work up to here"},
	{"dead", people, EventGrant, LargeBody, "userDead", "events that a handler could not be brought to take"},
	{"fire", people, EventGrant, LargeBody, "userFire", "events for the master's bus, answered when stored"},
	{"follow", people, Started, tinyBody, "follow", "the course of a job"},
	{"keyaction", users, Operator, callBody, "keyAction", "who is about to change keys, for the audit log"},
	{"listen", people, EventGrant, shortBody, "userListen", "the events of the master's bus"},
	{"login", users, Proof, shortBody, "login", "be a user of external_auth"},
	{"place", people, EventGrant, tinyBody, "userEnd", "where does the journal end?"},
	{"profile", users, Operator, tinyBody, "profile", "what the daemon spends its time and memory on"},
	{"publish", people, Published, callBody, "publish", "a job on minions"},
	{"purge", people, EventGrant, shortBody, "userPurge", "remove events; a position of one's own"},
	{"run", people, Published, callBody, "run", "a runner, or a wheel function"},
	{"stat", people, EventGrant, tinyBody, "userStat", "the state of the bus"},
}

// MinionEndpoints are all that the daemon of a minion can be asked, by local users.
var MinionEndpoints = Endpoints{
	{"complete", users, Own, tinyBody, "complete", "words that the sender's command line may go on with, of those that they may know"},
	{"confirm", users, EventGrant, shortBody, "userConfirm", "a durable listener has done its work up to here"},
	{"dead", users, EventGrant, LargeBody, "userDead", "events that a handler could not be brought to take"},
	{"file", users, Operator, shortBody, "passFiles", "a file of the master"},
	{"files", users, Operator, shortBody, "passFiles", "the names of those files"},
	{"fire", users, EventGrant, LargeBody, "localFire", "events for the minion's bus, answered when stored"},
	{"listen", users, EventGrant, shortBody, "userListen", "the events of the minion's bus"},
	{"master", users, Operator, LargeBody, "passOn", "events for the master's bus"},
	{"mine", users, Operator, factsBody, "passToMaster", "what the minion keeps for others"},
	{"mine_get", users, Operator, shortBody, "passToMaster", "what others keep for the minion"},
	{"pillar", users, Operator, tinyBody, "showPillar", "the minion's pillar"},
	{"place", users, EventGrant, tinyBody, "userEnd", "where does the journal end?"},
	{"profile", users, Operator, tinyBody, "profile", "what the daemon spends its time and memory on"},
	{"publish", users, Operator, peerBody, "passToMaster", "a job on other minions, in the minion's name"},
	{"purge", users, EventGrant, shortBody, "userPurge", "remove events; a position of one's own"},
	{"push", users, Operator, factsBody, "passFiles", "a piece of a file for the master"},
	{"refresh", users, Operator, tinyBody, "refresh", "find out anew what the next job is to see"},
	{"return", users, Operator, LargeBody, "passReturn", "what salt-call ran"},
	{"revoke", users, Operator, tinyBody, "passFiles", "have the minion's key forgotten"},
	{"run", users, Operator, peerBody, "passToMaster", "a runner, or a wheel function, on the master, in the minion's name"},
	{"schedule", users, Operator, peerBody, "scheduleRequest", "the minion's schedule"},
	{"stat", users, EventGrant, tinyBody, "userStat", "the state of the bus"},
	{"status", users, Operator, tinyBody, "status", "the state of the minion's daemon"},
}

// Find returns the endpoint of an operation for a role; nil, which is a refusal, where
// the table has none.
func (e Endpoints) Find(role Role, op string) *Endpoint {
	for i := range e {
		if e[i].Op == op && slices.Contains(e[i].Roles, role) {
			return &e[i]
		}
	}
	return nil
}

// Rights are those on subjects: one for each operation of each role, and those that
// are about no operation.
func (e Endpoints) Rights() Rights {
	var list Rights
	for i := range e {
		for _, role := range e[i].Roles {
			list = append(list, Rule{role, Publish, pattern(role, e[i].Op), e[i].Why})
		}
	}
	list = append(list, Table...)
	slices.SortStableFunc(list, func(a, b Rule) int { return order(a) - order(b) })
	return list
}

// roleOrder is that of tables: from the most to the least trusted, users apart.
var roleOrder = []Role{RoleMaster, RoleMinion, RoleCaller, RoleClient, RoleRemote, RoleGuest, RoleUnaccepted, RoleUser}

func order(r Rule) int {
	n := 2 * slices.Index(roleOrder, r.Role)
	if r.Verb == Subscribe {
		n++
	}
	return n
}

// pattern is the subject of an operation, for whoever has the role.
func pattern(role Role, op string) string {
	if op == OpAsk {
		return "salt.key.<key>.req.ask"
	}
	mark := map[string]string{"minion": "<id>", "client": "<client>", "key": "<key>", "guest": "<key>", "remote": "<login>", "user": "<uid>"}[role.Kind()]
	root := "salt." + role.Kind() + "." + mark + "."
	switch {
	case role.Kind() == "minion" && op == opFire:
		return root + opFire
	case role.Kind() == "minion" && op == opRet:
		return root + opReturn + "*"
	}
	return root + "req." + op
}

// Fault says what is wrong with a table, nil for nothing: a row that could be asked
// without a check, or that another hides.
func (e Endpoints) Fault() error {
	seen := map[string]bool{}
	for _, row := range e {
		if !row.Check.known() || row.Body <= 0 || row.Handler == "" || len(row.Roles) == 0 || row.Op == "" || strings.ContainsAny(row.Op, ".*> ") {
			return fmt.Errorf("the endpoint %q has no known check, limit, handler or role", row.Op)
		}
		for _, role := range row.Roles {
			name := string(role) + " " + row.Op
			if role == RoleNobody || role == RoleMaster || seen[name] {
				return fmt.Errorf("the endpoint %q of %q is there twice, or nobody's", row.Op, role)
			}
			seen[name] = true
		}
	}
	return nil
}
