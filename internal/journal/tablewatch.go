package journal

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
	// mostAhead is how many entries are asked for at once by a watch that is behind: one by one they would
	// come more slowly than several members store them.
	mostAhead = 32
	// largeAhead is how many bytes together are so large that the next one is asked for alone.
	largeAhead = 256 << 10
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
// The entries come from the leader of the table. A consumer would be placed at any
// member, and one whose member is slow or has just returned would not bring the newest entries.
func (t *Table) Watch(ctx context.Context, after uint64, f func(*TableEntry) error) error {
	return t.watchFrom(ctx, after, f, func() error { return nil })
}

// watchFrom is Watch that calls heard each time before it handles an answer of the leader, and ends with its error.
func (t *Table) watchFrom(ctx context.Context, after uint64, f func(*TableEntry) error, heard func() error) error {
	w := &tableWatch{t: t, first: t.first, heard: heard, last: after, f: f, hint: make(chan struct{}, 1)}
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
	first  func(ctx context.Context, after uint64) (*jetstream.RawStreamMsg, error) // of the table
	heard  func() error
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
	for ahead := 1; ; {
		list, err := w.next(ctx, ahead)
		if err == nil || errors.Is(err, jetstream.ErrMsgNotFound) {
			if bad := w.heard(); bad != nil {
				return bad
			}
		}
		size := 0
		for _, m := range list {
			size += len(m.Data)
			if bad := w.tell(w.t.message(m)); bad != nil {
				return bad
			}
		}
		if ahead = min(2*ahead, mostAhead); err != nil || size > largeAhead {
			ahead = 1
		}
		var wait time.Duration
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, jetstream.ErrStreamNotFound):
			return fmt.Errorf("watch table %s: %w", w.t.name, err)
		case len(list) > 0:
			pauses.Reset()
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

// next asks the leader for the next entries: for the first one from each of the next sequences on, at once. What
// follows a sequence without an answer is left for the next time, since more may have been stored there
// meanwhile.
func (w *tableWatch) next(ctx context.Context, ahead int) (list []*jetstream.RawStreamMsg, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	found, errs := make([]*jetstream.RawStreamMsg, ahead), make([]error, ahead)
	var asking sync.WaitGroup
	for i := range ahead {
		asking.Go(func() { found[i], errs[i] = w.first(ctx, w.last+uint64(i)) })
	}
	asking.Wait()
	last := w.last
	for i, m := range found {
		if errs[i] != nil {
			return list, errs[i]
		}
		if m.Sequence > last { // it may be the answer for several sequences
			list, last = append(list, m), m.Sequence
		}
	}
	return list, nil
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
