package saltevent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	urcli "github.com/urfave/cli/v2"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/cli"
	"github.com/brinebus/brine/internal/cli/client"
	"github.com/brinebus/brine/internal/rpc"
)

// session is a connection to the daemon that is made anew when the daemon was
// away. Its methods may be called concurrently.
type session struct {
	env  *cli.Env
	dial connector
	stay bool // do not come back

	mu          sync.Mutex
	conn        *rpc.Conn
	outageShown bool // the person knows that the daemon is away
}

// openSession connects; a daemon that is not there now is an error.
func openSession(ctx context.Context, env *cli.Env, dial connector) (*session, error) {
	s := &session{env: env, dial: dial}
	conn, err := dial(ctx)
	s.conn = conn
	return s, err
}

// awaitSession is openSession for a command that was told how long to wait for the
// daemon: one that is away now is tried again until limit is over.
func awaitSession(ctx context.Context, env *cli.Env, opts *urcli.Context, dial connector, limit time.Duration) (*session, error) {
	s, err := openSession(ctx, env, dial)
	if cli.Code(err) != cli.Unavailable || !opts.IsSet("timeout") {
		return s, err
	}
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if _, again := s.get(waiting); again != nil {
		if errors.Is(again, context.DeadlineExceeded) {
			return s, err // what was wrong says more than that time ran out
		}
		return s, again
	}
	return s, nil
}

// The pauses between attempts to reach a daemon that is away.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
)

// get returns the connection, waiting for the daemon while it is away.
func (s *session) get(ctx context.Context) (*rpc.Conn, error) {
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

func (s *session) once(ctx context.Context) (*rpc.Conn, error) {
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
func (s *session) lost(c *rpc.Conn) {
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

// passing says whether err goes away when the daemon is back or less busy.
func passing(err error) bool {
	if errors.Is(err, rpc.ErrLost) {
		return true
	}
	code := rpc.CodeOf(err)
	return code == rpc.Unavailable || code == rpc.Busy
}

// errUnsure says that what was asked for may be done, or a part of it: an answer of the
// daemon says so, or is missing.
var errUnsure = errors.New("it may be done")

// ask asks the daemon, again and again while it is away, until ctx ends. Then the
// error has the cause of that, and what the daemon said last; errUnsure if one of the
// attempts may have had an effect.
func (s *session) ask(ctx context.Context, op string, in, out any) error {
	var said error
	unsure := false
	for pauses := new(backoff.Pauses); ; {
		c, err := s.get(ctx)
		if err != nil {
			return err
		}
		err = c.Ask(ctx, op, in, out)
		switch {
		case err != nil && ctx.Err() != nil && said != nil:
			return fmt.Errorf("%w: %w: %w", context.Cause(ctx), errUnsure, client.Error(said))
		case err == nil || s.stay || !passing(err):
			return client.Error(err)
		}
		said, unsure = err, unsure || rpc.Unsure(err)
		if errors.Is(err, rpc.ErrLost) {
			s.lost(c)
		}
		if !backoff.Sleep(ctx, pauses.Next(firstPause, lastPause)) {
			if unsure {
				err = fmt.Errorf("%w: %w", errUnsure, err)
			}
			return fmt.Errorf("%w: %w", context.Cause(ctx), client.Error(err))
		}
	}
}
