package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/event"
)

// Table is a small key-value map in the journal, for the facts of minions for example. Keys may
// be any text.
type Table struct {
	name  string
	kv    jetstream.KeyValue
	store Store
	all   jetstream.Stream // the underlying stream
	conn  *nats.Conn

	// reserve, if not nil, records that sequences may be used; mu guards next, the next
	// sequence, and the value up to which it was called.
	reserve        func(upto uint64) error
	mu             sync.Mutex
	next, reserved uint64
}

// Name returns the name of the table.
func (t *Table) Name() string { return t.name }

// Created returns when the table was made, the same at all members. Revisions of another table of this
// name, which was made at another time, mean nothing in this one.
func (t *Table) Created() time.Time { return t.all.CachedInfo().Created }

// stream is the name of the underlying stream.
func (t *Table) stream() string { return tablePrefix + t.name }

// tableWindow is the duplicate window of a table, which gets no message ids.
const tableWindow = 2 * time.Minute

// bucketPause is the pause before a table is looked for again that was made just now.
const bucketPause = 20 * time.Millisecond

// Table opens the table of this name, made of letters, and makes it if it is missing. A start
// opens many of them: it waits longer for an answer, and a table with the right settings is not
// updated.
func (j *Journal) Table(ctx context.Context, name string) (*Table, error) {
	return j.openTable(ctx, name, func(c *jetstream.StreamConfig) { configureTable(c, name, j.copies) })
}

// configureTable makes the settings of the stream of a table.
func configureTable(c *jetstream.StreamConfig, name string, copies int) {
	c.Subjects, c.MaxMsgsPerSubject, c.Storage, c.Replicas, c.Duplicates = []string{tableRoot(name) + ">"}, perSubject, jetstream.FileStorage, 1, tableWindow
	c.MaxMsgs, c.MaxBytes, c.MaxMsgSize, c.MaxConsumers, c.Discard = -1, -1, -1, -1, jetstream.DiscardNew
	c.AllowRollup, c.DenyDelete, c.AllowDirect = true, true, true
	if copies > 0 {
		// Only the leader answers: a copy elsewhere may lack what was just written, a
		// refusal for example.
		c.Replicas, c.AllowDirect = copies, false
		c.MaxMsgsPerSubject = 1
	}
}

