package journal

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// trimmed is a bucket with copies, whose entries replace older ones later: they stay until a purge of their subject removes
// them, of which there is a record (see rollup). One of trimOneIn writes does that. Nobody has to count so that the older values stay
// few, whichever members write an entry, and however often these are started anew.
//
// A rollup would do so with each write, but not here: on a full disk the server would wait forever for its own lock,
// since it writes the entry, too, only with that record, and no member can reserve space on the disks of the others.
//
// With all members running none of this matters: the latest snapshot of the Raft group says what was gone then, and its log has
// each removal since, which the server does again. It is for a store that is opened without the group, as one that is left of a cluster.
// There a member may still lack the record of what was removed while it was away: of what a snapshot of the leader says, the server makes none.
type trimmed struct {
	jetstream.KeyValue
	stream jetstream.Stream
	root   string // of the subjects
}

const (
	// trimOneIn is how many values an entry that is replaced often has on average.
	trimOneIn = 4
	// trimTime is how long a write waits for the purge, which the next ones make up for.
	trimTime = time.Second
	// perTrimmed is the limit of a table with copies. No entry reaches it by chance: the odds are 1 to 10^31 for each write.
	perTrimmed = 256
)

// Put implements jetstream.KeyValue.
func (k *trimmed) Put(ctx context.Context, key string, value []byte) (uint64, error) {
	revision, err := k.KeyValue.Put(ctx, key, value)
	if err == nil {
		k.trim(ctx, key, revision)
	}
	return revision, err
}

// Update implements jetstream.KeyValue.
func (k *trimmed) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	now, err := k.KeyValue.Update(ctx, key, value, revision)
	if err == nil && revision > 0 {
		k.trim(ctx, key, now)
	}
	return now, err
}

// trim removes the values of an entry that are older than this revision, now and then. Those of one that is never removed may stay.
//
// The purge names the revision, not how many values are kept: so a server that reads it again in the log of the Raft group, when
// it has newer values, removes the same ones.
func (k *trimmed) trim(ctx context.Context, key string, revision uint64) {
	if key == lastName || rand.N(trimOneIn) > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, trimTime)
	defer cancel()
	_ = k.stream.Purge(ctx, jetstream.WithPurgeSubject(k.root+key), jetstream.WithPurgeSequence(revision)) // the entry is stored
}
