package peer

import (
	"context"
	"errors"

	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// Revocation asks the master, over the connection in use, to delete the key of the minion whose
// connection that is.
func Revocation(conn func() *rpc.Conn) func(context.Context) error {
	return func(ctx context.Context) error {
		c := conn()
		if c == nil {
			return errors.New("there is no connection to a master")
		}
		var revoked protocol.Revoked
		return c.Ask(ctx, protocol.OpRevoke, nil, &revoked)
	}
}
