package netapi

import (
	"context"
	"errors"
	"net/http"
	"net/netip"

	"github.com/brinebus/brine/client"
)

// caller is a login at the master with its connection.
type caller struct {
	conn   *client.Conn
	user   string
	kind   string  // of the login, as Salt calls it: token or eauth
	pooled *pooled // nil for a connection of its own
	own    *own    // that connection, closed together with the caller
	who    login
}

// name is the login for limits.
func (c *caller) name() string { return login{backend: c.who.backend, user: c.user}.name() }

// holds asks the master whether a login by token is still valid.
func (c *caller) holds(ctx context.Context, address netip.Addr) bool {
	if c.who.token == "" {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, loginTime)
	defer cancel()
	_, err := logIn(ctx, c.conn, client.Login{Token: c.who.token}, address)
	return !errors.Is(err, client.ErrDenied)
}

// ended forgets a session whose token the master no longer accepts. Its id stays known for a
// while, so that the client is told why it is refused.
func (s *Server) ended(session *session) { s.pool.drop(session.token) }

func (c *caller) close() {
	switch {
	case c.pooled != nil:
		c.pooled.release()
	case c.own != nil:
		c.own.close()
	}
}

// lowstate runs the chunks of the body with the session's login.
func lowstate(r *request) error {
	if r.URL.Query().Has("follow") {
		return followSession(r)
	}
	results, err := r.inSession(r.body)
	if err != nil {
		return err
	}
	return r.send(http.StatusOK, map[string]any{"return": results})
}

// inSession runs chunks with the session's login.
func (r *request) inSession(body any) ([]any, error) {
	if err := r.acceptable(); err != nil {
		return nil, err
	}
	leave, err := r.s.limits.work(r.session.backend + ":" + r.session.user)
	if err != nil {
		return nil, err
	}
	defer leave()
	maps, err := lowstates(body)
	if err != nil {
		return nil, err
	}
	chunks, err := r.chunks(maps)
	if err != nil {
		return nil, err
	}
	ctx := r.Context()
	c, err := r.call(ctx)
	if err != nil {
		return nil, err
	}
	defer c.close()
	return r.all(ctx, chunks, func(chunk) (*caller, error) { return c, nil })
}

func (r *request) chunks(maps []map[string]any) ([]chunk, error) {
	var list []chunk
	for _, m := range maps {
		c, err := r.s.chunk(m, r.form)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}
