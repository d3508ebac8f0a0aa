// Package acl decides who may do what: pure functions from rules and a question
// to a verdict and the rule that gave it. It does no I/O and knows nobody: who
// asks is verified before.
package acl

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

// Decision is a verdict with its reason, for the caller, the log and the audit.
type Decision struct {
	Verdict Verdict
	Rule    string // the rule that decided; "" when none matched
	Reason  string
}

// Subject is who asks, as the kernel or a backend verified.
type Subject struct {
	User     string
	Operator bool // root, or the user that the daemon runs as
}

// Decide answers whether s may run functions. It falls through to Deny.
func Decide(s Subject) Decision {
	if s.Operator {
		return Decision{Allow, "operator", "root and the daemon's own user may do everything"}
	}
	return Decision{Deny, "", "user " + s.User + " has no rule in publisher_acl"}
}
