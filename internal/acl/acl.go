// Package acl decides who may do what: it takes rules and a question, and returns an answer. It
// does no I/O, starts no goroutines and does not authenticate: the kernel, a key or a password
// has verified before that the principal is who the question says.
//
// One engine serves all the access settings of the master:
//
//	publisher_acl:                       # local users
//	  thatch: [.*]                       # every function, every minion
//	  fred:
//	    - test.ping                      # on every minion
//	    - web* and not web9:             # a compound target ...
//	      - pkg.*                        # ... and the functions on it
//	      - my_mod.*:                    # only with these arguments:
//	          args: [a.*, null]          # two, the second of any value
//	          kwargs: {kwa: kwa.*}       # and the keyword kwa
//	    - '@jobs'                        # all functions of the runner jobs
//	    - '@runner': [manage.*]          # some functions of all runners
//	    - '@target': [I@role]            # targets may look at this key of pillar
//	  admin|manager_.*: [saltutil.*]     # names are globs or regular expressions
//	  ops%: [service.*]                  # a group
//	publisher_acl_blacklist:
//	  users: [eve]
//	  modules: [cmd.*]                   # root is held to these as well
//	external_auth:
//	  pam: {steve: [.*], 'admins%': ['@wheel'], '*': [test.ping]}
//	peer:
//	  web\d+: [test.ping, {G@role:db: [mysql.status]}]
//	peer_run:
//	  web1: [manage.up, {jobs.lookup_jid: {args: ['\d{20}']}}, {'@wheel': [key.list]}]
//
// A pattern is a regular expression of Python that must match the whole text: test.ping does
// not allow test.ping_all. It is compiled when the rules are read. A rule that does not
// compile, or is not understood, is an error with its file and line, and then no rule of the
// file applies. A condition on arguments covers all of them: an argument that it does not list
// is refused. A rule with a target must cover every minion that the requested target can match,
// whichever minions exist, and every function of a compound command must be allowed. What no
// rule allows is denied.
package acl

import (
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
)

// Verdict is an answer. The zero value is Deny.
type Verdict int

// The verdicts.
const (
	Deny Verdict = iota
	Allow
)

// String returns the verdict as a word.
func (v Verdict) String() string {
	if v == Allow {
		return "allow"
	}
	return "deny"
}

// Decision is a verdict with its reason. Rule, Where and Reason may be shown to the principal;
// Outside is for operators only, since the principal may not know about those minions.
type Decision struct {
	Verdict Verdict
	Rule    string // the rule that decided, as a path: publisher_acl: fred: test.*; "" if none did
	Where   string // its position, or that of the nearest rule, file:line; "" without one
	Reason  string // one sentence; of a refusal without a rule, it names the nearest rule
	// Outside are minions of the question, at most maxOutside, that the nearest rule does not
	// cover; they need not exist.
	Outside []salt.MinionID
	// Nearest is the target of the nearest rule, nil for every minion.
	Nearest *target.Target
	// Within are the targets of the rules that allowed it: the commands may go only to minions
	// that all of them match. None means every minion.
	Within []*target.Target
	// Inner are the commands inside the requested ones, as far as they were checked: functions
	// of minions and, after @runner, @wheel and @master, others.
	Inner []string
	// Own means that it is allowed only for what is the principal's own, since no rule allows
	// more; Reason says why not.
	Own bool
	// Closed means that no rule can allow it.
	Closed bool
	// Operator means that the principal has all rights, not those of a rule.
	Operator bool
}

// maxOutside limits the ids in a log line.
const maxOutside = 10
