package netapi

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"time"

	"github.com/brinebus/brine/client"
)

// principal is the sender of a request: its address and its session. It talks to the master
// with that session's login.
type principal struct {
	s       *Server
	address netip.Addr
	session *session // nil before it is known

	collected collected
}

// user returns the name for the log.
func (p *principal) user() string {
	if p.session != nil {
		return p.session.user
	}
	return ""
}

// call returns the session's connection.
func (p *principal) call(ctx context.Context) (*caller, error) {
	who := p.session.login()
	k, err := p.s.pool.take(ctx, who, p.address)
	if err != nil {
		if errors.Is(err, client.ErrDenied) {
			p.s.ended(p.session)
		}
		return nil, refused(err, notAuthentic)
	}
	return &caller{conn: k.conn, user: k.in.User, kind: "token", pooled: k, who: who}, nil
}

// dial opens a connection for one request, counted for its address.
func (p *principal) dial(ctx context.Context, count func(netip.Addr) (leave func(), err error)) (*own, error) {
	leave, err := count(p.address)
	if err != nil {
		return nil, err
	}
	conn, err := p.s.opts.Dial(ctx)
	if err != nil {
		leave()
		return nil, because(err, http.StatusServiceUnavailable, noMaster)
	}
	return &own{conn, leave}, nil
}

// logIn logs in on a connection that is closed again: only the token lasts.
func (p *principal) logIn(ctx context.Context, l client.Login) (in client.Session, err error) {
	c, err := p.dial(ctx, p.s.limits.login)
	if err != nil {
		return in, err
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, loginTime)
	defer cancel()
	return logIn(ctx, c.conn, l, p.address)
}

// revoke revokes the session's token at the master. Everybody may do that with their own.
func (p *principal) revoke(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, loginTime)
	defer cancel()
	c, err := p.call(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	return c.conn.RevokeToken(ctx, p.session.token)
}

// tokenFor logs in, checks that the login may run auth.mk_token as a runner, and then makes a
// token.
func (p *principal) tokenFor(ctx context.Context, who login, life time.Duration) (in client.Session, err error) {
	c, err := p.dial(ctx, p.s.limits.login)
	if err != nil {
		return in, err
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, loginTime)
	defer cancel()
	l := client.Login{Backend: who.backend, User: who.user, Password: who.password}
	if _, err = logIn(ctx, c.conn, l, p.address); err != nil {
		return in, err
	}
	if err = c.conn.PreviewRunner(ctx, client.Call("auth.mk_token"), client.RunnerOptions{Detach: true}); err != nil {
		return in, err
	}
	l.MakeToken, l.Expire, l.ExpireIfAllowed = true, life, true
	return logIn(ctx, c.conn, l, p.address)
}

// deniedEvents makes the answer for a refusal by event_acl, or for a login that has ended.
func (p *principal) deniedEvents(ctx context.Context, c *caller, err error) error {
	if c.holds(ctx, p.address) {
		return because(err, http.StatusUnauthorized, authorization)
	}
	return because(err, http.StatusUnauthorized, noPermission)
}

// callAlone opens a separate connection with the session's login, for a stream with a position:
// its end tells the master that the reader is gone.
func (p *principal) callAlone(ctx context.Context) (*caller, error) {
	leave, err := p.s.limits.position(p.session.backend + ":" + p.session.user)
	if err != nil {
		return nil, err
	}
	conn, err := p.s.opts.Dial(ctx)
	if err != nil {
		leave()
		return nil, because(err, http.StatusServiceUnavailable, noMaster)
	}
	o := &own{conn, leave}
	who := p.session.login()
	in, err := logIn(ctx, conn, client.Login{Backend: who.backend, User: who.user, Token: who.token}, p.address)
	if err != nil {
		o.close()
		return nil, refused(err, noPermission)
	}
	return &caller{conn: conn, user: in.User, kind: "token", own: o, who: who}, nil
}
