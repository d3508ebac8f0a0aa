package bus

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Endpoint is one operation that a role may request from a daemon. There is no other way to get
// an answer: the rights on subjects are derived from the endpoints, and a handler can be
// registered only for one of them.
//
// A row is written without the names of its fields, so that none of them, above all the check,
// can be left out.
type Endpoint struct {
	Op      string
	Roles   []Role
	Check   Check
	Body    int    // bytes of the largest request
	Handler string // name under which a daemon registers the handler
	Why     string
}

// Endpoints are the requests that one daemon answers.
type Endpoints []Endpoint

// Check is what decides whether a request is answered. The zero value refuses.
type Check string

// The checks. For the first group only the sender matters: the server makes the decision before
// the handler is called, and so before a body is decoded.
const (
	Own        Check = "own"                     // it is about the sender itself, which the broker has verified
	Operator   Check = "operator"                // root and the daemon's own user
	FileRecv   Check = "file_recv"               // the setting lets minions upload files
	KeyRevoke  Check = "allow_minion_key_revoke" // the setting lets minions delete their keys
	Published  Check = "publisher_acl"           // publisher_acl and external_auth, on functions, arguments and targets
	Started    Check = "job"                     // whoever started the job, otherwise publisher_acl
	Proof      Check = "external_auth"           // the proof of a login
	Peers      Check = "peer"                    // peer, on functions, arguments and targets
	PeerRuns   Check = "peer_run"                // peer_run, on runners, wheel functions and arguments
	MineReads  Check = "mine_get"                // mine_get, on names and targets, and what the owners of entries allow
	EventGrant Check = "event_acl"               // event_acl, on tags
	TagSpace   Check = "tag"                     // no tag of the master's or of another minion's
)

// checks are all checks, with their texts for the document.
var checks = []struct {
	Check
	early bool
	words string
}{
	{Own, true, "it is about the sender itself, whom the server has verified: its grains, its returns, its mine entries"},
	{Operator, true, "root and the daemon's own user"},
	{FileRecv, true, "the setting lets minions upload files"},
	{KeyRevoke, true, "the setting lets minions delete their own keys"},
	{Published, false, "`publisher_acl`, its blacklist and `external_auth`, on functions, arguments and targets; users need no rule for runners about their own jobs and tokens"},
	{Started, false, "whoever started the job; otherwise as `publisher_acl`"},
	{Proof, false, "the password, certificate or token of the login"},
	{Peers, false, "the setting, on functions, arguments and targets"},
	{PeerRuns, false, "the setting, on runners, wheel functions and arguments"},
	{MineReads, false, "the setting, on names and targets; then what the owner of each entry allows"},
	{EventGrant, false, "the setting, on tags; operators need no rule, and only they may use `stat` and `purge`, except for a user's own position"},
	{TagSpace, false, "no tag space of the master or of another minion"},
}

// Early reports whether the decision needs nothing of the body, which is then decoded only
// afterwards.
func (c Check) Early() bool {
	for _, k := range checks {
		if k.Check == c {
			return k.early
		}
	}
	return false
}

// Weight is for how many requests one counts in its sender's rate: jobs and runners, which make
// others work, take the daemon some ten times as long as other requests.
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
	tinyBody = 1 << 10 // nothing, a word, or the few grains for autosign_grains
	// KeyBody is for the question about a key that is not accepted, if grains cannot have it
	// accepted: a version.
	KeyBody   = 512
	shortBody = 64 << 10 // names and patterns
	factsBody = 2 << 20  // grains; entries of the mine
	peerBody  = 4 << 20  // what a minion publishes: it is checked, signed, stored and sent to many
	callBody  = 16 << 20 // what a user publishes, for example with a file as an argument
	LargeBody = 64 << 20 // a return or an event, which cannot be shortened
)

var (
	minions = []Role{RoleMinion, RoleCaller}
	users   = []Role{RoleUser}
	clients = []Role{RoleClient}
	people  = []Role{RoleUser, RoleRemote}
	guests  = []Role{RoleGuest}
)

