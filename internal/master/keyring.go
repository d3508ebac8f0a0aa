package master

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/target"
)

// keyring is the master's knowledge of keys: the store, the ids that are
// accepted, and the rules that accept or reject keys by themselves.
type keyring struct {
	store *pki.Store
	log   *slog.Logger
	here  func(pki.PublicKey) bool // says whether the holder of a key is connected

	looking sync.Mutex // held while files are read, so that an old look is not taken for a newer one

	mu       sync.RWMutex
	accepted []salt.MinionID                        // sorted
	known    map[salt.MinionID]map[string]pki.State // by fingerprint
	holders  map[salt.MinionID]string               // the token of the accepted key, see bus.KeyToken
	changed  map[keyName]pki.State                  // what keys were that changed since take
	gaveWay  map[keyName]bool                       // those of them that were removed to make room
	rules    keyRules
	deeds    deeds
}

// keyName is one key of one id.
type keyName struct {
	id     salt.MinionID
	finger string
}

func nameOf(e pki.Entry) keyName { return keyName{e.ID, e.Key.SHA256()} }

// keyRules is the part of the configuration that judges new keys.
type keyRules struct {
	open, auto        bool
	autosign, autorej string
	grainsDir         string
}

func openKeyring(cfg *config.Master, log *slog.Logger) (*keyring, error) {
	store, err := pki.OpenStore(cfg.PKIDir)
	if err != nil {
		return nil, err
	}
	k := &keyring{store: store, log: log, known: map[salt.MinionID]map[string]pki.State{}, holders: map[salt.MinionID]string{}, changed: map[keyName]pki.State{}, gaveWay: map[keyName]bool{}}
	store.GivesWay = k.givesWay
	return k, k.configure(cfg)
}

func (k *keyring) configure(cfg *config.Master) error {
	r := keyRules{open: cfg.OpenMode, auto: cfg.AutoAccept, autosign: cfg.AutosignFile, autorej: cfg.AutorejectFile, grainsDir: cfg.AutosignGrainsDir}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rules = r
	return nil
}

