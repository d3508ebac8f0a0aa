package netapi

import (
	"context"
	"net/http"
	"net/netip"

	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// caller is somebody who has logged in at the master.
type caller struct {
	conn *rpc.Conn
	user string
	kind string // of the proof, in the words of Salt: token or eauth
	link *link  // nil for a connection of its own
	own  *own   // that, where it is closed with the caller
	who  login
}

// holds asks the master whether a login by token is still one.
func (c *caller) holds(ctx context.Context, address netip.Addr) bool {
	if c.who.token == "" {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, loginTime)
	defer cancel()
	_, err := logIn(ctx, c.conn, protocol.Login{Token: c.who.token}, address)
	return rpc.CodeOf(err) != rpc.Denied
}

// ended forgets a session whose token the master does not take any more. It is known for a
// while, so that who shows it is told so.
func (s *Server) ended(session *session) { s.pool.drop(session.token) }

func (c *caller) close() {
	switch {
	case c.link != nil:
		c.link.release()
	case c.own != nil:
		c.own.close()
	}
}

// lowstate does what the chunks of the body ask for, in the name of the session.
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

// inSession does chunks in the name of the session.
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
