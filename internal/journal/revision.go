package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TableEntry is an entry of a table, as it is at some revision.
type TableEntry struct {
	Key   string
	Value []byte // nil if there is none, or it was deleted
	// Revision is its place in the order of everything that is stored in the table. It is 0 for
	// a key that never had an entry, or whose entry was removed without a mark.
	Revision uint64
}

// ErrChanged means that somebody else has changed the entry since the given revision: nothing was
// stored.
var ErrChanged = errors.New("the entry has been changed meanwhile")

// operation is the header of the messages that delete an entry.
const operation = "KV-Operation"

// entryOf makes the entry with this value. That of a message that deletes one is empty.
func entryOf(key string, value []byte, deleted bool, revision uint64) TableEntry {
	e := TableEntry{Key: key, Revision: revision}
	if !deleted {
		e.Value = append([]byte{}, value...)
	}
	return e
}

// Entry returns the entry under key with its revision, for Update. In a cluster the leader
// answers. That is the last write that was acknowledged anywhere, unless this leader is cut off and
// has not noticed yet: what must not rest on an older entry is confirmed, or written with Update.
func (t *Table) Entry(ctx context.Context, key string) (TableEntry, error) {
	var m *jetstream.RawStreamMsg
	err := insist(ctx, t.store, "read the table "+t.name, func(ctx context.Context) (err error) {
		m, err = t.all.GetLastMsgForSubject(ctx, t.subject(key))
		return err
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return TableEntry{Key: key}, nil
	}
	if err != nil {
		return TableEntry{}, fmt.Errorf("read %s of table %s: %w", key, t.name, err)
	}
	return entryOf(key, m.Data, deletes(m.Header), m.Sequence), nil
}

func deletes(h nats.Header) bool { return h.Get(operation) != "" }

// subject is that of the messages with this key.
func (t *Table) subject(key string) string { return t.root() + kvKey(key) }

// Create stores an entry if there is none under key, and returns its revision. Otherwise the error
// is ErrChanged.
func (t *Table) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	revision, err := t.Update(ctx, key, value, 0)
	if !errors.Is(err, ErrChanged) {
		return revision, err
	}
	e, bad := t.Entry(ctx, key)
	if bad != nil || e.Value != nil || e.Revision == 0 {
		return 0, errors.Join(err, bad)
	}
	return t.Update(ctx, key, value, e.Revision) // it was deleted
}

// Update stores an entry if the newest one under key still has the given revision, and returns the
// new one. Otherwise the error is ErrChanged. It is as durable as Keep. After any other error the
// entry may have been stored, or be stored in the next moments.
//
// The values of different writers must differ: if an answer is late, the value tells whether what
// is stored is that of this call.
func (t *Table) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if err := t.ahead(); err != nil {
		return 0, err
	}
	var now uint64
	err := t.write(ctx, func(ctx context.Context) (err error) {
		if err := t.room(value); err != nil {
			return err
		}
		now, err = t.kv.Update(ctx, kvKey(key), value, revision)
		t.gave(now)
		if isMoved(err) {
			now, err = t.moved(ctx, key, revision, func(m *jetstream.RawStreamMsg) bool { return !deletes(m.Header) && bytes.Equal(m.Data, value) })
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("store %s in table %s: %w", key, t.name, err)
	}
	return now, t.store.Sync(t.stream())
}

// moved finds out why an entry was not updated or deleted. A server that led before refuses what the leader
// stores: so the message may be the one wanted, and one that is not newer than the expected one proves nothing.
func (t *Table) moved(ctx context.Context, key string, expected uint64, wanted func(*jetstream.RawStreamMsg) bool) (uint64, error) {
	m, err := t.all.GetLastMsgForSubject(ctx, t.subject(key))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return 0, t.missing(ctx, key, expected)
	case err != nil:
		return 0, err
	case m.Sequence <= expected:
		return 0, errNoLeader
	case !wanted(m):
		return 0, ErrChanged
	}
	return m.Sequence, nil
}

// missing finds out why there is no entry where one was expected: it was removed without a mark, or the server
// that has answered lacks it, since it led before the entry was stored. One server must say that there is none
// and that it has what was stored up to there.
func (t *Table) missing(ctx context.Context, key string, expected uint64) error {
	if expected == 0 {
		return errNoLeader // it refuses to create an entry, so there must be one
	}
	info, err := leaderInfo(ctx, t.all, jetstream.WithSubjectFilter(t.subject(key)))
	switch {
	case err != nil:
		return err
	case info.State.LastSeq < expected || info.State.Subjects[t.subject(key)] > 0:
		return errNoLeader
	}
	return ErrChanged
}

// DeleteAt deletes an entry if it still has the given revision: otherwise the error is ErrChanged, unless
// it is deleted already. Like Delete, it leaves a mark, which Watch reports.
func (t *Table) DeleteAt(ctx context.Context, key string, revision uint64) error {
	err := t.write(ctx, func(ctx context.Context) error {
		if err := t.room(nil); err != nil {
			return err
		}
		err := t.kv.Purge(ctx, kvKey(key), jetstream.LastRevision(revision))
		if isMoved(err) {
			_, err = t.moved(ctx, key, revision, func(m *jetstream.RawStreamMsg) bool { return deletes(m.Header) })
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("delete %s of table %s: %w", key, t.name, err)
	}
	return t.store.Sync(t.stream())
}

// RemoveAt removes an entry, or the mark of a deleted one, unless there is a newer one than that of
// the given revision. Like Remove, it leaves no mark, and Watch does not report it.
func (t *Table) RemoveAt(ctx context.Context, key string, revision uint64) error {
	err := t.purge(ctx, key, jetstream.WithPurgeSequence(revision+1))
	if err != nil {
		return fmt.Errorf("remove %s of table %s: %w", key, t.name, err)
	}
	return nil
}

// isMoved reports whether an entry did not have the revision that was named. A stream with copies
// says so with another code, where the leader sees it before it is stored.
func isMoved(err error) bool {
	return errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch)
}