// refresh reads the whole store.
func (k *keyring) refresh() error {
	k.looking.Lock()
	defer k.looking.Unlock()
	entries, problems, err := k.store.List()
	if err != nil {
		return err
	}
	for _, p := range problems {
		k.log.Warn("this file in the key directory is no key", "file", p.Path, "err", p.Err)
	}
	known := map[salt.MinionID]map[string]pki.State{}
	for _, e := range entries {
		note(known, e)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for id := range k.known {
		k.compare(id, known[id])
	}
	for id := range known {
		if k.known[id] == nil {
			k.compare(id, known[id])
		}
	}
	k.known = known
	clear(k.holders)
	for _, e := range entries {
		k.hold(e)
	}
	k.setAccepted()
	return nil
}

// note enters a key. Where one lies in two directories, the refusal counts.
func note(known map[salt.MinionID]map[string]pki.State, e pki.Entry) {
	if known[e.ID] == nil {
		known[e.ID] = map[string]pki.State{}
	}
	finger := e.Key.SHA256()
	if was, twice := known[e.ID][finger]; twice && (was == pki.Denied || was == pki.Rejected) {
		return
	}
	known[e.ID][finger] = e.State
}

// hold notes who holds an accepted key. The caller holds the lock.
func (k *keyring) hold(e pki.Entry) {
	if k.known[e.ID][e.Key.SHA256()] == pki.Accepted {
		k.holders[e.ID] = bus.KeyToken(e.Key.Key())
	}
}

// look reads the keys of some ids.
func (k *keyring) look(ids ...salt.MinionID) error {
	k.looking.Lock()
	defer k.looking.Unlock()
	found, problems, err := k.store.OfAll(ids)
	if err != nil {
		return err
	}
	for _, problem := range problems {
		k.log.Warn("this file in the key directory is no key", "err", problem)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var news []salt.MinionID
	for id, entries := range found {
		known := map[salt.MinionID]map[string]pki.State{}
		for _, e := range entries {
			note(known, e)
		}
		if k.compare(id, known[id]) {
			news = append(news, id)
		}
		if k.known[id] = known[id]; known[id] == nil {
			delete(k.known, id)
		}
		delete(k.holders, id)
		for _, e := range entries {
			k.hold(e)
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

// fewNews is up to how many ids are put into the sorted list one by one.
const fewNews = 100

// compare notes what changed of the keys of id, and says whether accepted ones did. The
// caller holds the lock.
func (k *keyring) compare(id salt.MinionID, now map[string]pki.State) (accepted bool) {
	before := k.known[id]
	change := func(finger string, was, is pki.State) {
		if was == is {
			return
		}
		accepted = accepted || was == pki.Accepted || is == pki.Accepted
		name := keyName{id, finger}
		if _, already := k.changed[name]; !already {
			k.changed[name] = was
		}
	}
	for finger, is := range now {
		change(finger, before[finger], is)
	}
	for finger, was := range before {
		change(finger, was, now[finger])
	}
	return accepted
}

// setAccepted makes the list of the ids with accepted keys anew. The caller holds the
// lock.
func (k *keyring) setAccepted() {
	var ids []salt.MinionID
	for id := range k.known {
		if k.isAccepted(id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	k.accepted = ids
}

// setOneAccepted puts id into that list or takes it out. The caller holds the lock.
func (k *keyring) setOneAccepted(id salt.MinionID) {
	i, listed := slices.BinarySearch(k.accepted, id)
	switch is := k.isAccepted(id); {
	case is && !listed:
		k.accepted = slices.Insert(slices.Clone(k.accepted), i, id)
	case !is && listed:
		k.accepted = slices.Delete(slices.Clone(k.accepted), i, i+1)
	}
}

func (k *keyring) isAccepted(id salt.MinionID) bool {
	for _, state := range k.known[id] {
		if state == pki.Accepted {
			return true
		}
	}
	return false
}

// change is what became of a key.
type change struct {
	keyName
	before, after pki.State // Unknown where there is none
	gaveWay       bool      // it was removed to make room
}

// take returns what changed since it was last called.
func (k *keyring) take() (list []change) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, was := range k.changed {
		if is := k.known[name.id][name.finger]; is != was {
			list = append(list, change{name, was, is, k.gaveWay[name]})
		}
	}
	clear(k.changed)
	clear(k.gaveWay)
	return list
}

// givesWay is told of a waiting key that made room for another.
func (k *keyring) givesWay(e pki.Entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, known := k.known[e.ID][e.Key.SHA256()]; known {
		k.gaveWay[nameOf(e)] = true
	}
}

// byToken returns the key of id with this token, and its state now.
func (k *keyring) byToken(id salt.MinionID, token string) (pki.PublicKey, pki.State, error) {
	entries, err := k.store.Of(id)
	if err != nil {
		return pki.PublicKey{}, pki.Denied, err
	}
	for _, e := range entries {
		if bus.KeyToken(e.Key.Key()) == token {
			return e.Key, e.State, nil
		}
	}
	return pki.PublicKey{}, pki.Unknown, nil
}

// Token names the accepted key of id, "" where there is none.
func (k *keyring) Token(id salt.MinionID) (string, error) {
	entries, err := k.store.Of(id)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if e.State == pki.Accepted {
			return bus.KeyToken(e.Key.Key()), nil
		}
	}
	return "", nil
}

// Tokens names the accepted key of each of these minions that has one.
func (k *keyring) Tokens(ids []salt.MinionID) map[salt.MinionID]string {
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

// Accepts says whether the key of id with this token is accepted.
func (k *keyring) Accepts(id salt.MinionID, token string) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return token != "" && k.holders[id] == token
}

// IDs returns the ids with an accepted key, sorted. The slice must not be changed.
func (k *keyring) IDs() []salt.MinionID {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.accepted
}

// verdict is what became of a key at the door.
type verdict struct {
	state pki.State
	act   string // as Salt's salt/auth event names it: accept, pend, reject, denied, full
	isNew bool   // the key was not known before
}

// admit judges the key that a connection has proven. source is where it comes from, host
// what it is counted by.
func (k *keyring) admit(id salt.MinionID, key pki.PublicKey, source, host string) (verdict, error) {
	k.mu.RLock()
	rules, accepted := k.rules, k.known[id][key.SHA256()] == pki.Accepted
	k.mu.RUnlock()
	if rules.open {
		return k.admitOpen(id, key, source)
	}
	decided := ""
	if !accepted {
		var err error
		if decided, err = rules.decide(id); err != nil {
			k.log.Error("the rules on new keys are not applied", "minion", id, "err", err)
		}
	}
	state, isNew, err := k.store.Knock(pki.Knock{ID: id, Key: key, Host: host, Here: k.here, Decided: decided != ""})
	if errors.Is(err, pki.ErrFull) {
		return verdict{pki.Denied, "full", isNew}, nil
	} else if err != nil {
		return verdict{pki.Denied, "denied", isNew}, err
	}
	if state == pki.Pending && decided != "" {
		state, err = k.apply(decided, pki.Entry{ID: id, State: pki.Pending, Key: key}, rules, source)
	}
	return verdict{state, act(state), isNew}, err
}

// decide is what the rules make of a new key: a deed, "" for none. Rejection goes before
// acceptance.
func (r keyRules) decide(id salt.MinionID) (string, error) {
	reject, err := listed(r.autorej, id)
	switch {
	case err != nil:
		return "", err
	case reject:
		return actReject, nil
	case r.auto:
		return actAccept, nil
	}
	accept, err := listed(r.autosign, id)
	if err != nil || !accept {
		return "", err
	}
	return actAccept, nil
}

// apply does what the rules have decided.
func (k *keyring) apply(decided string, e pki.Entry, rules keyRules, source string) (pki.State, error) {
	switch {
	case decided == actReject:
		k.deeds.expect(nameOf(e), actReject, remote(e.ID, source), "autoreject_file: "+rules.autorej)
		return pki.Rejected, k.store.Reject(e)
	case rules.auto:
		return k.accept(e, source, "auto_accept")
	}
	return k.accept(e, source, "autosign_file: "+rules.autosign)
}

// What becomes of keys, as Salt's events name it.
const (
	actAccept = "accept"
	actReject = "reject"
	actDelete = "delete"
)

func act(s pki.State) string {
	switch s {
	case pki.Accepted:
		return actAccept
	case pki.Pending:
		return "pend"
	case pki.Rejected:
		return actReject
	}
	return "denied"
}

// remote is the minion that knocks, for the record.
func remote(id salt.MinionID, source string) audit.Who {
	return audit.Who{Minion: string(id), Source: source}
}

// accept accepts the key of a minion that knocks, by a rule.
func (k *keyring) accept(e pki.Entry, source, rule string) (pki.State, error) {
	k.deeds.expect(nameOf(e), actAccept, remote(e.ID, source), rule)
	if err := k.store.Accept(e); err != nil {
		return e.State, err
	}
	// It is a target at once, before the watch tells of the new file.
	if err := k.look(e.ID); err != nil {
		k.log.Error("key store not read", "err", err)
	}
	return pki.Accepted, nil
}

// admitOpen is open_mode: whoever comes is accepted, and takes the place of
// another key of its id. A rejected key stays rejected.
func (k *keyring) admitOpen(id salt.MinionID, key pki.PublicKey, source string) (verdict, error) {
	state, err := k.store.Lookup(id, key)
	if err != nil {
		return verdict{pki.Denied, "denied", false}, err
	}
	if state == pki.Accepted || state == pki.Rejected {
		return verdict{state, act(state), false}, nil
	}
	entries, err := k.store.Of(id)
	if err != nil {
		return verdict{pki.Denied, "denied", false}, err
	}
	for _, e := range entries {
		if e.State == pki.Accepted {
			k.deeds.expect(nameOf(e), actDelete, remote(id, source), "open_mode")
			if err := k.store.Delete(e); err != nil {
				return verdict{pki.Denied, "denied", false}, err
			}
		}
	}
	if state, _, err = k.store.Knock(pki.Knock{ID: id, Key: key, Decided: true}); err != nil {
		return verdict{pki.Denied, "denied", true}, err
	}
	state, err = k.accept(pki.Entry{ID: id, State: state, Key: key}, source, "open_mode")
	return verdict{state, act(state), true}, err
}

// grainsCount says whether a key can be accepted for the grains that its minion shows.
func (k *keyring) grainsCount() bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.rules.grainsDir != ""
}

// signByGrains accepts a waiting key whose minion shows a value that a file of
// autosign_grains_dir lists for that grain.
func (k *keyring) signByGrains(e pki.Entry, source string, grains map[string]string) (bool, error) {
	k.mu.RLock()
	dir := k.rules.grainsDir
	k.mu.RUnlock()
	if dir == "" {
		return false, nil
	}
	for name, shown := range grains {
		if shown == "" || filepath.Base(name) != name || strings.HasPrefix(name, ".") {
			continue // the name comes from outside and is about to be a file name
		}
		lines, err := ruleLines(filepath.Join(dir, name))
		if err != nil {
			return false, err
		}
		if slices.Contains(lines, shown) {
			_, err := k.accept(e, source, "autosign_grains_dir: "+filepath.Join(dir, name))
			return err == nil, err
		}
	}
	return false, nil
}

// listed says whether id is in an autosign or autoreject file: by name, glob or
// regular expression, a line each, as in Salt, but matching whole ids only.
func listed(path string, id salt.MinionID) (bool, error) {
	lines, err := ruleLines(path)
	if err != nil {
		return false, err
	}
	for _, line := range lines {
		if line == string(id) || matches(line, target.Glob, id) || matches("(?:"+line+")$", target.PCRE, id) {
			return true, nil
		}
	}
	return false, nil
}

func matches(expr string, kind target.Kind, id salt.MinionID) bool {
	t, err := target.Parse(expr, kind, target.Options{})
	if err != nil {
		return false // a glob is often no regular expression
	}
	ok, err := t.Match(target.Facts{ID: id})
	return ok && err == nil
}

// ruleLines reads a file of rules. One that somebody else could have written is
// an error; one that is missing has no rules.
func ruleLines(path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !info.Mode().IsRegular() || info.Mode().Perm()&0o022 != 0 || ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("%s decides on keys and is not used: it must be a file of root or the daemon's user that nobody else may write", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines, nil
}
