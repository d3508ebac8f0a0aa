// Package decision is what a server wants before it answers. It makes none that allows:
// that is for authz and the packages below it.
package decision

import (
	"github.com/brinebus/brine/internal/authz/internal/seal"
)

// Decision is what was decided about a request, by one check. The zero value refuses.
type Decision = seal.Decision

// ErrUndecided is the refusal of the zero value.
var ErrUndecided = seal.ErrUndecided

// Own is for what is about the sender itself, whom the broker has verified. It answers
// no request of which the table of endpoints says anything else.
func Own() Decision { return seal.Allow(own) }

// own is bus.Own.
const own = "own"
