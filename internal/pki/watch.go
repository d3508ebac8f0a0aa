package pki

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watchPause gathers the changes of one command, such as the acceptance of a
// thousand keys, into few signals.
const watchPause = 10 * time.Millisecond

// Watch sends on the channel after keys changed, whoever changed them. Signals
// are gathered: one may stand for many changes, and none is lost, so the
// receiver looks at the whole store each time. The channel is closed when ctx
// has ended and nothing of the watch is running any more.
func (s *Store) Watch(ctx context.Context, log *slog.Logger) (<-chan struct{}, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch key directory %s: %w", s.dir, err)
	}
	for _, dir := range s.watched() {
		if err := watcher.Add(dir); err != nil {
			watcher.Close()
			return nil, fmt.Errorf("watch key directory %s: %w", dir, err)
		}
	}
	changed := make(chan struct{}, 1)
	go func() {
		defer close(changed)
		defer watcher.Close()
		s.pass(ctx, watcher, changed, log)
	}()
	return changed, nil
}

// watched lists the directory of the store, too: in it the state directories
// may be replaced, by a restored backup for example.
func (s *Store) watched() []string {
	dirs := []string{s.dir, filepath.Join(s.dir, clientsDir)}
	for _, p := range places {
		dirs = append(dirs, filepath.Join(s.dir, p.dir))
	}
	return dirs
}

func (s *Store) pass(ctx context.Context, watcher *fsnotify.Watcher, changed chan<- struct{}, log *slog.Logger) {
	pause := time.NewTimer(watchPause)
	pause.Stop()
	waiting := false
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-watcher.Events:
			if !s.relevant(watcher, event, log) || waiting {
				continue
			}
			waiting = true
			pause.Reset(watchPause)
		case err := <-watcher.Errors: // an overflow, for example: something did change
			log.Warn("watch on the key directory stumbled", "dir", s.dir, "err", err)
			waiting = true
			pause.Reset(watchPause)
		case <-pause.C:
			waiting = false
			signal(changed)
		}
	}
}

// relevant tells whether an event can mean that a key changed, and takes up the
// watch on a state directory that was made anew.
func (s *Store) relevant(watcher *fsnotify.Watcher, event fsnotify.Event, log *slog.Logger) bool {
	if filepath.Dir(event.Name) != filepath.Clean(s.dir) {
		return event.Op != fsnotify.Chmod
	}
	if !slices.Contains(s.watched(), event.Name) {
		return false
	}
	if event.Op.Has(fsnotify.Create) {
		if err := watcher.Add(event.Name); err != nil {
			log.Warn("key directory is not watched", "dir", event.Name, "err", err)
		}
	}
	return true
}

// signal leaves a signal that was not yet taken in place: it stands for both.
func signal(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}
