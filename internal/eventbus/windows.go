package eventbus

import (
	"context"
	"log/slog"
	"sync"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/logging"
)

// windows are the windows of other masters' journals: one reader for all listeners of a journal, however
// many there are. The zero value is ready.
type windows struct {
	mu sync.Mutex
	of map[*journal.Mirror]*sharedWindow
}

type sharedWindow struct {
	tail  *tail
	users int
}

// join returns the window of a mirror. If it has none yet, it begins at the end of the journal: a listener who is
// far behind must not delay the others, and reads what is before the window for itself. leave is called once, when
// the window is not used any more.
func (w *windows) join(ctx context.Context, of *journal.Mirror, log *slog.Logger) (window *tail, leave func(), err error) {
	if window, leave = w.present(of, nil); window != nil {
		return window, leave, nil
	}
	last, err := of.Last(ctx)
	if err != nil {
		return nil, nil, err
	}
	window, leave = w.present(of, func() *tail {
		t := &tail{master: of.Name, log: log, tap: func(take func([]journal.Text)) (uint64, func()) {
			return last, tapMirror(of, last+1, take, log)
		}}
		t.join()
		return t
	})
	return window, leave, nil
}

// present returns the window of a mirror, if need be that of begin, and how to leave it; nil without both.
func (w *windows) present(of *journal.Mirror, begin func() *tail) (*tail, func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.of[of]
	if s == nil && begin == nil {
		return nil, nil
	}
	if s == nil {
		s = &sharedWindow{tail: begin()}
		if w.of == nil {
			w.of = map[*journal.Mirror]*sharedWindow{}
		}
		w.of[of] = s
	}
	s.users++
	return s.tail, func() {
		w.mu.Lock()
		s.users--
		last := s.users == 0
		if last && w.of[of] == s {
			delete(w.of, of)
		}
		w.mu.Unlock()
		if last { // whoever joins meanwhile has a new one: this waits for the store
			s.tail.leave()
		}
	}
}

// forget makes the next listener of a mirror begin a new window.
func (w *windows) forget(of *journal.Mirror, window *tail) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.of[of]; s != nil && s.tail == window {
		delete(w.of, of)
	}
}

// tapMirror calls take with what is stored from the sequence next on, until stop. While the mirror cannot be
// read it tries again.
func tapMirror(of *journal.Mirror, next uint64, take func([]journal.Text), log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		var throttle logging.Throttle
		for pauses := (backoff.Pauses{}); ctx.Err() == nil; {
			begun := next
			err := of.Tap(ctx, next, func(e journal.Text) {
				take([]journal.Text{e})
				next = e.Seq + 1
			})
			if ctx.Err() != nil {
				return
			}
			if next > begun {
				pauses = backoff.Pauses{}
			}
			throttle.Log(log, slog.LevelWarn, "tap", 1, "a journal cannot be read for listeners at present", "journal", of.Name, "err", err)
			backoff.Sleep(ctx, pauses.Next(mirrorPause, mirrorRest))
		}
	})
	return func() { cancel(); running.Wait() }
}
