package pki

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/brinebus/brine/internal/salt"
)

// watchPause gathers the changes of one command, such as the acceptance of a thousand keys,
// into a few signals.
const watchPause = 10 * time.Millisecond

// Seen is what has changed in a store.
type Seen struct {
	IDs     map[salt.MinionID]bool // whose keys changed
	Clients bool                   // a key of a client changed
	All     bool                   // anything may have changed
}

// Add adds what has changed besides.
func (s *Seen) Add(other Seen) {
	if s.IDs == nil {
		s.IDs = map[salt.MinionID]bool{}
	}
	maps.Copy(s.IDs, other.IDs)
	s.Clients, s.All = s.Clients || other.Clients, s.All || other.All
}

// Watch sends what has changed, whoever changed it. Changes are gathered, and none is lost. The
// channel is closed after ctx has ended and the watch has stopped.
func (s *Store) Watch(ctx context.Context, log *slog.Logger) (<-chan Seen, error) {
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
	changed := make(chan Seen, 1)
	go func() {
		defer close(changed)
		defer watcher.Close()
		s.pass(ctx, watcher, changed, log)
	}()
	return changed, nil
}

// watched includes the directory of the store itself: the state directories in it may be
// replaced, for example by a restored backup.
func (s *Store) watched() []string {
	dirs := []string{s.dir, filepath.Join(s.dir, clientsDir)}
	for _, p := range places {
		dirs = append(dirs, filepath.Join(s.dir, p.dir))
	}
	return dirs
}

func (s *Store) pass(ctx context.Context, watcher *fsnotify.Watcher, changed chan Seen, log *slog.Logger) {
	pause := time.NewTimer(watchPause)
	pause.Stop()
	waiting := false
	var seen Seen
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-watcher.Events:
			one, relevant := s.relevant(watcher, event, log)
			if !relevant {
				continue
			}
			seen.Add(one)
			if waiting {
				continue
			}
			waiting = true
			pause.Reset(watchPause)
		case err := <-watcher.Errors: // an overflow, for example: something did change
			log.Warn("the watch on the key directory reported an error", "dir", s.dir, "err", err)
			seen.All, waiting = true, true
			pause.Reset(watchPause)
		case <-pause.C:
			waiting = false
			signal(changed, seen)
			seen = Seen{}
		}
	}
}

// relevant returns what an event can mean for keys, and renews the watch on a state directory
// that was made again.
func (s *Store) relevant(watcher *fsnotify.Watcher, event fsnotify.Event, log *slog.Logger) (seen Seen, ok bool) {
	dir, name := filepath.Split(event.Name)
	if dir = filepath.Clean(dir); dir != filepath.Clean(s.dir) {
		seen = s.changed(dir, name)
		return seen, event.Op != fsnotify.Chmod && (seen.All || seen.Clients || seen.IDs != nil)
	}
	if !slices.Contains(s.watched(), event.Name) {
		return seen, false
	}
	if event.Op.Has(fsnotify.Create) {
		if err := watcher.Add(event.Name); err != nil {
			log.Warn("key directory is not watched", "dir", event.Name, "err", err)
		}
	}
	return Seen{All: true}, true
}

// changed returns what a file in a state directory stands for: nothing if it is a temporary
// one.
func (s *Store) changed(dir, name string) Seen {
	if strings.HasPrefix(name, ".") {
		return Seen{}
	}
	if dir == filepath.Join(s.dir, clientsDir) {
		return Seen{Clients: true}
	}
	for _, p := range places {
		if dir != filepath.Join(s.dir, p.dir) {
			continue
		}
		if id, err := p.parseName(name); err == nil {
			return Seen{IDs: map[salt.MinionID]bool{id: true}}
		}
	}
	return Seen{All: true} // a file whose name is not an id: to be reported
}

// signal adds to a signal that was not yet received.
func signal(changed chan Seen, seen Seen) {
	select {
	case old := <-changed:
		seen.Add(old)
	default:
	}
	changed <- seen
}
