package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/salt"
)

// reachTime is how long a start waits for servers that it does not reach, and tellEvery how often it
// says what it waits for: a service manager ends a start that says nothing for some 90 seconds.
const (
	reachTime = 2 * time.Minute
	tellEvery = 10 * time.Second
)

// errUnreached is why a master does not start whose journal is at servers that it does not reach.
var errUnreached = errors.New("the NATS servers are not reached, or do not take this master as one of their users")

// Claim returns when this master is the one at work: the connection for the journal is there, and
// no other master answers that it is at work. While one is, it waits without a limit; servers that
// are not reached it does not wait for longer than reachTime. It calls tell with what it waits for.
func (r *Remote) Claim(ctx context.Context, tell func(string)) error {
	x, end, err := r.x.listen()
	if err != nil {
		return err
	}
	defer end()
	heard, said := time.Now(), time.Now()
	for first := true; ctx.Err() == nil; {
		free, other := x.free(ctx)
		free = free && x.store.IsConnected()
		if x.vacant(free) {
			won, err := r.hold(ctx)
			if won || err != nil {
				return err
			}
		}
		if other || free {
			heard = time.Now()
		}
		if other && first || time.Since(said) > x.tellEvery {
			said, first = time.Now(), first && !other
			tell(waitsFor(x.External, other))
		}
		if time.Since(heard) > x.reach {
			return r.unreached()
		}
		if !x.pause(ctx) {
			break
		}
	}
	return context.Cause(ctx)
}

// waitsFor is what a start waits for, for the service manager.
func waitsFor(x *External, other bool) string {
	if other {
		return "another master is at work on the NATS servers; this one waits"
	}
	if err := Unreached(x); err != nil {
		return "waiting for the NATS servers: " + strings.ReplaceAll(err.Error(), "\n", " ")
	}
	return "waiting for the turn of this master at the NATS servers"
}

// unreached says what was not reached, and why, as far as a connection knows it.
func (r *Remote) unreached() error {
	if r.x.reaching.isBlind() {
		return salt.WithHint(fmt.Errorf("the NATS servers are reached, but of no use: %w", errBlind), salt.Hint(errBlind))
	}
	err, why := errUnreached, explained(r.x.store.LastError())
	if why != nil {
		err = fmt.Errorf("%w: %w", err, why)
	}
	return salt.WithHint(err, reachHint(r.x, why)+"; the log says what was tried")
}

// hold announces that this master is at work, and reports whether it is the only one.
func (r *Remote) hold(ctx context.Context) (bool, error) {
	x := r.x
	claim := newClaim()
	sub, err := x.announce(claim)
	if err == nil {
		err = x.traffic.FlushTimeout(externalTimeout) // from here on others hear of it
	}
	if err != nil {
		return false, nil //nolint:nilerr // the connection was lost just now: it is tried again
	}
	if x.preceded(ctx, claim) {
		_ = sub.Unsubscribe() // fails if the connection has ended
		return false, nil
	}
	x.held = claim
	return true, nil
}
