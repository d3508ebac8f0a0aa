package journal

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/bus"
)

// decisions is the name of the table that another master may mirror: its owner's decisions
// about keys and tokens.
const decisions = "decisions"

// Decisions opens that table of this master. Like the journal's, its sequences are never used
// twice, whatever is lost: a mirror would ignore an entry with a sequence that it already has.
func (j *Journal) Decisions(ctx context.Context) (*Table, error) {
	t, err := j.Table(ctx, decisions)
	if err != nil || j.reserve == nil {
		return t, err
	}
	t.next = t.all.CachedInfo().State.LastSeq + 1
	t.reserve = func(upto uint64) error { return j.reserve(t.stream(), upto) }
	return t, nil
}

// maxDecisions limits the mirror of that table, which another master fills: some hundred
// thousand keys.
const maxDecisions = 64 << 20

// MirroredTable is the mirror of another master's table.
type MirroredTable struct {
	kv  jetstream.KeyValue
	all jetstream.Stream // the underlying stream
}

// Answered reports whether its owner has sent anything since the mirror was opened, even just a
// heartbeat.
func (t *MirroredTable) Answered(ctx context.Context) (bool, error) {
	info, err := t.all.Info(ctx)
	if err != nil {
		return false, fmt.Errorf("look at table %s: %w", t.kv.Bucket(), err)
	}
	return info.Mirror != nil && info.Mirror.Active >= 0, nil
}

// OpenDecisions opens the mirror of the decisions of a journal's owner, for the reader in of,
// and makes it if it is missing.
func OpenDecisions(ctx context.Context, nc *nats.Conn, of bus.Link) (*MirroredTable, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	bucket := decisions + "-" + of.Owner
	all, err := makeMirror(ctx, js, jetstream.StreamConfig{
		Name: "KV_" + bucket, Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
		MaxMsgsPerSubject: 1, MaxBytes: maxDecisions, AllowDirect: true, DenyDelete: true,
		Mirror: &jetstream.StreamSource{Name: bus.DecisionStream, External: &jetstream.ExternalStream{APIPrefix: of.API(), DeliverPrefix: of.Deliver()}},
	})
	if err != nil {
		return nil, fmt.Errorf("open the mirror of the decisions of %s: %w", of.Owner, storageError(err))
	}
	kv, err := js.KeyValue(ctx, bucket)
	if err != nil {
		return nil, fmt.Errorf("open the mirror of the decisions of %s: %w", of.Owner, err)
	}
	return &MirroredTable{kv, all}, nil
}

// DropDecisions removes the mirrors of the decisions of other owners than that one.
func DropDecisions(ctx context.Context, nc *nats.Conn, but string) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	names := js.StreamNames(ctx)
	for name := range names.Name() {
		owner, ok := strings.CutPrefix(name, "KV_"+decisions+"-")
		if !ok || owner == but {
			continue
		}
		if err := js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("remove the mirror of the decisions of %s: %w", owner, err)
		}
	}
	return names.Err()
}

// Watch calls f for each present entry, in the order in which they were made, and then for each
// new one, until ctx ends or the mirror cannot be read any more. The value of a removed entry
// is nil.
func (t *MirroredTable) Watch(ctx context.Context, f func(key string, value []byte)) error {
	w, err := t.kv.WatchAll(ctx)
	if err != nil {
		return fmt.Errorf("read table %s: %w", t.kv.Bucket(), err)
	}
	defer w.Stop() //nolint:errcheck // it ends with the connection at the latest
	for {
		select {
		case e, ok := <-w.Updates():
			if !ok {
				return errors.New("the mirror is no longer read")
			}
			if e == nil {
				continue // all entries that existed have come
			}
			key, ok := kvText(e.Key())
			switch {
			case !ok:
			case e.Operation() != jetstream.KeyValuePut:
				f(key, nil)
			default:
				f(key, append([]byte{}, e.Value()...))
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
