// Package seal has the decision that lets a request be answered. Packages below authz
// alone can import it, so that nothing else in the program can make one that allows.
package seal

import "errors"

// Decision is what was decided about a request, by one check. The zero value refuses.
type Decision struct {
	check   string
	refusal error
}

// ErrUndecided is the refusal of the zero value.
var ErrUndecided = errors.New("nobody has decided to allow it")

// Allow is to allow what the check is for, and nothing else.
func Allow(check string) Decision { return Decision{check: check} }

// Refuse is a refusal, with what the principal is told.
func Refuse(err error) Decision {
	if err == nil {
		err = ErrUndecided
	}
	return Decision{refusal: err}
}

// Err is the refusal, nil where the decision allows.
func (d Decision) Err() error {
	if d.check == "" && d.refusal == nil {
		return ErrUndecided
	}
	return d.refusal
}

// Allows says whether the decision was made by that check, and allows. One about
// something else does not.
func (d Decision) Allows(check string) bool { return d.Err() == nil && d.check == check }
