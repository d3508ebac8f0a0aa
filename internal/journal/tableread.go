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
	until    bool // it is a mark that says until when it stays, see DeleteUntil
	at       time.Time
	revision uint64
}

// Limits of what read keeps in memory. A table with more is read one by one, which takes longer.
const (
	maxKept      = 50_000
	maxKeptBytes = 64 << 20
)

// maxBehind is how many entries newer than the end of the table at its beginning a reading follows.
const maxBehind = 10_000

var (
	errLarge = errors.New("the table is too large to be kept in memory")
	errFast  = errors.New("the table changes faster than it is read")
)

// kept are messages of a table, the newest one of each name.
type kept struct {
	marks  bool // marks are kept, too
	byName map[string]tableMessage
	bytes  int
}

func (k *kept) add(m tableMessage) error {
	if m.deleted && !k.marks {
		if old, there := k.byName[m.name]; there {
			k.bytes -= len(old.name) + len(old.value)
			delete(k.byName, m.name)
		}
		return nil
	}
	k.bytes += len(m.name) + len(m.value) - len(k.byName[m.name].value)
	k.byName[m.name] = m
	if len(k.byName) > maxKept || k.bytes > maxKeptBytes {
		return errLarge
	}
	return nil
}

// entries is present without the marks of deleted entries, of which there may be many. It returns the newest revision,
// marks included.
func (t *Table) entries(ctx context.Context, f func(tableMessage) error, opts ...jetstream.WatchOpt) (last uint64, err error) {
	err = t.read(ctx, false, func(m tableMessage) { last = max(last, m.revision) }, func(m tableMessage) error {
		if m.deleted {
			return nil
		}
		return f(m)
	}, opts...)
	return last, err
}

// present calls f for all messages of the table, in the order of their revisions.
func (t *Table) present(ctx context.Context, f func(tableMessage) error) error {
	return t.read(ctx, true, func(tableMessage) {}, f)
}

// read calls f for all messages of the table, in the order of their revisions, with marks or without. seen is called with
// all that come, in any order.
//
// A consumer brings them quickly, but as a member has them that may have just returned, and it leaves
// out what is replaced while it reads. So the leader is asked what there is besides, and what no longer is.
func (t *Table) read(ctx context.Context, marks bool, seen func(tableMessage), f func(tableMessage) error, opts ...jetstream.WatchOpt) error {
	tell := func(m tableMessage) error { seen(m); return f(m) }
	if t.all.CachedInfo().Config.Replicas <= 1 {
		last, err := t.consumed(ctx, tell, opts...)
		if err != nil {
			return err
		}
		return t.newer(ctx, last, tell)
	}
	found := kept{marks: marks, byName: map[string]tableMessage{}}
	add := func(m tableMessage) error { seen(m); return found.add(m) }
	last, err := t.consumed(ctx, add, opts...)
	if err == nil {
		err = t.newer(ctx, last, add)
	}
	if errors.Is(err, errLarge) {
		return t.newer(ctx, 0, tell)
	}
	if err != nil {
		return err
	}
	now, err := t.state(ctx, last, jetstream.WithSubjectFilter(">"))
	if err != nil {
		return err
	}
	maps.DeleteFunc(found.byName, func(name string, _ tableMessage) bool { return now.Subjects[t.root()+name] == 0 })
	for _, m := range slices.SortedFunc(maps.Values(found.byName), func(a, b tableMessage) int { return cmp.Compare(a.revision, b.revision) }) {
		if err := f(m); err != nil {
			return err
		}
	}
	return nil
}

// root begins the subjects of the table.
func (t *Table) root() string { return tableRoot(t.name) }

func tableRoot(name string) string { return "$KV." + name + "." }

// consumed calls f for the messages that a consumer brings, and returns the last revision. It ends if
// nothing comes any more: the last one may have been removed, or the member is not reached.
func (t *Table) consumed(ctx context.Context, f func(tableMessage) error, opts ...jetstream.WatchOpt) (last uint64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := t.watch(ctx, opts...)
	if err != nil {
		return 0, err
	}
	defer func() {
		_ = w.Stop() // it ends with the connection at the latest
		go func() {
			for range w.Updates() { //nolint:revive // until it is closed: the library waits until what it has read is taken
			}
		}()
	}()
	late := time.NewTimer(lookTime)
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
			if err := f(tableMessage{e.Key(), e.Value(), e.Operation() != jetstream.KeyValuePut, e.Operation() == jetstream.KeyValueDelete, e.Created(), last}); err != nil {
				return 0, err
			}
			late.Reset(lookTime)
		case <-late.C:
			return last, nil
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// state returns the state of the underlying stream, as its leader has it. The revision least is known to be
// stored: a server that lacks it leads no more.
func (t *Table) state(ctx context.Context, least uint64, opts ...jetstream.StreamInfoOpt) (s jetstream.StreamState, err error) {
	err = insist(ctx, t.store, "read the table "+t.name, func(ctx context.Context) error {
		info, err := leaderInfo(ctx, t.all, opts...)
		if err == nil && info.State.LastSeq < least {
			err = errNoLeader // it is one no more
		}
		if err == nil {
			s = info.State
		}
		return err
	})
	return s, err
}

// newer calls f for the messages after a revision, one by one as the leader has them, until there are
// no more: of one that is replaced meanwhile, the newer one follows.
func (t *Table) newer(ctx context.Context, last uint64, f func(tableMessage) error) error {
	begun, err := t.state(ctx, last)
	for err == nil {
		var m *jetstream.RawStreamMsg
		err = insist(ctx, t.store, "read the table "+t.name, func(ctx context.Context) (err error) {
			m, err = t.first(ctx, last)
			return err
		})
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			return nil
		case err != nil:
		case m.Sequence > begun.LastSeq+maxBehind:
			err = errFast
		default:
			last = m.Sequence
			err = f(t.message(m))
		}
	}
	return err
}

// first asks the leader for the first message after a revision.
func (t *Table) first(ctx context.Context, after uint64) (*jetstream.RawStreamMsg, error) {
	return t.all.GetMsg(ctx, after+1, jetstream.WithGetMsgSubject(">"))
}

// message reads a message of the underlying stream.
func (t *Table) message(m *jetstream.RawStreamMsg) tableMessage {
	return tableMessage{strings.TrimPrefix(m.Subject, t.root()), m.Data, deletes(m.Header), m.Header.Get(operation) == untilMark, m.Time, m.Sequence}
}
