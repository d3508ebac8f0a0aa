package journal

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// tableMessage is a message of a table: an entry, or the mark of a deleted one.
type tableMessage struct {
	name     string // of the entry, as it is in the subject
	value    []byte
	deleted  bool
	revision uint64
}

// present calls f for all messages of the table, in the order of their revisions. It fails if nothing
// comes for that long.
//
// A consumer brings them quickly, but as a member has them that may have just returned, and it leaves
// out what is replaced while it reads. So the leader is asked what there is besides, and what no longer is.
func (t *Table) present(ctx context.Context, limit time.Duration, f func(tableMessage) error, opts ...jetstream.WatchOpt) error {
	if t.all.CachedInfo().Config.Replicas <= 1 {
		last, err := t.consumed(ctx, limit, f, opts...)
		if err != nil {
			return err
		}
		now, err := t.state(ctx)
		if err != nil {
			return err
		}
		return t.newer(ctx, last, now.LastSeq, f)
	}
	found := map[string]tableMessage{}
	keep := func(m tableMessage) error {
		found[m.name] = m
		return nil
	}
	last, err := t.consumed(ctx, limit, keep, opts...)
	if err != nil {
		return err
	}
	now, err := t.state(ctx, jetstream.WithSubjectFilter(">"))
	if err != nil {
		return err
	}
	maps.DeleteFunc(found, func(name string, _ tableMessage) bool { return now.Subjects[t.root()+name] == 0 })
	if err := t.newer(ctx, last, now.LastSeq, keep); err != nil {
		return err
	}
	for _, m := range slices.SortedFunc(maps.Values(found), func(a, b tableMessage) int { return cmp.Compare(a.revision, b.revision) }) {
		if err := f(m); err != nil {
			return err
		}
	}
	return nil
}

// root begins the subjects of the table.
func (t *Table) root() string { return "$KV." + t.name + "." }

// consumed calls f for the messages that a consumer brings.
func (t *Table) consumed(ctx context.Context, limit time.Duration, f func(tableMessage) error, opts ...jetstream.WatchOpt) (last uint64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := t.watch(ctx, opts...)
	if err != nil {
		return 0, err
	}
	defer w.Stop() //nolint:errcheck // it ends with the connection at the latest
	late := time.NewTimer(limit)
	defer late.Stop()
	for {
		select {
		case e, more := <-w.Updates():
			if !more {
				return 0, nats.ErrConnectionClosed
			}
			if e == nil { // all that the member has that was asked
				return last, nil
			}
			last = e.Revision()
			if err := f(tableMessage{e.Key(), e.Value(), e.Operation() != jetstream.KeyValuePut, last}); err != nil {
				return 0, err
			}
			late.Reset(limit)
		case <-late.C: // if something is missing, the library asks again by itself
			return 0, errLate
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// state returns the state of the underlying stream, as its leader has it.
func (t *Table) state(ctx context.Context, opts ...jetstream.StreamInfoOpt) (s jetstream.StreamState, err error) {
	err = insist(ctx, t.store, "read the table "+t.name, func(ctx context.Context) error {
		info, err := leaderInfo(ctx, t.all, opts...)
		if err == nil {
			s = info.State
		}
		return err
	})
	return s, err
}

// newer calls f for the messages after a revision, one by one as the leader has them, up to another one
// at least.
func (t *Table) newer(ctx context.Context, last, end uint64, f func(tableMessage) error) error {
	for last < end {
		var m *jetstream.RawStreamMsg
		err := insist(ctx, t.store, "read the table "+t.name, func(ctx context.Context) (err error) {
			m, err = t.first(ctx, last)
			return err
		})
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		last = m.Sequence
		if err := f(t.message(m)); err != nil {
			return err
		}
	}
	return nil
}

// first asks the leader for the first message after a revision.
func (t *Table) first(ctx context.Context, after uint64) (*jetstream.RawStreamMsg, error) {
	return t.all.GetMsg(ctx, after+1, jetstream.WithGetMsgSubject(">"))
}

// message reads a message of the underlying stream.
func (t *Table) message(m *jetstream.RawStreamMsg) tableMessage {
	return tableMessage{strings.TrimPrefix(m.Subject, t.root()), m.Data, deletes(m.Header), m.Sequence}
}
