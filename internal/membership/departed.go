package membership

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/member"
)

// departed are the members that have left the cluster in good order, and when. Without that, one of them looks like
// a lost member for as long as cluster_peers names it. They are kept in a file, so that they are known after a restart.
type departed struct {
	path  string   // of the file, "" for none
	names []string // those in cluster_peers: others are not kept, so that the file cannot grow
	log   *slog.Logger

	throttle logging.Throttle

	mu   sync.Mutex
	list map[string]time.Time // nil before the file was read
}

// add remembers one that has left.
func (d *departed) add(name string, when time.Time) {
	d.change(func(list map[string]time.Time) { list[name] = when.UTC() })
}

// back forgets those that have answered a question of that time: they are members again, unless they have left since.
func (d *departed) back(names []string, asked time.Time) {
	d.change(func(list map[string]time.Time) {
		for _, name := range names {
			if list[name].Before(asked) {
				delete(list, name)
			}
		}
	})
}

// change changes the list and its file. If the file cannot be written, only a restart forgets the change.
func (d *departed) change(by func(list map[string]time.Time)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := maps.Clone(d.read())
	by(list)
	maps.DeleteFunc(list, func(name string, _ time.Time) bool { return !slices.Contains(d.names, name) })
	if maps.Equal(list, d.list) {
		return
	}
	d.list = list
	if d.path == "" {
		return
	}
	if err := member.WriteLeft(d.path, list); err != nil {
		d.throttle.Log(d.log, slog.LevelWarn, "write", 1, "the members that have left are not kept for the time after a restart", "err", err)
	}
}

// read returns the list. A file that cannot be read is only one that says less. The caller holds the lock.
func (d *departed) read() map[string]time.Time {
	if d.list != nil {
		return d.list
	}
	d.list = map[string]time.Time{}
	if d.path == "" {
		return d.list
	}
	list, err := member.ReadLeft(d.path)
	if err != nil {
		d.throttle.Log(d.log, slog.LevelWarn, "read", 1, "it is not known which members have left", "err", err)
		return d.list
	}
	d.list = list
	return list
}

func (d *departed) all() map[string]time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.read())
}

// leftAt returns when a member has left that does not run, as those say that answer; the zero time for one that has
// not. One that the leader of all counts for elections has not: it was a member again while who says so did not run.
func leftAt(name string, all map[string]said) (when time.Time) {
	for _, s := range all {
		if slices.Contains(s.Away, name) {
			return time.Time{}
		}
		if at := s.Left[name]; at.After(when) {
			when = at
		}
	}
	return when
}

// away returns the members in cluster_peers that do not run and count for elections, if this one leads all: nobody
// else knows that for certain.
func away(m *Membership) (names []string) {
	c := m.broker.Cluster
	linked := keysOf(c.Members())
	for _, name := range m.identity.place().All {
		if name == m.name || linked[name] != "" {
			continue
		}
		if counts, known := c.Counts(name); known && counts {
			names = append(names, name)
		}
	}
	return names
}
