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

// join returns the window of a mirror. If it has none yet, it begins with the sequence next. leave is called
// once, when it is not used any more.
func (w *windows) join(of *journal.Mirror, next uint64, log *slog.Logger) (window *tail, leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.of[of]
	if s == nil {
		s = &sharedWindow{tail: &tail{master: of.Name, log: log, tap: func(take func([]journal.Text)) (uint64, func()) {
			return next - 1, tapMirror(of, next, take, log)
		}}}
		s.tail.join()
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
		if last {
			delete(w.of, of)
		}
		w.mu.Unlock()
		if last { // whoever joins meanwhile has a new one: this waits for the store
			s.tail.leave()
		}
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
