package pam_test

import (
	"errors"
	"testing"

	"github.com/brinebus/brine/internal/pam"
)

// Whatever is not a clear yes is none.
func TestHelpersThatDoNotAnswer(t *testing.T) {
	for helper, want := range map[pam.Helper]error{
		"/nonexistent": pam.ErrHelper,
		"/bin/false":   pam.ErrHelper,
		"/bin/true":    pam.ErrHelper, // no answer
		"/bin/cat":     nil,           // JSON, but of something else
	} {
		a, err := helper.Ask(t.Context(), pam.Question{Service: "login", User: "fred", Password: "x"})
		if !errors.Is(err, want) || a.Allowed {
			t.Errorf("%s answers %+v, %v; want no, %v", helper, a, err, want)
		}
	}
}
