package client

import (
	"context"
	"crypto"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
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
	if err := c.enter(ctx, in.Backend, in.User); err != nil {
		return Session{}, err
	}
	rules, _ := in.Perms.V.([]any)
	return Session{Backend: in.Backend, User: in.User, Groups: in.Groups, Token: in.Token, Issued: in.Issued, Expires: in.Expires, Rules: rules}, nil
}

// enter leaves a connection as it is, but that of a guest, which becomes the user's.
func (c *Conn) enter(ctx context.Context, backend, user string) error {
	if c.rpc.Next() == "" {
		return nil
	}
	guest := c.rpc
	entered, err := bounded(ctx, func() (*rpc.Conn, error) { return guest.Enter(backend, user) }, (*rpc.Conn).Close)
	if err == nil {
		c.rpc = entered
	}
	return err
}

// String leaves out what proves who somebody is: whatever prints a Login tells no secret.
func (l Login) String() string { return "login of " + l.Backend + ":" + l.User }

// GoString is String.
func (l Login) GoString() string { return l.String() }

// String leaves out the token.
func (s Session) String() string { return "session of " + s.Backend + ":" + s.User }

// GoString is String.
func (s Session) GoString() string { return s.String() }

// RevokeToken has the master forget a token, and those that were made with it: what it was good for ends
// within seconds. On a connection that was logged in, everybody may do so with their own tokens.
func (c *Conn) RevokeToken(ctx context.Context, token string) error {
	_, err := c.Runner(ctx, Call("auth.del_token", protocol.TokenID(token)))
	return err
}
