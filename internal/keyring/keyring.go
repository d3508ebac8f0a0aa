// Package keyring is the master's knowledge of keys: which are accepted, what the configured
// rules decide about a new one, and what has changed in the key directory, by whom. It cuts no
// connections and sends no messages.
package keyring

import (
	"log/slog"
	"slices"
	"sync"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// Keyring is the master's knowledge of keys: the store, the accepted ids, and the rules that
// accept or reject keys.
type Keyring struct {
	Store *pki.Store
	Here  func(token string) bool // reports whether the holder of the key with a token, see bus.KeyToken, is connected; nil means that none is
	// Room reports whether what rules decide fits into the table of the masters, and leaves room there for what people decide;
	// nil means that there is none. It is set before Admit is called.
	Room func() bool
	// MostAccepted, MostRejected and MostOfHost limit what rules decide; 0 means MaxAcceptedByRules,
	// MaxRejectedByRules and MaxAcceptedOfHost. They are set like Room.
	MostAccepted, MostRejected, MostOfHost int
	log                                    *slog.Logger

	looking  sync.Mutex             // held while files are read, so that an older state does not replace a newer one
	problems map[string]pki.Problem // with files at the latest look at each, by path; guarded by looking
	again    map[salt.MinionID]bool // ids to look at once more; guarded by looking

	mu       sync.RWMutex
	accepted []salt.MinionID                        // sorted
	known    map[salt.MinionID]map[string]pki.State // by fingerprint
	holders  map[salt.MinionID]string               // the token of the accepted key, see bus.KeyToken
	refused  map[pki.Name]pki.State                 // see Refuse
	changed  map[pki.Name]history                   // keys that changed since Take
	recalled []Change                               // see Recall
	gaveWay  map[pki.Name]uint64                    // known keys that were removed to make room for others, and the look then
	look     uint64                                 // counts how often files are read
	rules    rules
	actions  actions
	rejected int // keys in known
	bounds   bounds
}

// Open opens the key store of a configuration. It knows no keys before Refresh.
func Open(cfg *config.Master, log *slog.Logger) (*Keyring, error) {
	store, err := pki.OpenStore(cfg.PKIDir)
	if err != nil {
		return nil, err
	}
	k := &Keyring{Store: store, log: log, problems: map[string]pki.Problem{}, again: map[salt.MinionID]bool{}, refused: map[pki.Name]pki.State{}, known: map[salt.MinionID]map[string]pki.State{}, holders: map[salt.MinionID]string{}, changed: map[pki.Name]history{}, gaveWay: map[pki.Name]uint64{}}
	store.GivesWay = k.givesWay
	return k, k.Configure(cfg)
}

// Configure puts the rules on new keys in force.
func (k *Keyring) Configure(cfg *config.Master) error {
	r := rules{open: cfg.OpenMode, auto: cfg.AutoAccept, autosign: newRuleFile(cfg.AutosignFile), autorej: newRuleFile(cfg.AutorejectFile), grainsDir: cfg.AutosignGrainsDir}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rules = r
	return nil
}

// Refresh reads the whole store.
func (k *Keyring) Refresh() error {
	k.looking.Lock()
	defer k.looking.Unlock()
	k.looks()
	entries, problems, err := k.Store.List()
	if err != nil {
		return err
	}
	k.hear(problems, func(salt.MinionID) bool { return true })
	clear(k.again)
	known := map[salt.MinionID]map[string]pki.State{}
	for _, e := range entries {
		note(known, e)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for name := range k.refused {
		k.override(name.ID, known[name.ID])
	}
	kept := map[salt.MinionID]string{}
	for id, states := range unread(problems) {
		if known[id] = k.keep(id, known[id], states); known[id] == nil {
			delete(known, id)
		}
		if states[pki.Accepted] {
			kept[id] = k.holders[id]
		}
	}
	for id := range k.known {
		k.compare(id, known[id])
	}
	for id := range known {
		if k.known[id] == nil {
			k.compare(id, known[id])
		}
	}
	k.known, k.rejected = known, 0
	for _, keys := range known {
		k.rejected += rejectedIn(keys)
	}
	clear(k.holders)
	for _, e := range entries {
		k.hold(e)
	}
	for id, holder := range kept {
		k.holdOn(id, holder)
	}
	k.setAccepted()
	return nil
}

// looks is called before files are read.
func (k *Keyring) looks() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.look++
}

// note adds a key. If one is in two directories, a refusal takes precedence over acceptance,
// and both over waiting, in whatever order they are read.
func note(known map[salt.MinionID]map[string]pki.State, e pki.Entry) {
	if known[e.ID] == nil {
		known[e.ID] = map[string]pki.State{}
	}
	finger := e.Key.SHA256()
	known[e.ID][finger] = max(known[e.ID][finger], e.State)
}

// hold records the holder of an accepted key. The caller holds the lock.
func (k *Keyring) hold(e pki.Entry) {
	if k.known[e.ID][e.Key.SHA256()] == pki.Accepted {
		k.holders[e.ID] = bus.KeyToken(e.Key.Key())
	}
}

// Look reads the keys of some ids.
func (k *Keyring) Look(ids ...salt.MinionID) error {
	k.looking.Lock()
	defer k.looking.Unlock()
	k.looks()
	found, problems, err := k.Store.OfAll(ids)
	if err != nil {
		return err
	}
	k.hear(problems, func(id salt.MinionID) bool { _, looked := found[id]; return looked })
	states := unread(problems)
	k.mu.Lock()
	defer k.mu.Unlock()
	var news []salt.MinionID
	for id, entries := range found {
		delete(k.again, id)
		known := map[salt.MinionID]map[string]pki.State{}
		for _, e := range entries {
			note(known, e)
		}
		now, holder := k.keep(id, known[id], states[id]), k.holders[id]
		if k.compare(id, now) {
			news = append(news, id)
		}
		k.rejected += rejectedIn(now) - rejectedIn(k.known[id])
		if k.known[id] = now; now == nil {
			delete(k.known, id)
		}
		delete(k.holders, id)
		for _, e := range entries {
			k.hold(e)
		}
		if states[id][pki.Accepted] {
			k.holdOn(id, holder)
		}
	}
	if len(news) > fewNews {
		k.setAccepted()
		return nil
	}
	for _, id := range news {
		k.setOneAccepted(id)
	}
	return nil
}

// fewNews is up to how many ids are inserted into the sorted list one by one.
const fewNews = 100

// compare records changes of the keys of id, and reports whether accepted ones changed. The
// caller holds the lock.
func (k *Keyring) compare(id salt.MinionID, now map[string]pki.State) (accepted bool) {
	before := k.known[id]
	change := func(finger string, was, is pki.State) {
		if was == is {
			return
		}
		accepted = accepted || was == pki.Accepted || is == pki.Accepted
		name := pki.Name{ID: id, Finger: finger}
		h, already := k.changed[name]
		if !already {
			h.was = was
		}
		h.accepted = h.accepted || is == pki.Accepted
		k.changed[name] = h
	}
	for finger, is := range now {
		change(finger, before[finger], is)
		if name := (pki.Name{ID: id, Finger: finger}); k.gaveWay[name] < k.look {
			delete(k.gaveWay, name) // it has come back; what made room meanwhile is found at the next look
		}
	}
	for finger, was := range before {
		change(finger, was, now[finger])
	}
	return accepted
}

// setAccepted rebuilds the list of the ids with accepted keys. The caller holds the lock.
func (k *Keyring) setAccepted() {
	var ids []salt.MinionID
	for id := range k.known {
		if k.isAccepted(id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	k.accepted = ids
}

// setOneAccepted inserts id into that list or removes it. The caller holds the lock.
func (k *Keyring) setOneAccepted(id salt.MinionID) {
	i, listed := slices.BinarySearch(k.accepted, id)
	switch is := k.isAccepted(id); {
	case is && !listed:
		k.accepted = slices.Insert(slices.Clone(k.accepted), i, id)
	case !is && listed:
		k.accepted = slices.Delete(slices.Clone(k.accepted), i, i+1)
	}
}

func (k *Keyring) isAccepted(id salt.MinionID) bool {
	for _, state := range k.known[id] {
		if state == pki.Accepted {
			return true
		}
	}
	return false
}

// history is the states of a key since Take.
type history struct {
	was      pki.State
	accepted bool // at some time
}

// Change is the change of a key.
type Change struct {
	pki.Name
	Before, After pki.State // Unknown if there is none
	GaveWay       bool      // it was removed to make room
	Rule          string    // by which it was changed, "" for none
	Recalled      bool      // it was made before the start, see Recall
}

// Act returns what was done to the key, as the event salt/key names it: a decided key that waits again was deleted. It is ""
// for what nobody has decided.
func (c Change) Act() string {
	switch c.After {
	case pki.Accepted, pki.Rejected:
		return Act(c.After)
	case pki.Unknown:
		return Delete
	}
	if c.Before == pki.Accepted || c.Before == pki.Rejected {
		return Delete
	}
	return ""
}

// Take returns what has changed since the previous call. A key that was accepted in between and
// no longer is has two changes: it may have been used to connect.
func (k *Keyring) Take() (list []Change) {
	k.mu.Lock()
	defer k.mu.Unlock()
	list, k.recalled = k.recalled, nil
	for name, h := range k.changed {
		is := k.known[name.ID][name.Finger]
		if h.accepted && h.was != pki.Accepted && is != pki.Accepted {
			list = append(list, Change{Name: name, Before: h.was, After: pki.Accepted})
			h.was = pki.Accepted
		}
		if is != h.was {
			_, gaveWay := k.gaveWay[name]
			list = append(list, Change{Name: name, Before: h.was, After: is, GaveWay: gaveWay && is == pki.Unknown})
		}
		if is == pki.Unknown {
			delete(k.gaveWay, name)
		}
	}
	clear(k.changed)
	for i, c := range list {
		list[i].Rule = k.actions.rule(c.Name, c.Act())
	}
	return list
}

// Recall makes Take return a change that was made, by who, while the daemon was stopped: the key had the state before. What has
// changed since is returned after it.
func Recall(k *Keyring, c Change, who audit.Who) {
	c.Recalled = true
	k.actions.expect(c.Name, c.Act(), who, "")
	k.mu.Lock()
	k.recalled = append(k.recalled, c)
	k.mu.Unlock()
	k.lookAgain(c.ID) // that wakes whoever calls Take
}

// givesWay records a waiting key that made room for another.
func (k *Keyring) givesWay(e pki.Entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, known := k.known[e.ID][e.Key.SHA256()]; known {
		k.gaveWay[e.Name()] = k.look
	}
}

// Connected reports whether the holder of a key is connected to this master.
func (k *Keyring) Connected(key pki.PublicKey) bool {
	return k.Here != nil && k.Here(bus.KeyToken(key.Key()))
}

// ByToken returns the key of id with this token, and its present state.
func (k *Keyring) ByToken(id salt.MinionID, token string) (pki.PublicKey, pki.State, error) {
	entries, err := k.Store.Of(id)
	if err != nil {
		return pki.PublicKey{}, pki.Denied, err
	}
	for _, e := range entries {
		if bus.KeyToken(e.Key.Key()) == token {
			return e.Key, k.counts(e.Name(), e.State), nil
		}
	}
	return pki.PublicKey{}, pki.Unknown, nil
}

// Token returns the token of the accepted key of id, "" if there is none.
func (k *Keyring) Token(id salt.MinionID) (string, error) {
	entries, err := k.Store.Of(id)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if k.counts(e.Name(), e.State) == pki.Accepted {
			return bus.KeyToken(e.Key.Key()), nil
		}
	}
	return "", nil
}

// Has reports whether there is a key of id, accepted or not.
func (k *Keyring) Has(id salt.MinionID) (bool, error) {
	if _, accepted := slices.BinarySearch(k.IDs(), id); accepted {
		return true, nil
	}
	entries, err := k.Store.Of(id)
	return len(entries) > 0, err
}

// Tokens returns the token of the accepted key of each of these minions that has one.
func (k *Keyring) Tokens(ids []salt.MinionID) map[salt.MinionID]string {
	k.mu.RLock()
	defer k.mu.RUnlock()
	all := make(map[salt.MinionID]string, len(ids))
	for _, id := range ids {
		if token := k.holders[id]; token != "" {
			all[id] = token
		}
	}
	return all
}

// Accepts reports whether the key of id with this token is accepted.
func (k *Keyring) Accepts(id salt.MinionID, token string) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return token != "" && k.holders[id] == token
}

// IDs returns the ids with an accepted key, sorted. The slice must not be changed.
func (k *Keyring) IDs() []salt.MinionID {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.accepted
}
