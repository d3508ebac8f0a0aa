package client

import (
	"context"
	"crypto"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
)

// Login is who somebody is for external_auth, and the proof: a password or a token. Backend
// and User may be empty with a token.
type Login struct {
	Backend  string // file, ldap, pam, sharedsecret
	User     string
	Password string
	Token    string

	// Certificate, in PEM, and its Key are the proof for the backend pki. The key goes nowhere.
	Certificate []byte
	Key         crypto.Signer

	MakeToken bool          // ask for a token, for later logins
	Expire    time.Duration // of that token; 0 is as the master has it
	// ExpireIfAllowed takes the usual life for a token where the user may not choose that of Expire.
	ExpireIfAllowed bool
	// Address is that of whom a program logs in. The master believes it of operators and of those
	// that its api_user names: guesses are counted for it, and the audit log has it.
	Address string
}

// Session is a login that was taken.
type Session struct {
	Backend string
	User    string
	Groups  []string
	Token   string    // if one was asked for
	Issued  time.Time // when that was made
	Expires time.Time // of the token, or of the login
	Rules   []any     // those of external_auth for the user, as they are written there: texts, then maps
}

// Login makes the connection that of a user of external_auth. What it asks for from then on
// is theirs, and no longer that of whoever has connected. On a connection with [Fingerprint] it
// comes before everything else, and nothing else goes on meanwhile.
func (c *Conn) Login(ctx context.Context, l Login) (Session, error) {
	q := protocol.Login{
		Backend: l.Backend, User: l.User, Password: l.Password, Token: l.Token, Certificate: l.Certificate,
		MakeToken: l.MakeToken, Expire: job.Seconds(l.Expire.Seconds()), Lenient: l.ExpireIfAllowed, Address: l.Address,
	}
	q.Next = c.rpc.Next()
	var in protocol.LoggedIn
	if err := c.rpc.Ask(ctx, protocol.OpLogin, q, &in); err != nil {
		return Session{}, known(err)
	}
	if len(in.Challenge) > 0 && l.Key != nil {
		var err error
		if q.Signature, err = protocol.SignLogin(l.Key, c.rpc.Inbox(), l.User, in.Challenge); err != nil {
			return Session{}, err
		}
		if err := c.rpc.Ask(ctx, protocol.OpLogin, q, &in); err != nil {
			return Session{}, known(err)
		}
	}
	entered, err := c.rpc.Enter(in.Backend, in.User)
	if err != nil {
		return Session{}, err
	}
	c.rpc = entered
	rules, _ := in.Perms.V.([]any)
	return Session{Backend: in.Backend, User: in.User, Groups: in.Groups, Token: in.Token, Issued: in.Issued, Expires: in.Expires, Rules: rules}, nil
}