// MasterEndpoints are all requests that a master answers.
var MasterEndpoints = Endpoints{
	{"ask", []Role{RoleMinion, RoleCaller, RoleUnaccepted}, Own, tinyBody, "ask", "is this key accepted? Contains the version, and a few grains where `autosign_grains_dir` is set; without grains at most 512 B"},

	{"early", []Role{RoleMinion}, Own, factsBody, "early", "a return in its outbox that somebody waits for, while what comes before it cannot be stored yet; for members of a cluster"},
	{"file", minions, Own, shortBody, "sendFile", "a file of file_roots, which are for all minions"},
	{"files", minions, Own, shortBody, "listFiles", "the names of those files"},
	{"fire", minions, TagSpace, LargeBody, "minionFire", "events for the master's bus, answered when stored"},
	{"grains", []Role{RoleMinion}, Own, factsBody, "grains", "its grains have changed"},
	{"hello", []Role{RoleMinion}, Own, factsBody, "hello", "a minion is ready for jobs"},
	{"letters", []Role{RoleMinion}, Own, LargeBody, "deliver", "the same as `messages`, by minions that speak protocol 1"},
	{"messages", []Role{RoleMinion}, Own, LargeBody, "deliver", "messages waiting in its outbox"},
	{"mine", minions, Own, factsBody, "changeMine", "its entries of the mine"},
	{"mine_get", minions, MineReads, shortBody, "readMine", "mine entries of others"},
	{"pillar", minions, Own, tinyBody, "pillar", "its own pillar"},
	{"publish", minions, Peers, peerBody, "peerPublish", "a job on other minions"},
	{"push", minions, FileRecv, factsBody, "push", "a piece of a file that it uploads"},
	{"ret", []Role{RoleMinion}, Own, LargeBody, "returned", "receipts, progress and returns of jobs that it was sent"},
	{"return", minions, Own, LargeBody, "localReturn", "the return of what salt-call ran"},
	{"revoke", minions, KeyRevoke, tinyBody, "revoke", "forget my key"},
	{"room", []Role{RoleMinion}, Own, tinyBody, "reserve", "is there space for large returns?"},
	{"run", minions, PeerRuns, peerBody, "peerRun", "a runner, or a wheel function, on the master"},

	{"confirm", clients, EventGrant, shortBody, "clientConfirm", "how far a durable listener has come"},
	{"dead", clients, EventGrant, LargeBody, "clientDead", "dead letters: events that a handler could not handle"},
	{"fire", clients, EventGrant, LargeBody, "clientFire", "events for the master's bus, answered when stored"},
	{"follow", clients, Started, tinyBody, "follow", "the progress of a job"},
	{"listen", clients, EventGrant, shortBody, "clientListen", "the events of the master's bus"},
	{"login", clients, Proof, shortBody, "login", "log in as a user of external_auth"},
	{"place", clients, EventGrant, tinyBody, "clientEnd", "where does the journal end?"},
	{"publish", clients, Published, peerBody, "publish", "a job on minions"},
	{"run", clients, Published, peerBody, "run", "a runner, or a wheel function"},

	{"login", guests, Proof, shortBody, "login", "log in as a user of external_auth, for the next connection"},

	{"complete", users, Own, tinyBody, "complete", "completions of a command line, as far as the sender may see them"},
	{"confirm", people, EventGrant, shortBody, "userConfirm", "how far a durable listener has come"},
	{"dead", people, EventGrant, LargeBody, "userDead", "dead letters: events that a handler could not handle"},
	{"fire", people, EventGrant, LargeBody, "userFire", "events for the master's bus, answered when stored"},
	{"follow", people, Started, tinyBody, "follow", "the progress of a job"},
	{"keyaction", users, Operator, callBody, "keyAction", "who is about to change keys, for the audit log"},
	{"listen", people, EventGrant, shortBody, "userListen", "the events of the master's bus"},
	{"login", users, Proof, shortBody, "login", "log in as a user of external_auth"},
	{"place", people, EventGrant, tinyBody, "userEnd", "where does the journal end?"},
	{"profile", users, Operator, tinyBody, "profile", "profiles of processor time and memory"},
	{"publish", people, Published, callBody, "publish", "a job on minions"},
	{"purge", people, EventGrant, shortBody, "userPurge", "remove events; forget the user's own position"},
	{"run", people, Published, callBody, "run", "a runner, or a wheel function"},
	{"stat", people, EventGrant, tinyBody, "userStat", "the state of the bus"},
}

