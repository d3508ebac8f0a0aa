package acl

import "github.com/brinebus/brine/internal/salt"

// Explain is a question about access: would it be allowed? With neither User nor Minion it is
// about the caller.
type Explain struct {
	User    string
	Groups  []string // of the user; nil asks the system
	Backend string   // of external_auth; "" is a local user
	Minion  string   // asks for a minion instead of a user

	Kind       string // publish, runner, wheel or mine; fire or listen for a Tag
	Tag        string // of events
	Commands   []salt.Command
	Target     string
	TargetType string
}

// Explained is the answer. Rule and Where are empty if no rule decided.
type Explained struct {
	Allowed             bool
	Rule, Where, Reason string
	Minions             []salt.MinionID // that the target matches
	Outside             []salt.MinionID // some of them that the nearest rule does not cover
	Inner               []string        // functions inside the requested ones
}

// Rights are what a principal may do.
type Rights struct {
	User, Backend string // Backend of external_auth; "" is a local user
	Groups        []string
	Operator      bool    // everything that is not barred
	Rules         []Grant // of the settings for this kind of principal
	Barred        []string
	Fire, Listen  []string // tags of events, as shell patterns
}
