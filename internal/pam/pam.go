// Package pam asks the system's authentication modules about a user, through a
// program of its own: modules are code of others that may hang, crash and leave
// threads behind, and a daemon must not. It does not load the library itself;
// that is package libpam, which the program links.
package pam

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/brinebus/brine/internal/process"
)

// Question is what the program is asked, as JSON on its standard input.
type Question struct {
	Service  string `json:"service"` // a file in /etc/pam.d
	User     string `json:"user"`
	Password string `json:"password,omitempty"`
	// AccountOnly asks whether the account is in order, without a password.
	AccountOnly bool `json:"account_only,omitempty"`
}

// Answer is what it says, as JSON on its standard output. The zero value is no.
type Answer struct {
	Allowed bool   `json:"allowed"`
	User    string `json:"user,omitempty"`   // as the modules write it
	Step    string `json:"step,omitempty"`   // what refused: authentication or account
	Reason  string `json:"reason,omitempty"` // in the library's words
	// Broken is set where the modules could not decide.
	Broken bool `json:"broken,omitempty"`
}

// The steps.
const (
	Start          = "start"
	Authentication = "authentication"
	Account        = "account"
)

// timeout bounds a question. Modules ask directory servers, and some pause after
// a wrong password.
const timeout = 20 * time.Second

// maxAnswer bounds what the program prints, with words of modules among it.
const maxAnswer = 64 << 10

// Helper is the program, by its path.
type Helper string

// ErrHelper is wrapped when the program gave no answer.
var ErrHelper = errors.New("PAM could not be asked")

// Ask asks one question in a process of its own, which is killed with all that it
// started when it takes too long or ctx ends.
func (h Helper) Ask(ctx context.Context, q Question) (Answer, error) {
	b, err := json.Marshal(q)
	if err != nil {
		return Answer{}, err
	}
	input := string(b)
	p := process.Program{Args: []string{string(h)}, Dir: "/", Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C"}, Stdin: &input, Timeout: timeout, Limit: maxAnswer}
	end, err := p.Run(ctx)
	switch {
	case err != nil:
		return Answer{}, fmt.Errorf("%w: %w", ErrHelper, err)
	case end.TimedOut:
		return Answer{}, fmt.Errorf("%w: its modules did not answer within %s", ErrHelper, timeout)
	case end.Code != 0:
		return Answer{}, fmt.Errorf("%w: %s ended with %d: %.200s", ErrHelper, h, end.Code, end.Stderr)
	}
	var a Answer
	if err := json.Unmarshal([]byte(end.Stdout), &a); err != nil {
		return Answer{}, fmt.Errorf("%w: unreadable answer of %s: %w", ErrHelper, h, err)
	}
	return a, nil
}