// MinionEndpoints are all requests that a minion's daemon answers, for local users.
var MinionEndpoints = Endpoints{
	{"complete", users, Own, tinyBody, "complete", "completions of a command line, as far as the sender may see them"},
	{"confirm", users, EventGrant, shortBody, "userConfirm", "how far a durable listener has come"},
	{"dead", users, EventGrant, LargeBody, "userDead", "dead letters: events that a handler could not handle"},
	{"file", users, Operator, shortBody, "passFiles", "a file of the master"},
	{"files", users, Operator, shortBody, "passFiles", "the names of those files"},
	{"fire", users, EventGrant, LargeBody, "localFire", "events for the minion's bus, answered when stored"},
	{"listen", users, EventGrant, shortBody, "userListen", "the events of the minion's bus"},
	{"master", users, Operator, LargeBody, "passOn", "events for the master's bus"},
	{"mine", users, Operator, factsBody, "passToMaster", "the minion's entries of the mine"},
	{"mine_get", users, Operator, shortBody, "passToMaster", "mine entries of other minions"},
	{"pillar", users, Operator, tinyBody, "showPillar", "the minion's pillar"},
	{"place", users, EventGrant, tinyBody, "userEnd", "where does the journal end?"},
	{"profile", users, Operator, tinyBody, "profile", "profiles of processor time and memory"},
	{"publish", users, Operator, peerBody, "passToMaster", "a job on other minions, in the minion's name"},
	{"purge", users, EventGrant, shortBody, "userPurge", "remove events; forget the user's own position"},
	{"push", users, Operator, factsBody, "passFiles", "a piece of a file for the master"},
	{"refresh", users, Operator, tinyBody, "refresh", "refresh grains and pillar"},
	{"return", users, Operator, LargeBody, "passReturn", "the return of what salt-call ran"},
	{"revoke", users, Operator, tinyBody, "passFiles", "delete the minion's key"},
	{"run", users, Operator, peerBody, "passToMaster", "a runner, or a wheel function, on the master, in the minion's name"},
	{"schedule", users, Operator, peerBody, "scheduleRequest", "the minion's schedule"},
	{"stat", users, EventGrant, tinyBody, "userStat", "the state of the bus"},
	{"status", users, Operator, tinyBody, "status", "the state of the minion's daemon"},
}

// Find returns the endpoint of an operation for a role; nil, which means a refusal, if the
// table has none.
func (e Endpoints) Find(role Role, op string) *Endpoint {
	for i := range e {
		if e[i].Op == op && slices.Contains(e[i].Roles, role) {
			return &e[i]
		}
	}
	return nil
}

// Of returns what these roles may request; other roles are left out of the rows.
func (e Endpoints) Of(roles ...Role) Endpoints {
	var list Endpoints
	for _, row := range e {
		row.Roles = slices.DeleteFunc(slices.Clone(row.Roles), func(r Role) bool { return !slices.Contains(roles, r) })
		if len(row.Roles) > 0 {
			list = append(list, row)
		}
	}
	return list
}

// Subjects returns the subjects that a daemon with these endpoints subscribes to: for requests,
// and for the confirmations of both forms of answers.
func (e Endpoints) Subjects() (requests, windows, acks []string) {
	kinds := map[string]bool{}
	for _, row := range e {
		for _, r := range row.Roles {
			kinds[r.Kind()] = true
		}
		if row.Op == OpAsk {
			kinds[RoleUnaccepted.Kind()] = true // whatever the role, the subject is that of the key
		}
	}
	of := func(all []string) (list []string) {
		for _, s := range all {
			switch kind := strings.Split(s, ".")[1]; {
			case kinds[kind]:
				list = append(list, s)
			case kind == "*":
				for _, k := range slices.Sorted(maps.Keys(kinds)) {
					list = append(list, strings.Replace(s, "*", k, 1))
				}
			}
		}
		return list
	}
	return of(RequestSubjects), of(WindowSubjects), of(AckSubjects)
}

// Rights returns the rights on subjects: one for each operation of each role, and those without
// an operation.
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

// roleOrder is the order in tables: from the most to the least trusted; users are separate.
var roleOrder = []Role{RoleMaster, RoleMinion, RoleCaller, RoleClient, RoleRemote, RoleGuest, RoleUnaccepted, RoleUser}

func order(r Rule) int {
	n := 2 * slices.Index(roleOrder, r.Role)
	if r.Verb == Subscribe {
		n++
	}
	return n
}

// pattern returns the subject of an operation for a role.
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

// Fault returns what is wrong with a table, nil if nothing: a row without a check, or one that
// another row hides.
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
