package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// How soon and how often the log says that the servers are not reached: a change from one server to
// another takes less.
const (
	unreachedAfter = 5 * time.Second
	unreachedEvery = time.Minute
	unreachedLook  = time.Second
)

// configHint is what to do about servers that do not know the master. If they know another one, they would not
// know that any more if they got the configuration of this one.
func configHint(x *External) string {
	return fmt.Sprintf("their configuration needs what 'salt-master --nats-config' prints, and they must be restarted then: a reload is not enough. Or, if another master uses these servers, this one needs the same seed: copy the file of that one to %s", x.opts.Credentials.file)
}

// systemUser is the name of the user that sees and ends connections.
const systemUser = "system"

// errBlind is why a master that is connected with all its users cannot work: it would hear of the end of no
// connection, and could end none.
var errBlind = salt.WithHint(errors.New("the server tells this master nothing about connections: the account SYS is not its system account"),
	"check system_account in the configuration of the servers: it must be SYS, as 'salt-master --nats-config' prints it, and nothing may set it to another account")

// reaching is which users of the master are connected to the servers, and why the others are not.
// The client library reports an attempt that fails before the first connection only in part, and
// logs nothing.
type reaching struct {
	mu     sync.Mutex
	users  []*attempt
	logged time.Time
	blind  bool // errBlind, until the opposite is known
}

// attempt is what is known of the connection of one user.
type attempt struct {
	user  string
	conn  *nats.Conn // nil until it is made
	since time.Time  // since when there is no connection; zero with one
	err   error      // why not
	ends  int        // how many connections have ended
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
	if a.err = explained(why); a.since.IsZero() {
		a.since = time.Now()
	}
	a.ends++
}

// system returns the user of the system account, nil without one, and how many connections of it have ended.
func (r *reaching) system() (a *attempt, ends int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.users {
		if a.user == systemUser {
			return a, a.ends
		}
	}
	return nil, 0
}

// seen records that the user of the system account gets answers, unless the connection over which they
// came has ended; that is so if ends has changed.
func (r *reaching) seen(a *attempt, ends int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.blind = false; a != nil && a.ends == ends {
		a.since, a.err = time.Time{}, nil
	}
}

// unseen records errBlind.
func (r *reaching) unseen(a *attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.blind = true; a == nil {
		return
	}
	if a.err = errBlind; a.since.IsZero() {
		a.since = time.Now()
	}
}

// isBlind reports whether errBlind holds.
func (r *reaching) isBlind() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.blind
}

// unproved reports whether it is not known that the user of the system account gets answers.
func (r *reaching) unproved() bool {
	a, _ := r.system()
	r.mu.Lock()
	defer r.mu.Unlock()
	return a != nil && !a.since.IsZero()
}

// failed records that a server was not reached.
func (r *reaching) failed(a *attempt, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.err = explained(why)
}

// explained says what an error of the client library means here, and has a hint if that differs from configHint.
func explained(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrSecureConnWanted), errors.Is(err, nats.ErrSecureConnRequired):
		return salt.WithHint(fmt.Errorf("the server does not offer TLS: %w", err), "set tls with cert_file and key_file in the server's own configuration: what 'salt-master --nats-config' prints does not have it")
	case bus.Undecided(err):
		return errors.New("this user is not in the configuration of the server, which asks a master about it and gets no answer")
	}
	return pki.UntrustedHint(err)
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
	level := slog.LevelWarn
	if errors.Is(why, errBlind) { // it does not end by itself
		level = slog.LevelError
	}
	x.log.Log(context.Background(), level, errUnreached.Error(), "as", strings.Join(users, ", "), "servers", strings.Join(x.opts.Servers, ", "), "err", why, "hint", reachHint(x, why))
}

// reachHint is what to do if servers are not reached for that reason.
func reachHint(x *External, why error) string {
	if hint := salt.Hint(why); hint != "" {
		return hint
	}
	if dial, ok := errors.AsType[*net.OpError](why); ok && dial.Op == "dial" {
		return "do the servers run, and are these their addresses?"
	}
	return configHint(x)
}

// watchReach finds out whether the user of the system account is one, and calls tellUnreached, until Close.
func watchReach(x *External) {
	t := time.NewTicker(unreachedLook)
	defer t.Stop()
	for {
		select {
		case <-x.met:
			examineSystem(context.Background(), x)
		case now := <-t.C:
			if x.reaching.unproved() {
				examineSystem(context.Background(), x)
			}
			tellUnreached(x, now)
		case <-x.stop:
			return
		}
	}
}

// examineSystem asks the server to which the user of the system account is connected who it is. It is there: if
// nobody answers, that account is not its system account. Nothing else shows that.
func examineSystem(ctx context.Context, x *External) {
	a, ends := x.reaching.system()
	id, made := x.watcher.ConnectedServerId(), x.watcher.Stats().Reconnects
	if id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, heartbeat)
	defer cancel()
	_, err := x.watcher.RequestWithContext(ctx, "$SYS.REQ.SERVER."+id+".IDZ", nil)
	if x.watcher.Stats().Reconnects != made {
		return // the question may have gone to another server
	}
	switch {
	case err == nil:
		x.reaching.seen(a, ends)
	case errors.Is(err, nats.ErrNoResponders):
		x.reaching.unseen(a)
		x.dropAll() // nobody would say when they have ended
	case a != nil:
		x.reaching.failed(a, err)
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
