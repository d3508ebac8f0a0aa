package journal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/backoff"
)

const (
	// lookTime is how long Watch waits for an answer before it asks again: during an election
	// nobody answers.
	lookTime = time.Second
	// An entry is announced before it is stored, so Watch asks several times, with growing pauses
	// between these. The longest is also how often it asks if it hears of nothing.
	minLook = 2 * time.Millisecond
	maxLook = time.Second
	// leaderless is the pause where nobody can answer.
	leaderless = 100 * time.Millisecond
)

// Watch calls f for each entry that is newer than the given revision, in their order, deleted ones
// included: first for the present ones, then with nil, since all that were stored when it began have
// come, and then for each new one. An entry that is replaced before it is read is left out, as is
// what is removed without a mark. After 0, that is everything.
//
// Elections and lost connections only delay it. It returns when ctx ends, f returns an error, the
// table no longer exists, or the connection is closed; the caller may begin again after the last
// revision.
//
// The entries come from the leader of the table, one by one. A consumer would be placed at any
// member, and one whose member is slow or has just returned would not bring the newest entries.
func (t *Table) Watch(ctx context.Context, after uint64, f func(*TableEntry) error) error {
	w := &tableWatch{t: t, last: after, f: f, hint: make(chan struct{}, 1)}
	sub, err := t.conn.Subscribe("$KV."+t.name+".>", func(*nats.Msg) {
		select {
		case w.hint <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return fmt.Errorf("watch table %s: %w", t.name, err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // this fails only if the connection has ended
	if after == 0 {
		if err := w.present(ctx); err != nil {
			return err
		}
	}
	return w.follow(ctx)
}

// tableWatch is a Watch that is under way.
type tableWatch struct {
	t      *Table
	last   uint64 // the newest revision that f was called with
	f      func(*TableEntry) error
	marked bool          // f was called with nil
	hint   chan struct{} // something is being stored
}

// present reads the present entries with a consumer, which is quick. If that stops before the end,
// or the consumer lacks the newest ones, follow reads the rest.
func (w *tableWatch) present(ctx context.Context) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	all, err := w.t.watch(inner)
	if err != nil {
		return nil //nolint:nilerr // follow begins at the first entry then
	}
	defer all.Stop() //nolint:errcheck // it ends with the connection at the latest
	late := time.NewTimer(lookTime)
	defer late.Stop()
	for {
		select {
		case e := <-all.Updates(): // nil if it has ended, too
			if e == nil {
				return nil
			}
			if err := w.tell(e.Key(), e.Value(), e.Operation() != jetstream.KeyValuePut, e.Revision()); err != nil {
				return err
			}
			late.Reset(lookTime)
		case <-late.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tell calls f with the entry of a message. One whose key is not written as ours are is left out.
func (w *tableWatch) tell(name string, value []byte, deleted bool, revision uint64) error {
	w.last = revision
	key, ok := kvText(name)
	if !ok {
		return nil
	}
	e := entryOf(key, value, deleted, revision)
	return w.f(&e)
}

// follow reads each next entry from the leader.
func (w *tableWatch) follow(ctx context.Context) error {
	var pauses backoff.Pauses
	for {
		m, err := w.next(ctx)
		var wait time.Duration
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, jetstream.ErrStreamNotFound):
			return fmt.Errorf("watch table %s: %w", w.t.name, err)
		case err == nil:
			pauses.Reset()
			if err := w.tell(strings.TrimPrefix(m.Subject, "$KV."+w.t.name+"."), m.Data, deletes(m.Header), m.Sequence); err != nil {
				return err
			}
			continue
		case !errors.Is(err, jetstream.ErrMsgNotFound):
			wait = leaderless
		case !w.marked:
			w.marked = true
			if err := w.f(nil); err != nil {
				return err
			}
			continue
		default:
			wait = pauses.Next(minLook, maxLook)
		}
		if w.hinted(ctx, wait) {
			pauses.Reset()
		}
	}
}

// next asks the leader for the next entry.
func (w *tableWatch) next(ctx context.Context) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	return w.t.all.GetMsg(ctx, w.last+1, jetstream.WithGetMsgSubject(">"))
}

// hinted waits, and reports whether something is being stored.
func (w *tableWatch) hinted(ctx context.Context, wait time.Duration) bool {
	pause := time.NewTimer(wait)
	defer pause.Stop()
	select {
	case <-w.hint:
		return true
	case <-pause.C:
	case <-ctx.Done():
	}
	return false
}
