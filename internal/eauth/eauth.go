// Package eauth verifies users of authentication systems outside of this master:
// external_auth. Name and secret go in, an account comes out: the name as the
// system writes it, its groups, and a version that changes when the account does. A
// Authenticator guards the backends, so that a flood of guesses is slow and slows nobody
// else, and keeps the tokens that stand for a login.
//
// What an account may do is not decided here but in package acl.
package eauth

import (
	"context"
	"errors"
	"time"
)

// Errors of a login, of which only ErrBusy says more than no: whether the user,
// the password or the backend was wrong is for the log.
var (
	// ErrRefused is wrapped by every refusal that is about the login itself.
	ErrRefused = errors.New("the login is refused")
	// ErrBusy is wrapped where too many logins of one source have failed, or
	// too many are under way.
	ErrBusy = errors.New("too many logins")
	// ErrUnavailable is wrapped where a backend could not be asked.
	ErrUnavailable = errors.New("the authentication system cannot be asked")
	// errUnknowable is returned by Look of a backend that cannot look at an
	// account without its secret.
	errUnknowable = errors.New("accounts cannot be looked at without their secret")
)

// Account is a user as a backend knows them.
type Account struct {
	Name   string   // as the backend writes it, which may not be what was typed
	Groups []string // without a percent sign
	// Version changes when the account is locked or gets another secret. It may be
	// made of secrets and is kept as a digest only.
	Version string
	// Until is when the proof of the login ends by itself; zero is never.
	Until time.Time
}

// Proof is what a login shows beside the name.
type Proof struct {
	Secret string // the password
	// Certificate and Signature are for the backend pki: a certificate in PEM,
	// and the signature that its key made of Statement.
	Certificate []byte
	Signature   []byte
	Statement   []byte // what was to be signed, as this side knows it; nil is none

	// Remote is set for proofs that anybody may send from another machine. Of those a backend
	// looks at half as many at a time as it can: the rest is for who is on this one.
	Remote bool
}

// Backend knows the users of one system of authentication. It may be used by
// many goroutines at once. The errors of both methods wrap ErrRefused where the
// answer is no; all others mean that there is none.
type Backend interface {
	// Verify returns the account if the proof is that of the user.
	Verify(ctx context.Context, user string, p Proof) (Account, error)
	// Look returns the account as it is now. An account that is locked, expired
	// or gone is refused.
	Look(ctx context.Context, user string) (Account, error)
}
