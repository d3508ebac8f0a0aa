package fleet

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/salt"
)

// Limits of writing grains in a cluster.
const (
	// grainsTime is how long a minion's hello waits until its grains are stored. Usually that takes
	// a millisecond; after the member that leads the table was killed, the others elect a leader for
	// four seconds or more.
	grainsTime = 250 * time.Millisecond
	// grainsPause is the pause before grains that could not be stored are written again.
	grainsPause = 500 * time.Millisecond
	// grainsAtOnce is how many are being written at a time.
	grainsAtOnce = 16
)

// laterGrains are those of minions of a cluster that are not stored yet. They count here at once,
// and the other members fetch them from this one, so targets are decided by them everywhere. Until
// they are stored, only the members that run know them; a minion says them again at its next hello.
type laterGrains struct {
	mu   sync.Mutex
	due  map[salt.MinionID]*grainsWrite
	wake chan struct{}
	logs logging.Throttle
}

// grainsWrite is one entry to write.
type grainsWrite struct {
	text   []byte
	done   chan struct{} // closed when it is stored, or something newer counts
	failed bool          // it could not be stored at once; used by writeLater
}

func newLaterGrains() *laterGrains {
	return &laterGrains{due: map[salt.MinionID]*grainsWrite{}, wake: make(chan struct{}, 1)}
}

// put has grains written, in place of older ones.
func (l *laterGrains) put(id salt.MinionID, text []byte) *grainsWrite {
	w := &grainsWrite{text: text, done: make(chan struct{})}
	l.mu.Lock()
	old := l.due[id]
	l.due[id] = w
	l.mu.Unlock()
	old.end()
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return w
}

// wait waits for a short time until the grains are stored.
func (w *grainsWrite) wait(ctx context.Context) {
	late := time.NewTimer(grainsTime)
	defer late.Stop()
	select {
	case <-w.done:
	case <-late.C:
	case <-ctx.Done():
	}
}

func (w *grainsWrite) end() {
	if w != nil {
		close(w.done)
	}
}

// drop gives up what is not stored of a minion: something newer counts.
func (l *laterGrains) drop(id salt.MinionID) {
	if l == nil {
		return
	}
	l.mu.Lock()
	old := l.due[id]
	delete(l.due, id)
	l.mu.Unlock()
	old.end()
}

// stored ends a write; false if there is a newer one.
func (l *laterGrains) stored(id salt.MinionID, w *grainsWrite) bool {
	l.mu.Lock()
	now := l.due[id] == w
	if now {
		delete(l.due, id)
	}
	l.mu.Unlock()
	if now {
		w.end()
	}
	return now
}

// waits reports whether something of a minion is not stored yet.
func (l *laterGrains) waits(id salt.MinionID) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.due[id] != nil
}

// take returns what is due. It stays due until it is stored.
func (l *laterGrains) take() map[salt.MinionID]*grainsWrite {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[salt.MinionID]*grainsWrite, len(l.due))
	for id, w := range l.due {
		all[id] = w
	}
	return all
}

// keepLater writes grains until ctx ends.
func (g *grains) keepLater(ctx context.Context, log *slog.Logger) {
	if g.later == nil {
		return
	}
	for {
		select {
		case <-g.later.wake:
		case <-ctx.Done():
			return
		}
		for !g.writeLater(ctx, log) {
			if !sleep(ctx, grainsPause) {
				return
			}
		}
	}
}

// writeLater writes what is due; false if some of it could not be written.
func (g *grains) writeLater(ctx context.Context, log *slog.Logger) bool {
	turns := make(chan struct{}, grainsAtOnce)
	var wg sync.WaitGroup
	var mu sync.Mutex
	ok := true
	for id, w := range g.later.take() {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			if g.moved(id, w) {
				g.giveUp(id, w)
				return
			}
			revision, err := g.put(ctx, id, w.text)
			if err == nil && !g.knows(id) { // its key was deleted meanwhile
				err = g.table.Delete(ctx, string(id))
			}
			if err == nil {
				g.wrote(id, w, revision)
				return
			}
			w.failed = true
			if ctx.Err() == nil {
				g.later.logs.Log(log, slog.LevelWarn, "grains", 1, "grains are not stored yet: they are known to the members that run", "minion", id, "err", err)
			}
			mu.Lock()
			defer mu.Unlock()
			ok = false
		})
	}
	wg.Wait()
	return ok
}

// knows reports whether there are grains of a minion.
func (g *grains) knows(id salt.MinionID) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	_, ok := g.byID[id]
	return ok
}
