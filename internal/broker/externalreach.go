package broker

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/salt"
)

// How soon and how often the log says that the servers are not reached: a change from one server to
// another takes less.
const (
	unreachedAfter = 5 * time.Second
	unreachedEvery = time.Minute
	unreachedLook  = time.Second
)

// configHint is what servers lack that do not know the master.
const configHint = "their configuration needs what 'salt-master --nats-config' prints"

// reaching is which users of the master are connected to the servers, and why the others are not.
// The client library reports an attempt that fails before the first connection only in part, and
// logs nothing.
type reaching struct {
	mu     sync.Mutex
	users  []*attempt
	logged time.Time
}

// attempt is what is known of the connection of one user.
type attempt struct {
	user  string
	conn  *nats.Conn // nil until it is made
	since time.Time  // since when there is no connection; zero with one
	err   error      // why not
}

// add records a user that is not connected yet.
func (r *reaching) add(user string) *attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := &attempt{user: user, since: time.Now()}
	r.users = append(r.users, a)
	return a
}

// made records the connection of a user, which is there or is attempted from now on.
func (r *reaching) made(a *attempt, nc *nats.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.conn = nc
}

// connected records that a user is connected.
func (r *reaching) connected(a *attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.since, a.err = time.Time{}, nil
}

// lost records that the connection of a user has ended, and is attempted again.
func (r *reaching) lost(a *attempt, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.err = why; a.since.IsZero() {
		a.since = time.Now()
	}
}

// failed records that a server was not reached.
func (r *reaching) failed(a *attempt, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.err = why
}

// refresh asks the connections why servers have refused them. It may wait for an attempt under way.
func (r *reaching) refresh() {
	r.mu.Lock()
	users := slices.Clone(r.users)
	r.mu.Unlock()
	for _, a := range users {
		r.mu.Lock()
		nc, there := a.conn, a.since.IsZero()
		r.mu.Unlock()
		if nc == nil || there || nc.IsConnected() {
			continue
		}
		if why := nc.LastError(); why != nil {
			r.failed(a, why)
		}
	}
}

// missing returns the users without a connection since then or longer, and why the first of them has none.
func (r *reaching) missing(then time.Time) (users []string, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.users {
		if a.since.IsZero() || a.since.After(then) {
			continue
		}
		if users = append(users, a.user); why == nil {
			why = a.err
		}
	}
	return users, why
}

// tell reports whether it is to be logged again.
func (r *reaching) tell(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.logged) < unreachedEvery {
		return false
	}
	r.logged = now
	return true
}

// tellUnreached logs now and then that servers are not reached.
func tellUnreached(x *External, now time.Time) {
	x.reaching.refresh()
	users, why := x.reaching.missing(now.Add(-unreachedAfter))
	if len(users) == 0 || !x.reaching.tell(now) {
		return
	}
	hint := salt.Hint(why)
	if dial := (*net.OpError)(nil); hint == "" && errors.As(why, &dial) && dial.Op == "dial" {
		hint = "do the servers run, and are these their addresses?"
	} else if hint == "" {
		hint = configHint
	}
	x.log.Warn(errUnreached.Error(), "as", strings.Join(users, ", "), "servers", strings.Join(x.opts.Servers, ", "), "err", why, "hint", hint)
}

// watchReach calls tellUnreached until Close.
func watchReach(x *External) {
	t := time.NewTicker(unreachedLook)
	defer t.Stop()
	for {
		select {
		case now := <-t.C:
			tellUnreached(x, now)
		case <-x.stop:
			return
		}
	}
}

// Unreached returns nil while all connections to the servers are there, otherwise why not.
func Unreached(x *External) error {
	users, why := x.reaching.missing(time.Now())
	if len(users) == 0 {
		return nil
	}
	err := fmt.Errorf("the master is not connected to the NATS servers as %s", strings.Join(users, ", "))
	if why != nil {
		err = fmt.Errorf("%w: %w", err, why)
	}
	return err
}
