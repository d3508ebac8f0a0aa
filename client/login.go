package client

import (
	"context"
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

	MakeToken bool          // ask for a token, for later logins
	Expire    time.Duration // of that token; 0 is as the master has it
}

// Session is a login that was taken.
type Session struct {
	Backend string
	User    string
	Groups  []string
	Token   string    // if one was asked for
	Expires time.Time // of the token, or of the login
}

// Login makes the connection that of a user of external_auth. What it asks for from then on
// is theirs, and no longer that of whoever has connected. On a connection with [Fingerprint] it
// comes before everything else, and nothing else goes on meanwhile.
func (c *Conn) Login(ctx context.Context, l Login) (Session, error) {
	q := protocol.Login{Backend: l.Backend, User: l.User, Password: l.Password, Token: l.Token, MakeToken: l.MakeToken, Expire: job.Seconds(l.Expire.Seconds())}
	q.Next = c.rpc.Next()
	var in protocol.LoggedIn
	if err := c.rpc.Ask(ctx, protocol.OpLogin, q, &in); err != nil {
		return Session{}, known(err)
	}
	entered, err := c.rpc.Enter(in.Backend, in.User)
	if err != nil {
		return Session{}, err
	}
	c.rpc = entered
	return Session{Backend: in.Backend, User: in.User, Groups: in.Groups, Token: in.Token, Expires: in.Expires}, nil
}
