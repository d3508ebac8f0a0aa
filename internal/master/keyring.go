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

	"brine/internal/audit"
	"brine/internal/bus"
	"brine/internal/config"
	"brine/internal/pki"
	"brine/internal/salt"
	"brine/internal/target"
)

// keyring is the master's knowledge of keys: the store, the ids that are
// accepted, and the rules that accept or reject keys by themselves.
type keyring struct {
	store *pki.Store
	log   *slog.Logger

	mu       sync.RWMutex
	accepted []salt.MinionID // sorted
	learned  []salt.MinionID // accepted since the store was last looked at
	known    map[keyName]pki.State
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
	k := &keyring{store: store, log: log}
	return k, k.configure(cfg)
}

func (k *keyring) configure(cfg *config.Master) error {
	r := keyRules{open: cfg.OpenMode, auto: cfg.AutoAccept, autosign: cfg.AutosignFile, autorej: cfg.AutorejectFile, grainsDir: cfg.AutosignGrainsDir}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rules = r
	return nil
}

// refresh reads the ids of the accepted keys. One caller at a time may do so.
func (k *keyring) refresh() error {
	k.mu.Lock()
	k.learned = nil
	k.mu.Unlock()
	entries, problems, err := k.store.List()
	if err != nil {
		return err
	}
	for _, p := range problems {
		k.log.Warn("this file in the key directory is no key", "file", p.Path, "err", p.Err)
	}
	var ids []salt.MinionID
	known := make(map[keyName]pki.State, len(entries))
	for _, e := range entries {
		known[nameOf(e)] = e.State
		if e.State == pki.Accepted {
			ids = append(ids, e.ID)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	ids = append(ids, k.learned...) // which the look may have come too early for
	slices.Sort(ids)
	k.accepted, k.known = slices.Compact(ids), known
	return nil
}

// states returns every key with its state. The map must not be changed.
func (k *keyring) states() map[keyName]pki.State {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.known
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

// token names the accepted key of id, "" where there is none.
func (k *keyring) token(id salt.MinionID) (string, error) {
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

// accepts says whether the key of id with this token is accepted.
func (k *keyring) accepts(id salt.MinionID, token string) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.known[keyName{id, token}] == pki.Accepted
}

// ids returns the ids with an accepted key, sorted. The slice must not be changed.
func (k *keyring) ids() []salt.MinionID {
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

// admit judges the key that a connection has proven.
// source is where it comes from.
func (k *keyring) admit(id salt.MinionID, key pki.PublicKey, source string) (verdict, error) {
	state, err := k.store.Lookup(id, key)
	if err != nil {
		return verdict{pki.Denied, "denied", false}, err
	}
	k.mu.RLock()
	rules := k.rules
	k.mu.RUnlock()
	if rules.open {
		return k.admitOpen(id, key, state, source)
	}
	if state == pki.Accepted || state == pki.Rejected {
		return verdict{state, act(state), false}, nil
	}
	isNew := state == pki.Unknown
	if state, err = k.store.Submit(id, key); errors.Is(err, pki.ErrFull) {
		return verdict{pki.Denied, "full", isNew}, nil
	} else if err != nil {
		return verdict{pki.Denied, "denied", isNew}, err
	}
	if state == pki.Pending {
		state, err = k.judge(pki.Entry{ID: id, State: pki.Pending, Key: key}, rules, source)
	}
	return verdict{state, act(state), isNew}, err
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

// judge applies the rules to a waiting key. Rejection goes before acceptance.
func (k *keyring) judge(e pki.Entry, rules keyRules, source string) (pki.State, error) {
	reject, err := listed(rules.autorej, e.ID)
	if err != nil {
		return pki.Pending, err
	}
	if reject {
		k.deeds.expect(nameOf(e), actReject, remote(e.ID, source), "autoreject_file: "+rules.autorej)
		return pki.Rejected, k.store.Reject(e)
	}
	if rules.auto {
		return k.accept(e, source, "auto_accept")
	}
	accept, err := listed(rules.autosign, e.ID)
	if err != nil || !accept {
		return pki.Pending, err
	}
	return k.accept(e, source, "autosign_file: "+rules.autosign)
}

// accept accepts the key of a minion that knocks, by a rule.
func (k *keyring) accept(e pki.Entry, source, rule string) (pki.State, error) {
	k.deeds.expect(nameOf(e), actAccept, remote(e.ID, source), rule)
	if err := k.store.Accept(e); err != nil {
		return e.State, err
	}
	k.learn(e.ID)
	return pki.Accepted, nil
}

// learn makes id a target at once, before the watch tells of the new file.
func (k *keyring) learn(id salt.MinionID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.learned = append(k.learned, id)
	if i, found := slices.BinarySearch(k.accepted, id); !found {
		k.accepted = slices.Insert(slices.Clone(k.accepted), i, id)
	}
}

// admitOpen is open_mode: whoever comes is accepted, and takes the place of
// another key of its id. A rejected key stays rejected.
func (k *keyring) admitOpen(id salt.MinionID, key pki.PublicKey, state pki.State, source string) (verdict, error) {
	if state == pki.Accepted || state == pki.Rejected {
		return verdict{state, act(state), false}, nil
	}
	entries, _, err := k.store.List()
	if err != nil {
		return verdict{pki.Denied, "denied", false}, err
	}
	for _, e := range entries {
		if e.ID == id && e.State == pki.Accepted {
			k.deeds.expect(nameOf(e), actDelete, remote(id, source), "open_mode")
			if err := k.store.Delete(e); err != nil {
				return verdict{pki.Denied, "denied", false}, err
			}
		}
	}
	if state, err = k.store.Submit(id, key); err != nil {
		return verdict{pki.Denied, "denied", true}, err
	}
	state, err = k.accept(pki.Entry{ID: id, State: state, Key: key}, source, "open_mode")
	return verdict{state, act(state), true}, err
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
