package client

import (
	"context"
	"errors"

	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/socket"
)

// Kinds of errors, for [errors.Is]. The text of an error says what happened; it may change.
var (
	ErrDenied      = errors.New("not permitted")
	ErrUsage       = errors.New("the request makes no sense")
	ErrNoMatch     = errors.New("the target means no minion")
	ErrNotFound    = errors.New("there is no such thing")
	ErrBusy        = errors.New("too much at once") // the same request may succeed later
	ErrUnavailable = errors.New("not available now")
	ErrFailed      = errors.New("failed") // a runner has failed, or the daemon itself: its log has the cause
	// ErrLost is for a connection that has ended. It is unknown whether the daemon has carried
	// out the request.
	ErrLost = rpc.ErrLost
	// ErrRefused is for a connection that the daemon refuses.
	ErrRefused = rpc.ErrRefused
	// ErrServer is for a server that is not the master of the credentials.
	ErrServer = rpc.ErrServerKey
	// ErrNobody is for a socket on which no daemon listens.
	ErrNobody = socket.ErrNobody
)

var kinds = map[rpc.Code]error{
	rpc.Denied: ErrDenied, rpc.Usage: ErrUsage, rpc.NoMatch: ErrNoMatch, rpc.NotFound: ErrNotFound,
	rpc.Busy: ErrBusy, rpc.Unavailable: ErrUnavailable, rpc.Internal: ErrFailed,
}

// failure is an error of a daemon with its kind.
type failure struct {
	error
	kind error
}

func (f failure) Unwrap() []error { return []error{f.error, f.kind} }

// known adds the kind to an error of a daemon; other errors are returned unchanged.
func known(err error) error {
	var refused *rpc.Error
	if err == nil || !errors.As(err, &refused) {
		return err
	}
	return failure{err, kinds[refused.Code]}
}

// Hint returns one sentence about what the user can do about err, "" if there is none.
func Hint(err error) string { return salt.Hint(err) }

// Unsure reports whether the request, or a part of it, may have been carried out although it
// failed with err.
func Unsure(err error) bool { return rpc.Unsure(err) }

// contextual returns the cause if ctx has ended, otherwise nil.
func contextual(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
