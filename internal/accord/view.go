package accord

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
)

// Names in the shared table, apart from those of keys.
const (
	claimPrefix     = "wait "      // a fingerprint and an id follow: the key waits at some member
	heartbeatPrefix = "heartbeat " // the name of a member follows
	// forgotten tells that some deletions have been forgotten, see absent.
	forgotten = "forgotten"
)

// maxOfID limits the accepted keys of one id that are remembered: one of them counts.
const maxOfID = 16

func claimOf(key string) string { return claimPrefix + strings.TrimPrefix(key, keyPrefix) }

// ruling is a decision in the shared table, at a revision. One that cannot be read has no act: it
// decides nothing, and can be replaced.
type ruling struct {
	entry
	revision uint64
	reading  uint64 // when it was last heard of
	here     bool   // this member has concluded it by itself, and tells of it
}

func (r ruling) valid() bool { return r.Act.weight() > 0 }

// view is what a member knows of the shared table.
type view struct {
	rulings   map[string]ruling
	accepted  map[salt.MinionID][]string
	refused   map[salt.MinionID]int // how many of its keys are rejected or deleted
	by        map[string]int        // how many rulings are of a member, without deletions, which are forgotten
	heard     int                   // bytes of rulings
	reading   uint64                // counts how often the table was read from the beginning
	complete  bool                  // all that was present has come, once at least
	forgotten bool
	missed    bool // not everything did fit
}

func newView() view {
	return view{rulings: map[string]ruling{}, accepted: map[salt.MinionID][]string{}, refused: map[salt.MinionID]int{}, by: map[string]int{}}
}

// begin is called before the table is read from the beginning.
func (v *view) begin() { v.reading++; v.missed = false }

// roomy reports whether there is room again.
func (v *view) roomy(most int) bool { return len(v.rulings) < most && v.heard < maxHeard/2 }

// set replaces a ruling.
func (v *view) set(key string, r ruling) {
	v.drop(key)
	v.rulings[key] = r
	v.heard += r.size
	if r.Act != Delete {
		v.by[r.By]++
	}
	switch name, ok := nameOf(key); {
	case !ok || !r.valid():
	case r.Act == Accept:
		v.accepted[name.ID] = append(v.accepted[name.ID], key)
	default:
		v.refused[name.ID]++
	}
}

// drop forgets a ruling.
func (v *view) drop(key string) {
	r, known := v.rulings[key]
	if !known {
		return
	}
	v.heard -= r.size
	delete(v.rulings, key)
	if r.Act != Delete {
		if v.by[r.By]--; v.by[r.By] == 0 {
			delete(v.by, r.By)
		}
	}
	switch name, ok := nameOf(key); {
	case !ok || !r.valid():
	case r.Act == Accept:
		v.accepted[name.ID] = slices.DeleteFunc(v.accepted[name.ID], func(k string) bool { return k == key })
		if len(v.accepted[name.ID]) == 0 {
			delete(v.accepted, name.ID)
		}
	default:
		if v.refused[name.ID]--; v.refused[name.ID] == 0 {
			delete(v.refused, name.ID)
		}
	}
}

// Decided reports whether the members accept a key of a minion, and whether they have rejected or
// deleted one; known is false until all that they have decided is known here. It does not tell what
// is in force in the key store, which follows later.
func (s *Shared) Decided(id salt.MinionID) (accepted, refused, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.view.accepted[id]) > 0, s.view.refused[id] > 0, s.view.complete && !s.view.missed
}

// hear handles an entry of the shared table; nil means that all present ones have come. Whatever a
// member has written there, only what has the form of a decision counts.
func (s *Shared) hear(e *journal.TableEntry) {
	defer s.signal()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case e == nil:
		s.heardAll()
	case len(e.Key) > maxKey+len(claimPrefix):
	case strings.HasPrefix(e.Key, keyPrefix):
		s.hearRuling(*e)
	case strings.HasPrefix(e.Key, claimPrefix):
		s.waits.hear(*e, s.view.reading)
	case e.Key == heartbeatPrefix+s.opts.Name:
		s.pulse.hear(e.Value)
	case e.Key == forgotten:
		s.view.forgotten = e.Value != nil
	}
}

// heardAll drops what was not heard of in the latest reading from the beginning. The caller holds
// mu.
func (s *Shared) heardAll() {
	for key, r := range s.view.rulings {
		if r.reading != s.view.reading {
			s.view.drop(key)
			s.due.mark(key)
		}
	}
	s.waits.heardAll(s.view.reading)
	if !s.view.complete {
		s.view.complete = true
		s.due.markAll()
	}
}

// hearRuling handles an entry about a key. The caller holds mu.
func (s *Shared) hearRuling(e journal.TableEntry) {
	name, ok := nameOf(e.Key)
	old := s.view.rulings[e.Key]
	if !ok || e.Revision < old.revision {
		return
	}
	s.due.mark(e.Key)
	s.due.mark(s.view.accepted[name.ID]...) // one of them may be possible now
	if e.Value == nil {
		s.view.drop(e.Key)
		return
	}
	r, err := readRuling(e.Value)
	if err != nil {
		s.complain("unreadable", "what a master has decided cannot be read", err, "key", e.Key)
		r = old // the earlier decision counts
	}
	r.revision, r.reading, r.size = e.Revision, s.view.reading, len(e.Key)+min(len(e.Value), maxEntry)
	full := len(s.view.rulings) >= s.most || s.view.heard+r.size > maxHeard || len(s.view.accepted[name.ID]) >= maxOfID
	if old.revision == 0 && s.agreed.of(e.Key).Act == "" && full {
		s.view.missed = true
		s.complain("room", "the masters have decided about more keys than are remembered: the rest does not count here", errMany)
		return
	}
	s.view.set(e.Key, r)
}

func readRuling(value []byte) (r ruling, err error) {
	if len(value) > maxEntry {
		return r, fmt.Errorf("it has %d bytes", len(value))
	}
	if err := json.Unmarshal(value, &r.entry); err != nil {
		return ruling{}, err
	}
	if r.N == 0 || r.Act != Accept && r.Act != Reject && r.Act != Delete {
		return ruling{}, fmt.Errorf("there is no act %.20q", r.Act)
	}
	r.By = masterName(r.By)
	return r, nil
}

// masterName is the name of a member in an entry, as it is shown to people.
func masterName(said string) string {
	odd := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("_-.", c)
	}
	if said == "" || len(said) > 64 || strings.ContainsFunc(said, odd) {
		return "(unknown)"
	}
	return said
}
