package journal

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// rollup is a bucket without copies, whose entries replace older ones by a rollup of their subject.
//
// What the limit of messages for each subject removes is nowhere recorded by the server (nats-server 2.15.2): after a kill, when
// it reads all blocks, it finds the replaced entry and removes it again since there is a newer one. If the newer one has
// been removed meanwhile, the older one would be back. For what a rollup removes there is a record. So the limit leaves
// room for more, and removes nothing.
//
// A table with copies has none of this: on a full disk the server would wait forever for its own lock, since it writes the entry, too,
// only with that record, and no member can reserve space on the disks of the others. It needs none either: the latest snapshot of
// its Raft group says what was gone then, and the log of the group has each removal since, which the server does again.
type rollup struct {
	jetstream.KeyValue
	js   jetstream.JetStream
	root string // of the subjects
}

// perSubject is the limit of a table without copies. An entry and its predecessor may both be left of a kill between the
// two steps, until the next entry replaces both.
const perSubject = 64

// openBucket opens the bucket of this name; the error is jetstream.ErrBucketNotFound if there is none.
func openBucket(ctx context.Context, js jetstream.JetStream, name string, copies int) (jetstream.KeyValue, error) {
	kv, err := js.KeyValue(ctx, name)
	if err != nil || copies > 0 {
		return kv, err
	}
	return &rollup{kv, js, tableRoot(name)}, nil
}

// Put implements jetstream.KeyValue.
func (r *rollup) Put(ctx context.Context, key string, value []byte) (uint64, error) {
	return r.put(ctx, key, value)
}

// Update implements jetstream.KeyValue.
func (r *rollup) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	now, err := r.put(ctx, key, value, jetstream.WithExpectLastSequencePerSubject(revision))
	if isSequence(err) {
		err = fmt.Errorf("%w: %w", err, jetstream.ErrKeyRevisionMismatch)
	}
	return now, err
}

func (r *rollup) put(ctx context.Context, key string, value []byte, opts ...jetstream.PublishOpt) (uint64, error) {
	m := &nats.Msg{Subject: r.root + key, Data: value, Header: nats.Header{jetstream.MsgRollup: {jetstream.MsgRollupSubject}}}
	ack, err := r.js.PublishMsg(ctx, m, opts...)
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

var errNoRollup = errors.New("a table has no such write")

// Create, PutString and Delete would write without a rollup.
func (*rollup) Create(context.Context, string, []byte, ...jetstream.KVCreateOpt) (uint64, error) {
	return 0, errNoRollup
}

// PutString implements jetstream.KeyValue.
func (*rollup) PutString(context.Context, string, string) (uint64, error) { return 0, errNoRollup }

// Delete implements jetstream.KeyValue.
func (*rollup) Delete(context.Context, string, ...jetstream.KVDeleteOpt) error { return errNoRollup }
