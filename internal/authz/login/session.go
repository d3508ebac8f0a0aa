package login

import (
	"crypto/rand"
	"sync"

	"github.com/brinebus/brine/internal/eauth"
	"github.com/brinebus/brine/internal/rpc"
)

// sessions are the connections on which users of external_auth have logged in, by inbox prefix.
// A login replaces the rights of the local user.
type sessions struct {
	mu         sync.Mutex
	grants     map[string]*eauth.Grant
	addresses  map[string]string // addresses of users whom a program has logged in, see protocol.Login
	next       map[string]string // for guests who have logged in: the inbox of the connection that the login is for
	challenges map[string][]byte
}

// challengeBytes is the size of the challenge that a certificate's key has to sign.
const challengeBytes = 32

func (l *sessions) of(inbox string) *eauth.Grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.grants[inbox]
}

// address returns the address of the user whom a program has logged in on a connection, "" for
// none.
func (l *sessions) address(inbox string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.addresses[inbox]
}

func (l *sessions) set(inbox string, g *eauth.Grant, address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.grants == nil {
		l.grants, l.addresses = map[string]*eauth.Grant{}, map[string]string{}
	}
	l.grants[inbox] = g
	delete(l.addresses, inbox)
	if address != "" {
		l.addresses[inbox] = address
	}
}

// promise assigns the login of a guest to the next connection with the inbox next. A guest logs
// in once.
func (l *sessions) promise(guest, next string, g *eauth.Grant) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next[guest] != "" || l.grants[next] != nil {
		return rpc.Errorf(rpc.Usage, "there is a login for this connection already")
	}
	if l.next == nil {
		l.next = map[string]string{}
	}
	if l.grants == nil {
		l.grants, l.addresses = map[string]*eauth.Grant{}, map[string]string{}
	}
	l.next[guest], l.grants[next] = next, g
	return nil
}

// drop forgets a connection that has ended, and also the connection promised by it if that has
// not come.
func (l *sessions) drop(inbox string, came func(inbox string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if next := l.next[inbox]; next != "" && !came(next) {
		delete(l.grants, next)
	}
	delete(l.next, inbox)
	delete(l.grants, inbox)
	delete(l.addresses, inbox)
	delete(l.challenges, inbox)
}

// challenge returns the connection's only challenge, again if it was asked for before.
func (l *sessions) challenge(inbox string) []byte {
	c := make([]byte, challengeBytes)
	rand.Read(c) //nolint:errcheck // it never fails
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.challenges == nil {
		l.challenges = map[string][]byte{}
	}
	l.challenges[inbox] = c
	return c
}

// takeChallenge returns the challenge of a connection, once.
func (l *sessions) takeChallenge(inbox string) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.challenges[inbox]
	delete(l.challenges, inbox)
	return c
}
