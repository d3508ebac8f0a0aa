package pki

import (
	"cmp"
	"container/list"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/brinebus/brine/internal/posix"
	"github.com/brinebus/brine/internal/salt"
)

// Limits of the pending and denied keys, which anybody can submit.
const (
	// MaxWaiting is ten times the largest fleet that one master is meant for: all of it can
	// connect for the first time, and forged keys cost at most 400 MB of disk (a file takes a
	// block of 4 KiB).
	MaxWaiting = 100_000
	// MaxWaitingOfHost allows the whole of such a fleet behind one address.
	MaxWaitingOfHost = 10_000
	// maxHere is how many keys of connected holders are skipped in the search for one to
	// remove.
	maxHere = 64
)

// waitingKey is a pending or denied key.
type waitingKey struct {
	id    salt.MinionID
	key   PublicKey
	state State
	host  string // where it was last seen; "" if not since the daemon started
}

// waiting are the pending and denied keys, by the host that has submitted them.
type waiting struct {
	most, ofHost int
	n            int
	ids          map[salt.MinionID][]*list.Element
	hosts        map[string]*list.List // of *waitingKey, the longest unseen first
	sizes        map[int]map[string]bool
	largest      int // of sizes
}

func newWaiting(most, ofHost int) *waiting {
	return &waiting{most: cmp.Or(most, MaxWaiting), ofHost: cmp.Or(ofHost, MaxWaitingOfHost), ids: map[salt.MinionID][]*list.Element{}, hosts: map[string]*list.List{}, sizes: map[int]map[string]bool{}}
}

func (w *waiting) count(host string) int {
	if l := w.hosts[host]; l != nil {
		return l.Len()
	}
	return 0
}

func (w *waiting) add(k waitingKey) {
	l := w.hosts[k.host]
	if l == nil {
		l = list.New()
		w.hosts[k.host] = l
	}
	w.ids[k.id] = append(w.ids[k.id], l.PushBack(&k))
	w.n++
	w.resized(k.host, l.Len()-1, l.Len())
}

func (w *waiting) remove(e *list.Element) {
	k := e.Value.(*waitingKey)
	l := w.hosts[k.host]
	l.Remove(e)
	w.n--
	w.resized(k.host, l.Len()+1, l.Len())
	if l.Len() == 0 {
		delete(w.hosts, k.host)
	}
	rest := w.ids[k.id][:0]
	for _, other := range w.ids[k.id] {
		if other != e {
			rest = append(rest, other)
		}
	}
	if w.ids[k.id] = rest; len(rest) == 0 {
		delete(w.ids, k.id)
	}
}

// resized records how many keys a host has, so that the host with the most keys is found
// without a search.
func (w *waiting) resized(host string, before, after int) {
	if hosts := w.sizes[before]; hosts != nil {
		if delete(hosts, host); len(hosts) == 0 {
			delete(w.sizes, before)
		}
	}
	if after > 0 {
		if w.sizes[after] == nil {
			w.sizes[after] = map[string]bool{}
		}
		w.sizes[after][host] = true
		w.largest = max(w.largest, after)
	}
	for w.largest > 0 && w.sizes[w.largest] == nil {
		w.largest--
	}
}

// oldest returns the longest unseen key of the host with the most keys among those that have
// one; nil if none is found quickly.
func (w *waiting) oldest(here func(PublicKey) bool) *list.Element {
	left := maxHere
	for size := w.largest; size > 0; size-- {
		for host := range w.sizes[size] {
			if e := w.unseen(host, here); e != nil {
				return e
			}
			if left--; left == 0 {
				return nil
			}
		}
	}
	return nil
}

// seen records that the holder of a key was seen just now.
func (w *waiting) seen(id salt.MinionID, key PublicKey, host string) {
	for _, e := range w.ids[id] {
		if k := e.Value.(*waitingKey); k.key == key {
			moved := *k
			moved.host = host
			w.remove(e)
			w.add(moved)
			return
		}
	}
}

