package netapi

import (
	"context"
	"net/http"
	"net/netip"

	"github.com/brinebus/brine/internal/job"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// principal is who asks: from where, and in which session. It reaches the master in their
// name.
type principal struct {
	s       *Server
	address netip.Addr
	session *session // nil before it is known
}

// user is who asks, for the log.
func (p *principal) user() string {
	if p.session != nil {
		return p.session.user
	}
	return ""
}

// call gets the session's connection.
func (p *principal) call(ctx context.Context) (*caller, error) {
	who := p.session.login()
	k, err := p.s.pool.take(ctx, who, p.address)
	if err != nil {
		if rpc.CodeOf(err) == rpc.Denied {
			p.s.ended(p.session)
		}
		return nil, refused(err, notAuthentic)
	}
	return &caller{conn: k.conn, user: k.in.User, kind: "token", link: k, who: who}, nil
}

// dial opens a connection for one request, counted for its address.
func (p *principal) dial() (*own, error) {
	leave, err := p.s.limits.login(p.address)
	if err != nil {
		return nil, err
	}
	conn, err := p.s.opts.Dial()
	if err != nil {
		leave()
		return nil, because(err, http.StatusServiceUnavailable, noMaster)
	}
	return &own{conn, leave}, nil
}

// logIn logs in on a connection that is closed again: what lasts is the token.
func (p *principal) logIn(ctx context.Context, q protocol.Login) (in protocol.LoggedIn, err error) {
	c, err := p.dial()
	if err != nil {
		return in, err
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, loginTime)
	defer cancel()
	return logIn(ctx, c.conn, q, p.address)
}

// revoke has the master forget the session's token. Everybody may do that with their own.
func (p *principal) revoke(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, loginTime)
	defer cancel()
	c, err := p.call(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	q := protocol.Run{Command: job.Command{Function: "auth.del_token", Args: []any{protocol.TokenID(p.session.token)}, Kwargs: map[string]any{}}}
	_, err = p.runOne(ctx, c, chunk{run: &q})
	return err
}

// tokenFor logs in, asks whether the login may run auth.mk_token as a runner, and then
// makes a token.
func (p *principal) tokenFor(ctx context.Context, who login, life job.Seconds) (in protocol.LoggedIn, err error) {
	c, err := p.dial()
	if err != nil {
		return in, err
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, loginTime)
	defer cancel()
	q := protocol.Login{Backend: who.backend, User: who.user, Password: who.password}
	if _, err = logIn(ctx, c.conn, q, p.address); err != nil {
		return in, err
	}
	runner := protocol.Run{Command: job.Command{Function: "auth.mk_token"}, Async: true, Preview: true}
	if err = c.conn.Ask(ctx, protocol.OpRun, runner, nil); err != nil {
		return in, err
	}
	q.MakeToken, q.Expire, q.Lenient = true, life, true
	return logIn(ctx, c.conn, q, p.address)
}

// deniedEvents words a refusal: by event_acl, or of a login that has ended.
func (p *principal) deniedEvents(ctx context.Context, c *caller, err error) error {
	if c.holds(ctx, p.address) {
		return because(err, http.StatusUnauthorized, authorization)
	}
	return because(err, http.StatusUnauthorized, noPermission)
}

// callAlone gets a connection of its own in the name of the session, for a stream with a
// position: the master sees by its end that the reader has gone.
func (p *principal) callAlone(ctx context.Context) (*caller, error) {
	leave, err := p.s.limits.position(p.session.backend + ":" + p.session.user)
	if err != nil {
		return nil, err
	}
	conn, err := p.s.opts.Dial()
	if err != nil {
		leave()
		return nil, because(err, http.StatusServiceUnavailable, noMaster)
	}
	o := &own{conn, leave}
	who := p.session.login()
	in, err := logIn(ctx, conn, protocol.Login{Backend: who.backend, User: who.user, Token: who.token}, p.address)
	if err != nil {
		o.close()
		return nil, refused(err, noPermission)
	}
	return &caller{conn: conn, user: in.User, kind: "token", own: o, who: who}, nil
}
