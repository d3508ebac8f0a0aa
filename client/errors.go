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
	ErrBusy        = errors.New("too much at once") // the same may be asked again later
	ErrUnavailable = errors.New("not available now")
	ErrFailed      = errors.New("failed") // a runner, or the daemon itself: its log names the cause
	// ErrLost is about a connection that has ended. Whether the daemon did what was asked for is
	// not known.
	ErrLost = rpc.ErrLost
	// ErrRefused is about a connection that the daemon does not take.
	ErrRefused = rpc.ErrRefused
	// ErrServer is about a server that is not the master of the credentials.
	ErrServer = rpc.ErrServerKey
	// ErrNobody is about a socket behind which no daemon listens.
	ErrNobody = socket.ErrNobody
)

var kinds = map[rpc.Code]error{
	rpc.Denied: ErrDenied, rpc.Usage: ErrUsage, rpc.NoMatch: ErrNoMatch, rpc.NotFound: ErrNotFound,
	rpc.Busy: ErrBusy, rpc.Unavailable: ErrUnavailable, rpc.Internal: ErrFailed,
}

// failure is an error of a daemon together with its kind.
type failure struct {
	error
	kind error
}

func (f failure) Unwrap() []error { return []error{f.error, f.kind} }

// known gives an error of a daemon its kind; others stay as they are.
func known(err error) error {
	var refused *rpc.Error
	if err == nil || !errors.As(err, &refused) {
		return err
	}
	return failure{err, kinds[refused.Code]}
}

// Hint returns what the reader of err can do about it, one sentence, or "".
func Hint(err error) string { return salt.Hint(err) }

// Unsure says whether what was asked for may be done, or a part of it, although err is what came of it.
func Unsure(err error) bool { return rpc.Unsure(err) }

// contextual returns why ctx ended, or nil.
func contextual(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
