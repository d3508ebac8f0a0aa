package journal

import (
	"context"
	"fmt"
)

// lastName is the name of a message that keeps the newest block of a table from becoming empty. No key is written like
// this, so readers leave it out.
const lastName = "=last"

// That message is stored anew after so many removals, or so many bytes of values: a block of a table is 4 MiB.
const (
	occupiedRemovals = 64
	occupiedBytes    = 256 << 10
)

// occupied counts until that message is stored anew; the zero value says that it has to be now.
type occupied struct{ removals, bytes int }

// occupy sees to it that the newest block of a table with copies has a message, before one is removed without
// a mark. The server syncs the blocks of such a table once a second, and before each snapshot of the consensus, but it removes
// a block without messages at once: the sequence that the table has reached is then only in a block that is not synced. If
// the power of all members is cut in that second, each finds its copy older than its own snapshot, waits for another
// member to bring it up to date, and none leads ever again (nats-server 2.15.2).
func (t *Table) occupy(ctx context.Context) error {
	if t.all.CachedInfo().Config.Replicas <= 1 {
		return nil // synced by whoever writes
	}
	t.mu.Lock()
	t.occupied.removals--
	enough := t.occupied.removals >= 0 && t.occupied.bytes > 0
	t.mu.Unlock()
	if enough {
		return nil
	}
	if _, err := t.kv.Put(ctx, lastName, nil); err != nil {
		return fmt.Errorf("the newest block: %w", err)
	}
	t.mu.Lock()
	t.occupied = occupied{occupiedRemovals, occupiedBytes}
	t.mu.Unlock()
	return nil
}

// fills counts a value that is stored in a block.
func (t *Table) fills(value []byte) {
	t.mu.Lock()
	t.occupied.bytes -= len(value) + recordBytes
	t.mu.Unlock()
}
