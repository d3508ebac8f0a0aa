// Package seal has the decision that lets a request be answered. Only authz and the packages
// below it can import it, so no other part of the program can make a decision that allows.
package seal

import "errors"

// Decision is what was decided about a request, by one check. The zero value refuses.
type Decision struct {
	check   string
	refusal error
}

// ErrUndecided is the refusal of the zero value.
var ErrUndecided = errors.New("nobody has decided to allow it")

// Allow returns a decision that allows what the check is for, and nothing else.
func Allow(check string) Decision { return Decision{check: check} }

// Refuse returns a refusal with the error for the principal.
func Refuse(err error) Decision {
	if err == nil {
		err = ErrUndecided
	}
	return Decision{refusal: err}
}

// Err returns the refusal, nil if the decision allows.
func (d Decision) Err() error {
	if d.check == "" && d.refusal == nil {
		return ErrUndecided
	}
	return d.refusal
}

// Allows reports whether the decision allows and was made by that check. A decision of another
// check does not count.
func (d Decision) Allows(check string) bool { return d.Err() == nil && d.check == check }
