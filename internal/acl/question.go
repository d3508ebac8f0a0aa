package acl

import (
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
)

// Kind is by what somebody is known. The zero value is nobody, who may nothing.
type Kind int

// The kinds of principals, each with the setting that holds its rules.
const (
	Nobody   Kind = iota
	Local         // a user of this machine, by the kernel's word: publisher_acl
	External      // a user of an authentication backend: external_auth
	Peer          // a minion, by its key: peer, peer_run and mine_get
)

// Subject is who asks, as verified.
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
	// Unix are the names of the local user who has logged in as an External one: who is
	// on the blacklist by one of them is barred by any name.
	Unix []string
	// Sudo is the user behind an operator who came by sudo, "" if none did.
	Sudo string
}

// Scope is what a command is to be run by. The zero value is by minions.
type Scope int

// The scopes.
const (
	Minions Scope = iota // functions on minions
	Runner               // runners on the master
	Wheel                // wheel functions: keys and configuration of the master
	Mine                 // entries of the mine, whose names need not be those of functions
)

// Fleet is what a decision needs to know of minions. Its answers must not change
// while a decision is made.
type Fleet interface {
	// IDs are all minions with an accepted key.
	IDs() []salt.MinionID
	// Facts are what a minion is known by; its Grains or Pillar are nil when
	// nothing is known.
	Facts(id salt.MinionID) target.Facts
}

// Question is what somebody wants to do.
type Question struct {
	Subject  Subject
	Scope    Scope
	Commands []salt.Command
	// Target is what minions are asked for, for Scope Minions and Mine. It is judged
	// by what it says: the caller runs the commands on those of its minions that are
	// within Decision.Within. nil when it could not be understood.
	Target *target.Target
	// Minions are those that are asked for where there is no Target. For none, a
	// rule allows what it would allow on any minion it covers.
	Minions []salt.MinionID
	Fleet   Fleet // nil knows no minions
	// Beside are what is to happen with the commands beside them. It is decided about
	// as if the first of them did it.
	Beside []Inner
	// Functions knows what commands amount to; nil knows none, and then only a rule
	// that names the function and says {runs: any} grants it.
	Functions Functions
	// Own says that the caller can hold who asks to what is their own, and does where
	// Decision.Own says so.
	Own bool
	// Parse reads a target inside a command.
	Parse func(expr, kind string) (*target.Target, error)
}
