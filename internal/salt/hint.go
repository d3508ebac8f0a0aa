package salt

import "errors"

// hinted is an error with a hint.
type hinted struct {
	error
	hint string
}

func (h hinted) Unwrap() error { return h.error }

// WithHint adds to err what the reader can do about it: one sentence that a command prints on its
// own line below the error. A nil err stays nil.
func WithHint(err error, hint string) error {
	if err == nil {
		return nil
	}
	return hinted{err, hint}
}

// Unwritten is wrapped by errors of what cannot be written now, such as "the journal": what needs
// it must not take effect.
type Unwritten string

// Error implements error.
func (u Unwritten) Error() string { return string(u) + " cannot be written" }

// Unanswered is wrapped by errors of questions that the store cannot answer now: the members of a cluster
// have no leader, say. It is the text that everybody may read.
type Unanswered string

// Error implements error.
func (u Unanswered) Error() string { return string(u) }

// Hint returns the outermost hint that WithHint put into err, or "".
func Hint(err error) string {
	var h hinted
	if errors.As(err, &h) {
		return h.hint
	}
	return ""
}
