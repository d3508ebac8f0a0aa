package client

import (
	"context"
	"crypto"
	"time"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// Login names a user of external_auth, with a proof: a password, a token, or a certificate.
// Backend and User may be empty with a token.
type Login struct {
	Backend  string // file, ldap, pam, sharedsecret
	User     string
	Password string
	Token    string

	// Certificate, in PEM, and its Key are the proof for the backend pki. The key is not sent.
	Certificate []byte
	Key         crypto.Signer

	MakeToken bool          // request a token for later logins
	Expire    time.Duration // life of that token; 0 means the master's default
	// ExpireIfAllowed uses the default life of a token if the user may not choose that of
	// Expire.
	ExpireIfAllowed bool
	// Address is the address of the user whom a program logs in. The master accepts it from
	// operators and from the users in api_user: it limits failed logins by this address, and
	// records it in the audit log.
	Address string
}

// Session is a successful login.
type Session struct {
	Backend string
	User    string
	Groups  []string
	Token   string    // if one was requested
	Issued  time.Time // when the token was made
	Expires time.Time // of the token, or of the login
	Rules   []any     // the rules of external_auth for the user, as in the configuration: strings, then maps
}

// Login makes the connection that of a user of external_auth. From then on its requests have
// the rights of this user, and no longer those of the user who connected. On a connection with
// [Fingerprint] it must be the first request, and no other request may be in progress.
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

// enter replaces the connection of a guest by that of the user. Other connections stay.
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

// String leaves out the proof, so that printing a Login shows no secret.
func (l Login) String() string { return "login of " + l.Backend + ":" + l.User }

// GoString is String.
func (l Login) GoString() string { return l.String() }

// String leaves out the token.
func (s Session) String() string { return "session of " + s.Backend + ":" + s.User }

// GoString is String.
func (s Session) GoString() string { return s.String() }

// RevokeToken revokes a token, and those that were made with it: their connections lose its
// rights within seconds. On a connection with a login, users may revoke their own tokens.
func (c *Conn) RevokeToken(ctx context.Context, token string) error {
	_, err := c.Runner(ctx, Call("auth.del_token", protocol.TokenID(token)))
	return err
}