// unseen returns the key of a host that was not seen for the longest time and whose holder is
// not connected; nil if none is found quickly.
func (w *waiting) unseen(host string, here func(PublicKey) bool) *list.Element {
	l := w.hosts[host]
	if l == nil {
		return nil
	}
	for range min(maxHere, l.Len()) {
		e := l.Front()
		if here == nil || !here(e.Value.(*waitingKey).key) {
			return e
		}
		l.MoveToBack(e)
	}
	return nil
}

// sync makes the keys of id match the files.
func (w *waiting) sync(id salt.MinionID, entries []Entry) {
	there := map[PublicKey]State{}
	for _, e := range entries {
		if e.State == Pending || e.State == Denied {
			there[e.Key] = e.State
		}
	}
	for _, e := range append([]*list.Element(nil), w.ids[id]...) {
		k := e.Value.(*waitingKey)
		if state, ok := there[k.key]; ok {
			k.state = state // it still counts for its host
			delete(there, k.key)
			continue
		}
		w.remove(e)
	}
	for key, state := range there {
		w.add(waitingKey{id, key, state, ""})
	}
}

// countWaiting reads the waiting keys, the first time. The caller holds the lock.
func (s *Store) countWaiting() error {
	if s.waiting != nil {
		return nil
	}
	w := newWaiting(s.Most, s.MostOfHost)
	for _, p := range places {
		if !p.lossy() {
			continue
		}
		entries, _, err := s.listPlace(p)
		if err != nil {
			return err
		}
		for _, e := range entries {
			w.add(waitingKey{e.ID, e.Key, p.state, ""})
		}
	}
	s.waiting = w
	return nil
}

// evict makes room for one more key: it removes the oldest key of the same host, or of the host
// with the most. One whose file cannot be read stays, and is counted. The caller holds the lock.
func (s *Store) evict(k Submission) error {
	w := s.waiting
	for range maxHere {
		var e *list.Element
		switch {
		case w.count(k.Host) >= w.ofHost:
			e = w.unseen(k.Host, k.Here)
		case w.n >= w.most:
			e = w.oldest(k.Here)
		default:
			return nil
		}
		if e == nil {
			break
		}
		old := *e.Value.(*waitingKey)
		w.remove(e)
		err := s.removeWaiting(old)
		if !errors.Is(err, ErrUnread) {
			return err
		}
		w.add(old)
	}
	return fmt.Errorf("%w: %d, %d of them from its host", ErrFull, w.n, w.count(k.Host))
}

// removeWaiting removes the file of a waiting key to make room. That it is gone already is no error.
func (s *Store) removeWaiting(k waitingKey) error {
	entry := Entry{ID: k.id, State: k.state, Key: k.key}
	path, err := s.locate(entry)
	switch {
	case errors.Is(err, ErrUnread):
		return err
	case err != nil:
		return nil
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	entry.Path = filepath.Clean(path)
	if s.GivesWay != nil {
		s.GivesWay(entry)
	}
	return nil
}

// Evict removes a pending or denied key to make room for others of its id.
func (s *Store) Evict(e Entry) error {
	unlock, err := s.lock(posix.Exclusive)
	if err != nil {
		return err
	}
	defer unlock()
	return s.removeWaiting(waitingKey{id: e.ID, key: e.Key, state: e.State})
}

// OfAll returns the keys of some ids, all as of one moment, and the problems with files.
func (s *Store) OfAll(ids []salt.MinionID) (all map[salt.MinionID][]Entry, problems []Problem, err error) {
	unlock, err := s.lock(posix.Exclusive)
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	all = make(map[salt.MinionID][]Entry, len(ids))
	for _, id := range ids {
		entries, bad := s.OfFiles(id)
		problems = append(problems, bad...)
		all[id] = entries
		if s.waiting != nil && !slices.ContainsFunc(bad, Problem.Unread) {
			s.waiting.sync(id, entries)
		}
	}
	return all, problems, nil
}
