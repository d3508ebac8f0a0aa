package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/event"
)

// Table is a small map that lives in the journal: the facts of minions, say. Keys
// may be any text.
type Table struct {
	kv    jetstream.KeyValue
	store Store
	all   jetstream.Stream // which holds it
}

// stream is the name of that.
func (t *Table) stream() string { return "KV_" + t.kv.Bucket() }

// tableWindow is how long a table remembers ids, which nobody gives it.
const tableWindow = 2 * time.Minute

// Table opens the map of this name, made of letters, making it when missing. A start opens many
// of them: it insists on an answer, and one that is as it is to be is not updated.
func (j *Journal) Table(ctx context.Context, name string) (*Table, error) {
	t := &Table{store: j.writer.store}
	var err error
	t.all, err = openStream(ctx, j.js, t.store, "KV_"+name, func(c *jetstream.StreamConfig) {
		c.Subjects, c.MaxMsgsPerSubject, c.Storage, c.Replicas, c.Duplicates = []string{"$KV." + name + ".>"}, 1, jetstream.FileStorage, 1, tableWindow
		c.MaxMsgs, c.MaxBytes, c.MaxMsgSize, c.MaxConsumers, c.Discard = -1, -1, -1, -1, jetstream.DiscardNew
		c.AllowRollup, c.DenyDelete, c.AllowDirect = true, true, true
	})
	if err != nil {
		return nil, fmt.Errorf("open the table %s: %w", name, err)
	}
	err = insist(ctx, t.store, "open the table "+name, func(ctx context.Context) (err error) {
		t.kv, err = j.js.KeyValue(ctx, name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open the table %s: %w", name, err)
	}
	return t, nil
}

// write calls f, which writes the table, unless the store cannot be written. If that turns out
// meanwhile f is ended: the server leaves it without an answer.
func (t *Table) write(ctx context.Context, f func(context.Context) error) error {
	failed := t.store.Failed()
	if err := t.store.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	defer close(ended)
	defer cancel(nil)
	go func() {
		select {
		case <-failed:
			cancel(ErrStore)
		case <-ended:
		}
	}()
	err := f(ctx)
	if err != nil && errors.Is(context.Cause(ctx), ErrStore) {
		return fmt.Errorf("%w: %w", ErrStore, cmp.Or(t.store.Err(), err))
	}
	return err
}

// Keep is Put of what must survive a power cut as an event does: it returns when it is on
// the disk, where that is waited for.
func (t *Table) Keep(ctx context.Context, key string, value []byte) error {
	if err := t.Put(ctx, key, value); err != nil {
		return err
	}
	return t.store.Sync(t.stream())
}

// Put stores value under key. A kill does not lose it; a power cut may take it back
// within the next second.
func (t *Table) Put(ctx context.Context, key string, value []byte) error {
	err := t.write(ctx, func(ctx context.Context) error {
		_, err := t.kv.Put(ctx, kvKey(key), value)
		return err
	})
	if err != nil {
		return fmt.Errorf("store %s in table %s: %w", key, t.kv.Bucket(), err)
	}
	t.store.Soon(t.stream())
	return nil
}

// Get returns the value under key, nil where there is none.
func (t *Table) Get(ctx context.Context, key string) ([]byte, error) {
	var e jetstream.KeyValueEntry
	err := insist(ctx, t.store, "read a table: "+t.kv.Bucket(), func(ctx context.Context) (err error) {
		e, err = t.kv.Get(ctx, kvKey(key))
		return err
	})
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s of table %s: %w", key, t.kv.Bucket(), err)
	}
	return e.Value(), nil
}

// Delete forgets key, also where it is not there, as Keep keeps it: what was revoked does
// not come back.
func (t *Table) Delete(ctx context.Context, key string) error {
	if err := t.write(ctx, func(ctx context.Context) error { return t.kv.Purge(ctx, kvKey(key)) }); err != nil {
		return fmt.Errorf("delete %s of table %s: %w", key, t.kv.Bucket(), err)
	}
	return t.store.Sync(t.stream())
}

// Remove is Delete that leaves no mark: for keys that never come again, of which there
// are many.
func (t *Table) Remove(ctx context.Context, key string) error {
	err := t.write(ctx, func(ctx context.Context) error {
		return t.all.Purge(ctx, jetstream.WithPurgeSubject("$KV."+t.kv.Bucket()+"."+kvKey(key)))
	})
	if err != nil {
		return fmt.Errorf("remove %s of table %s: %w", key, t.kv.Bucket(), err)
	}
	return nil
}

// Each calls f for every entry, in no order. It is for small values: some hundred are
// under way at a time.
func (t *Table) Each(ctx context.Context, f func(key string, value []byte)) error {
	return t.each(ctx, func(key string, e jetstream.KeyValueEntry) { f(key, e.Value()) })
}

// Keys returns the keys, in no order, without reading the values.
func (t *Table) Keys(ctx context.Context) (keys []string, err error) {
	err = t.each(ctx, func(key string, _ jetstream.KeyValueEntry) { keys = append(keys, key) }, jetstream.MetaOnly())
	return keys, err
}

func (t *Table) each(ctx context.Context, f func(key string, e jetstream.KeyValueEntry), opts ...jetstream.WatchOpt) error {
	w, err := t.kv.WatchAll(ctx, append(opts, jetstream.IgnoreDeletes())...)
	if err != nil {
		return fmt.Errorf("read table %s: %w", t.kv.Bucket(), err)
	}
	defer w.Stop() //nolint:errcheck // it ends with the connection at the latest
	for {
		select {
		case e := <-w.Updates():
			if e == nil {
				return nil // everything that was there has come
			}
			if key, ok := kvText(e.Key()); ok {
				f(key, e)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// kvKey writes any text as a key, whose alphabet has = but no percent sign.
func kvKey(s string) string { return swap(event.Escape(s), '%', '=') }

func kvText(key string) (string, bool) { return event.Unescape(swap(key, '=', '%')) }

func swap(s string, from, to byte) string {
	b := []byte(s)
	for i := range b {
		if b[i] == from {
			b[i] = to
		}
	}
	return string(b)
}
