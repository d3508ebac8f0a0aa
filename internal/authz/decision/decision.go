// Package decision has the decision that a server needs before it answers a request. It makes
// none that allows what a rule is about: authz and the packages below it do.
package decision

import (
	"github.com/brinebus/brine/internal/authz/internal/seal"
)

// Decision is what was decided about a request, by one check. The zero value refuses.
type Decision = seal.Decision

// ErrUndecided is the refusal of the zero value.
var ErrUndecided = seal.ErrUndecided

// Own allows a request about the sender itself, whom the broker has verified. It does not
// answer a request for which the table of endpoints names another check.
func Own() Decision { return seal.Allow(own) }

// own is bus.Own.
const own = "own"
