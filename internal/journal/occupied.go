package journal

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// lastName is the name of a message that keeps the newest block of a table from becoming empty. No key is written like
// this, so readers leave it out.
const lastName = "=last"

// occupy stores that message at the end of a table with copies, before another one is removed without a mark.
//
// The server syncs the blocks of such a table once a second, and before each snapshot of its Raft group, but it removes
// a block without messages at once. If that is the newest block, the sequence that the table has reached is then only
// in a block that is not synced. If the power of all members is cut in that second, each finds its copy older than
// its own snapshot and waits for another member to bring it up to date, and none leads ever again (nats-server
// 2.15.2). What is left is the second after a table has begun a new block of 4 MiB, if the one before becomes empty in it.
func (t *Table) occupy(ctx context.Context) error {
	if t.all.CachedInfo().Config.Replicas <= 1 {
		return nil // synced by whoever writes
	}
	_, err := t.kv.Put(ctx, lastName, nil)
	var refused *jetstream.APIError
	if errors.As(err, &refused) && !isLeaderless(err) { // for example since there is no room, which the removal makes
		return nil
	}
	if err != nil {
		return fmt.Errorf("store its last message: %w", err)
	}
	return nil
}
