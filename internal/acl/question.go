package acl

import (
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
)

// Kind is how a principal is identified. The zero value is nobody, who may do nothing.
type Kind int

// The kinds of principals, each with the setting that holds its rules.
const (
	Nobody   Kind = iota
	Local         // a user of this machine, according to the kernel: publisher_acl
	External      // a user of an authentication backend: external_auth
	Peer          // a minion, by its key: peer, peer_run and mine_get
)

// Subject is the verified principal of a question.
type Subject struct {
	Kind Kind
	Name string // of the user, or the id of the minion; nobody has an empty one
	// Groups of the user, of an operator those of Sudo; without the percent sign.
	Groups []string
	// Backend is what authenticated an External user: pam, ldap, file ...
	Backend string
	// Operator is root or the user that the daemon runs as: everything but the
	// blacklist is open to it.
	Operator bool
	// Unix are the names of the local user who has logged in as an External one: a user on the
	// blacklist with one of them is barred under any name.
	Unix []string
	// Sudo is the user behind an operator through sudo, "" if there is none.
	Sudo string
}

// Scope is what runs a command. The zero value is minions.
type Scope int

// The scopes.
const (
	Minions Scope = iota // functions on minions
	Runner               // runners on the master
	Wheel                // wheel functions: keys and configuration of the master
	Mine                 // entries of the mine, whose names need not be those of functions
)

// Fleet is what a decision needs to know about minions. Its answers must not change during a
// decision.
type Fleet interface {
	// IDs returns all minions with an accepted key.
	IDs() []salt.MinionID
	// Facts returns what a minion is matched by; Grains or Pillar are nil if unknown.
	Facts(id salt.MinionID) target.Facts
}

// Question is what a subject wants to do.
type Question struct {
	Subject  Subject
	Scope    Scope
	Commands []salt.Command
	// Target is the requested target, for Scope Minions and Mine. It is decided about by its
	// text: the caller runs the commands on those of its minions that Decision.Within covers.
	// nil if it could not be parsed.
	Target *target.Target
	// Minions are the requested minions if there is no Target. If there are none, a rule allows
	// what it would allow on any minion that it covers.
	Minions []salt.MinionID
	Fleet   Fleet // nil knows no minions
	// Beside are further commands that result from the request. They are decided about as if
	// they were inside its first command.
	Beside []Inner
	// Functions says what commands do. Without it (nil), only a rule that names the function
	// with {runs: any} grants it.
	Functions Functions
	// Own means that the caller can restrict the principal to what is their own, and does so if
	// Decision.Own is set.
	Own bool
	// Parse reads a target inside a command.
	Parse func(expr, kind string) (*target.Target, error)
}
