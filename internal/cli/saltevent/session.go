package saltevent

import (
	"context"
	"errors"
	"sync"
	"time"

	urcli "github.com/urfave/cli/v2"

	brine "github.com/brinebus/brine/client"
	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
)

// session is a connection to the daemon that reconnects after an outage. Its methods may be called
// concurrently.
type session struct {
	env  *cli.Env
	dial connector
	stay bool // do not reconnect

	mu          sync.Mutex
	conn        *brine.Conn
	outageShown bool // the user knows that the daemon is away
}

// openSession connects; if the daemon is not there, it fails.
func openSession(ctx context.Context, env *cli.Env, dial connector) (*session, error) {
	s := &session{env: env, dial: dial}
	conn, err := dial(ctx)
	s.conn = conn
	return s, err
}

// awaitSession is openSession for a command with a timeout for the daemon: it tries again until
// limit is over.
func awaitSession(ctx context.Context, env *cli.Env, opts *urcli.Context, dial connector, limit time.Duration) (*session, error) {
	s, err := openSession(ctx, env, dial)
	if cli.Code(err) != cli.Unavailable || !opts.IsSet("timeout") {
		return s, err
	}
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if _, again := s.get(waiting); again != nil {
		if errors.Is(again, context.DeadlineExceeded) {
			return s, err // this error says more than a timeout
		}
		return s, again
	}
	return s, nil
}

// The pauses between attempts to reach an unreachable daemon.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
)

// get returns the connection, waiting for the daemon while it is away.
func (s *session) get(ctx context.Context) (*brine.Conn, error) {
	for pauses := new(backoff.Pauses); ; {
		c, err := s.once(ctx)
		if err == nil || cli.Code(err) != cli.Unavailable {
			return c, err
		}
		if !backoff.Sleep(ctx, pauses.Next(firstPause, lastPause)) {
			return nil, context.Cause(ctx)
		}
	}
}

func (s *session) once(ctx context.Context) (*brine.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		return s.conn, nil
	}
	c, err := s.dial(ctx)
	if err != nil {
		if !s.outageShown {
			s.env.Warn(errors.New("the daemon is away; waiting for it"))
		}
		s.outageShown = true
		return nil, err
	}
	s.conn, s.outageShown = c, false
	return c, nil
}

// lost gives up a connection on which something failed.
func (s *session) lost(c *brine.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == c && c != nil {
		s.conn = nil
		c.Close()
	}
}

func (s *session) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		s.conn.Close()
	}
}

// passing reports whether err goes away when the daemon is back or less busy.
func passing(err error) bool {
	return errors.Is(err, brine.ErrLost) || errors.Is(err, brine.ErrUnavailable) || errors.Is(err, brine.ErrBusy)
}

// unansweredError is the error if the daemon was away or busy until the timeout.
type unansweredError struct {
	cause  error // why the wait ended
	said   error // error of the last attempt
	unsure bool  // the request, or a part of it, may have been executed by one of the attempts
}

// Error implements error.
func (e *unansweredError) Error() string { return e.cause.Error() + ": " + e.said.Error() }

// Unwrap is for errors.Is.
func (e *unansweredError) Unwrap() []error { return []error{e.cause, e.said} }

// ask sends a request to the daemon, and retries while it is away, until ctx ends. Then the error
// wraps that cause and the last error of the daemon.
func (s *session) ask(ctx context.Context, do func(*brine.Conn) error) error {
	var said error
	unsure := false
	for pauses := new(backoff.Pauses); ; {
		c, err := s.get(ctx)
		if err != nil {
			return err
		}
		err = do(c)
		switch {
		case err != nil && ctx.Err() != nil && said != nil:
			return &unansweredError{context.Cause(ctx), client.Error(said), true}
		case err == nil || s.stay || !passing(err):
			return client.Error(err)
		}
		said, unsure = err, unsure || brine.Unsure(err)
		if errors.Is(err, brine.ErrLost) {
			s.lost(c)
		}
		if !backoff.Sleep(ctx, pauses.Next(firstPause, lastPause)) {
			return &unansweredError{context.Cause(ctx), client.Error(err), unsure}
		}
	}
}
