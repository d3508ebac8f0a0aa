// Package eauth verifies users of authentication systems outside of this master: external_auth. It
// takes a name and a secret and returns an account: the name as the system writes it, its groups,
// and a version that changes with the account. An Authenticator protects the backends: a flood of
// guesses is slow and slows nobody else. It also stores the tokens that stand for a login.
//
// What an account may do is decided in package acl.
package eauth

import (
	"context"
	"errors"
	"time"
)

// Errors of a login. Only ErrBusy says more than no: whether the user, the password or the backend
// was wrong is only logged.
var (
	// ErrRefused is wrapped by every refusal because of the login itself.
	ErrRefused = errors.New("the login is refused")
	// ErrBusy is wrapped if too many logins of one source have failed, or too many are pending.
	ErrBusy = errors.New("too many logins")
	// ErrUnavailable is wrapped if a backend could not be reached.
	ErrUnavailable = errors.New("the authentication system cannot be asked")
	// errUnknowable is returned by Look of a backend that cannot look up an account without its
	// secret.
	errUnknowable = errors.New("accounts cannot be checked without their secret")
)

// Account is a user of a backend.
type Account struct {
	Name   string   // as the backend writes it, which may differ from the typed name
	Groups []string // without a percent sign
	// Version changes when the account is locked or gets another secret. It may contain secrets, so
	// only its digest is stored.
	Version string
	// Until is when the proof of the login expires; zero is never.
	Until time.Time
}

// Proof is what a login presents besides the name.
type Proof struct {
	Secret string // the password
	// Certificate and Signature are for the backend pki: a certificate in PEM, and the signature of
	// Statement by its key.
	Certificate []byte
	Signature   []byte
	Statement   []byte // the text to sign, as known to this side; nil is none

	// Remote is set for proofs that anyone on another machine can send. At most half of the slots
	// of a backend are for those: the rest is for users on this machine.
	Remote bool
}

// Backend verifies the users of one authentication system. Its methods may be called concurrently.
// Their errors wrap ErrRefused if the answer is no; any other error means that there is no answer.
type Backend interface {
	// Verify returns the account if the proof belongs to the user.
	Verify(ctx context.Context, user string, p Proof) (Account, error)
	// Look returns the current account. An account that is locked, expired or removed is refused.
	Look(ctx context.Context, user string) (Account, error)
}
