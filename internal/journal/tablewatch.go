package journal

import (
	"context"
	"errors"
	"fmt"
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
	sub, err := t.conn.Subscribe(t.root()+">", func(*nats.Msg) {
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

// present reads the present entries. If that is late or fails, follow reads them.
func (w *tableWatch) present(ctx context.Context) error {
	var refused error
	err := w.t.present(ctx, func(m tableMessage) error {
		refused = w.tell(m)
		return refused
	})
	if err == nil || refused != nil {
		return refused
	}
	return context.Cause(ctx) // nil as a rule
}

// tell calls f with the entry of a message. One whose key is not written as ours are is left out.
func (w *tableWatch) tell(m tableMessage) error {
	w.last = m.revision
	key, ok := kvText(m.name)
	if !ok {
		return nil
	}
	e := entryOf(key, m.value, m.deleted, m.revision)
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
			if err := w.tell(w.t.message(m)); err != nil {
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
	return w.t.first(ctx, w.last)
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