func (j *Journal) openTable(ctx context.Context, name string, configure func(*jetstream.StreamConfig)) (*Table, error) {
	t := &Table{name: name, store: j.writer.store, conn: j.js.Conn()}
	var err error
	t.all, err = openStream(ctx, j.js, t.store, tablePrefix+name, configure)
	if err != nil {
		return nil, fmt.Errorf("open the table %s: %w", name, err)
	}
	err = insist(ctx, t.store, "open the table "+name, func(ctx context.Context) (err error) {
		t.kv, err = openBucket(ctx, j.js, name, j.copies)
		for errors.Is(err, jetstream.ErrBucketNotFound) && backoff.Sleep(ctx, bucketPause) { // it exists, but a member that has just begun to lead may not know that yet
			t.kv, err = openBucket(ctx, j.js, name, j.copies)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open the table %s: %w", name, err)
	}
	return t, nil
}

// OwnTable opens the table of this name of this member alone, for what is about its own
// journal. Without a cluster it is the same as Table, but is marked, so that it becomes
// such a table when the master becomes a member.
func (j *Journal) OwnTable(ctx context.Context, name string) (*Table, error) {
	if j.copies == 0 {
		return j.openTable(ctx, name, func(c *jetstream.StreamConfig) {
			configureTable(c, name, 0)
			markOwn(c)
		})
	}
	t, err := j.Table(ctx, name+"-"+j.member)
	if err == nil {
		j.led.add(t.all)
	}
	return t, err
}

// PeerTable opens the OwnTable of this name of another member, for reading; nil if they have none.
func (j *Journal) PeerTable(ctx context.Context, name, member string) (*Table, error) {
	t := &Table{name: name + "-" + member, store: j.writer.store, conn: j.js.Conn()}
	err := insist(ctx, t.store, "open the table "+t.name, func(ctx context.Context) (err error) {
		if t.all, err = j.js.Stream(ctx, t.stream()); err == nil {
			t.kv, err = openBucket(ctx, j.js, t.name, j.copies)
		}
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the table %s: %w", t.name, err)
	}
	return t, nil
}

// write calls f, which writes the table and may do so twice, unless the store cannot be
// written. If the store fails meanwhile, f is cancelled: the server does not answer it.
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
	err := insist(ctx, t.store, "write the table "+t.name, f)
	if err != nil && errors.Is(context.Cause(ctx), ErrStore) {
		return fmt.Errorf("%w: %w", ErrStore, cmp.Or(t.store.Err(), err))
	}
	return err
}

// Keep is Put for entries that must survive a power cut like an event: with journal_sync always
// it returns when the entry is on the disk.
func (t *Table) Keep(ctx context.Context, key string, value []byte) error {
	_, err := t.Store(ctx, key, value)
	return err
}

// Store is Keep, and returns the revision of the entry.
func (t *Table) Store(ctx context.Context, key string, value []byte) (revision uint64, err error) {
	if revision, err = t.Set(ctx, key, value); err != nil {
		return 0, err
	}
	return revision, t.store.Sync(t.stream())
}

// Put stores value under key. A kill does not lose it; a power cut within the next second may.
func (t *Table) Put(ctx context.Context, key string, value []byte) error {
	_, err := t.Set(ctx, key, value)
	return err
}

// Set is Put, and returns the revision of the entry.
func (t *Table) Set(ctx context.Context, key string, value []byte) (revision uint64, err error) {
	if err := t.ahead(); err != nil {
		return 0, err
	}
	err = t.write(ctx, func(ctx context.Context) (err error) {
		if err := t.room(value); err != nil {
			return err
		}
		revision, err = t.kv.Put(ctx, kvKey(key), value)
		t.gave(revision)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("store %s in table %s: %w", key, t.name, err)
	}
	t.store.Soon(t.stream())
	return revision, nil
}

// ahead reserves the sequence of the next entry, which is known only approximately.
func (t *Table) ahead() error {
	if t.reserve == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next+reserveLeft <= t.reserved {
		return nil
	}
	if err := t.reserve(t.next + reserveStep); err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	t.reserved = t.next + reserveStep
	return nil
}

func (t *Table) gave(seq uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next = max(t.next, seq+1)
}

// Get returns the value under key, nil if there is none.
func (t *Table) Get(ctx context.Context, key string) ([]byte, error) {
	return t.get(ctx, key, t.kv.Get)
}

// get returns the value that read finds, which may be called several times.
func (t *Table) get(ctx context.Context, key string, read func(ctx context.Context, key string) (jetstream.KeyValueEntry, error)) ([]byte, error) {
	var e jetstream.KeyValueEntry
	err := insist(ctx, t.store, "read the table "+t.name, func(ctx context.Context) (err error) {
		e, err = read(ctx, kvKey(key))
		return err
	})
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s of table %s: %w", key, t.name, err)
	}
	return e.Value(), nil
}

// Delete removes key, if it exists, as durably as Keep: what was revoked does not come back.
func (t *Table) Delete(ctx context.Context, key string) error {
	err := t.write(ctx, func(ctx context.Context) error {
		if err := t.room(nil); err != nil {
			return err
		}
		return t.kv.Purge(ctx, kvKey(key))
	})
	if err != nil {
		return fmt.Errorf("delete %s of table %s: %w", key, t.name, err)
	}
	return t.store.Sync(t.stream())
}

// room makes sure that the disk has room for a message with this value and for the record of what it replaces: without
// it, the server would never answer again.
func (t *Table) room(value []byte) error {
	if err := t.store.Room(t.stream(), 1+uint64(len(value)/recordBytes)); err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	return nil
}

// Remove is Delete without a delete marker: for the many keys that are never used again.
func (t *Table) Remove(ctx context.Context, key string) error {
	err := t.purge(ctx, key)
	if err != nil {
		return fmt.Errorf("remove %s of table %s: %w", key, t.name, err)
	}
	return nil
}

// purge removes the message of a key, with what purge has besides.
func (t *Table) purge(ctx context.Context, key string, more ...jetstream.StreamPurgeOpt) error {
	return t.write(ctx, func(ctx context.Context) error {
		if err := t.occupy(ctx); err != nil {
			return err
		}
		return purge(ctx, t.store, t.all, 1, append(more, jetstream.WithPurgeSubject(t.subject(key)))...)
	})
}

// Each calls f for every entry, in the order of their revisions. It is for small values: many are in memory
// at once. What was written before the call is taken into account; what is written meanwhile may be, and
// f may be called twice with an entry that is stored anew meanwhile, the newer value last.
func (t *Table) Each(ctx context.Context, f func(key string, value []byte)) error {
	return t.each(ctx, f)
}

// Entries is Each with the revisions. It returns the newest one, after which Watch goes on: deleted entries count, too.
func (t *Table) Entries(ctx context.Context, f func(TableEntry)) (last uint64, err error) {
	last, err = t.entries(ctx, func(m tableMessage) error {
		if key, ok := kvText(m.name); ok {
			f(entryOf(key, m.value, false, m.revision))
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("read table %s: %w", t.name, err)
	}
	return last, nil
}

// Keys returns the keys, sorted, without reading the values.
func (t *Table) Keys(ctx context.Context) (keys []string, err error) {
	err = t.each(ctx, func(key string, _ []byte) { keys = append(keys, key) }, jetstream.MetaOnly())
	slices.Sort(keys)
	return slices.Compact(keys), err
}

func (t *Table) each(ctx context.Context, f func(key string, value []byte), opts ...jetstream.WatchOpt) error {
	_, err := t.entries(ctx, func(m tableMessage) error {
		if key, ok := kvText(m.name); ok {
			f(key, m.value)
		}
		return nil
	}, opts...)
	if err != nil {
		return fmt.Errorf("read table %s: %w", t.name, err)
	}
	return nil
}

// watch starts to read the table. The watcher ends with ctx.
func (t *Table) watch(ctx context.Context, opts ...jetstream.WatchOpt) (w jetstream.KeyWatcher, err error) {
	err = insist(ctx, t.store, "read the table "+t.name, func(once context.Context) error {
		life, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(once, cancel)
		var err error
		w, err = t.kv.WatchAll(life, opts...)
		if !stop() && once.Err() != nil {
			return once.Err()
		}
		if err != nil {
			cancel()
		}
		return err
	})
	return w, err
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
