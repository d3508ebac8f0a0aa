package accord

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/pki"
)

// made are the decisions made at this member that the table may not have yet. Each has one event: whoever watches the key store tells
// of a change that is seen while the daemon runs, and a change that was made while it was stopped is told when the table has
// it. So that the two can be distinguished after a restart without the quorum, those that were told and that the table does
// not have are in a file.
type made struct {
	path string

	mu    sync.Mutex // not held over I/O
	all   map[string]madeOne
	found map[string]Act     // made while the daemon was stopped
	saved map[string]madeOne // in the file
	next  time.Time          // when the file is written at the earliest
}

// madeOne is a decision of which whoever watches the key store tells.
type madeOne struct {
	Act  Act  `json:"act"`
	Rule bool `json:"rule,omitempty"`
}

// madeFile has the hidden name of a file that is no key.
const madeFile = "minions/.told"

// openMade reads the file. fresh means that it is about another key directory, as agreed is.
func openMade(path string, keys keystore, agreed *agreements, fresh bool) (*made, error) {
	m := &made{path: path, all: map[string]madeOne{}, found: map[string]Act{}}
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &m.saved)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if fresh {
		return m, nil
	}
	decided, bad := keys.decided()
	if bad != nil {
		return m, bad
	}
	maps.Copy(m.all, m.saved)
	note := func(key string, now Act) {
		if act := madeAct(now); now != agreed.of(key).Act.inForce() && act != m.all[key].Act {
			m.found[key] = act
		}
	}
	for key, now := range decided {
		note(key, now)
	}
	for _, key := range agreed.keys() {
		if _, there := decided[key]; !there {
			note(key, "")
		}
	}
	return m, err
}

// madeAct is the decision that has led to a state of the key store.
func madeAct(now Act) Act {
	if now == "" {
		return Delete
	}
	return now
}

// changed notes a change of the key store that is told.
func (m *made) changed(c keyring.Change, most int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := keyOf(c.Name)
	delete(m.found, key)
	if waiting(c.Before) && c.After == pki.Unknown || c.Act() == "" {
		return // nobody has decided about it
	}
	if _, known := m.all[key]; known || len(m.all) < most {
		m.all[key] = madeOne{Act(c.Act()), c.Rule != ""}
	}
}

// byRule reports whether a rule on new keys has made a decision.
func (m *made) byRule(keys *keyring.Keyring, key string, act Act) bool {
	name, _ := nameOf(key)
	if keyring.RuleOf(keys, name, string(act)) != "" { // its change may not have been seen yet
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[key] == madeOne{act, true}
}

// untold reports whether nobody has told of the state of a key here.
func (m *made) untold(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, found := m.found[key]
	return found
}

// take reports whether a decision was made while the daemon was stopped, the first time.
func (m *made) take(key string, act Act) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.found[key] != act {
		return false
	}
	delete(m.found, key)
	return true
}

// forget forgets a decision that is in the table.
func (m *made) forget(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, key)
}

// left returns the decisions that are not in force at all members, as far as is known, without those that are handled soon,
// and whether the file has other ones.
func (m *made) left(agreed *agreements, soon map[string]bool) (left map[string]madeOne, other bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	left = map[string]madeOne{}
	for key, one := range m.all {
		if one.Act.inForce() == agreed.of(key).Act.inForce() {
			delete(m.all, key)
		} else if !soon[key] {
			left[key] = one
		}
	}
	return left, !maps.Equal(left, m.saved)
}

// save writes the file, if that is necessary. It takes a twentieth of the time at most, since rules can decide about any
// number of keys, unless the daemon ends.
func (m *made) save(agreed *agreements, soon map[string]bool, end bool) error {
	left, other := m.left(agreed, soon)
	begun := time.Now()
	if !other || begun.Before(m.next) && !end {
		return nil
	}
	err := m.write(left)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next = time.Now().Add(20 * time.Since(begun))
	if err == nil {
		m.saved = left
	}
	return err
}

func (m *made) write(left map[string]madeOne) error {
	if len(left) == 0 {
		if err := os.Remove(m.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	text, err := json.Marshal(left)
	if err == nil {
		err = atomicfile.Write(m.path, text, 0o600)
	}
	return err
}

// saveMade is called by Run.
func saveMade(s *Shared, end bool) {
	soon := s.todo
	if end {
		soon = nil
	}
	if err := s.made.save(s.agreed, soon, end); err != nil {
		s.complain("told", "a restart may repeat the events about keys that were changed without the quorum", err)
	}
}

// tellMade makes whoever watches the key store tell of a decision that is in the table now, if it was made while the daemon
// was stopped.
func tellMade(s *Shared, key string, act Act) {
	name, ok := nameOf(key)
	if !ok || !s.made.take(key, act) {
		return
	}
	states := map[Act]pki.State{Accept: pki.Accepted, Reject: pki.Rejected}
	c := keyring.Change{Name: name, Before: states[s.agreed.of(key).Act.inForce()], After: states[act.inForce()]}
	keyring.Recall(s.opts.Keys, c, audit.Who{Source: "a file in the key directory, while the master was stopped"})
}

// storeFor is the key store for what a decision in the table about a key leads to here. The member that has made the decision
// tells of it, so it is no event here.
func storeFor(s *Shared, name pki.Name, r ruling) *keyring.Store {
	tells := r.here || r.Tells == s.opts.Name && s.agreed.of(keyOf(name)).Act == Accept
	who := audit.Who{Source: "the master " + r.By, Elsewhere: !tells}
	if r.here {
		return s.opts.Keys.By(who)
	}
	return s.opts.Keys.By(who).Under(ruleOf(r.entry, r.By))
}

// ruleOf names the rule by which another master has decided, "" for none.
func ruleOf(e entry, master string) string {
	if !e.Rule {
		return ""
	}
	return fmt.Sprintf("a rule of the master %s", master)
}
