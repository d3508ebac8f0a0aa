package keyring

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// Verdict is the result for the key of a new connection.
type Verdict struct {
	State pki.State
	Act   string // as Salt's salt/auth event names it: accept, pend, reject, denied, full
	New   bool   // the key was not known before
	// Limited is why a rule on new keys that matches did not decide, or why its decision is not recorded; nil otherwise.
	Limited error
}

// Admit decides about the key that a connection has proved. source is its address, host what it
// is counted for.
func (k *Keyring) Admit(id salt.MinionID, key pki.PublicKey, source, host string) (Verdict, error) {
	k.mu.RLock()
	rules, accepted := k.rules, k.known[id][key.SHA256()] == pki.Accepted
	k.mu.RUnlock()
	if state := k.counts(pki.Name{ID: id, Finger: key.SHA256()}, pki.Accepted); state != pki.Accepted {
		return Verdict{State: state, Act: Act(state)}, nil
	}
	if rules.open {
		return k.admitOpen(id, key, source, host)
	}
	decided := ""
	if !accepted {
		var err error
		if decided, err = rules.decide(id); err != nil {
			k.log.Error("the rules on new keys are not applied", "minion", id, "err", err)
		}
	}
	var limited error
	if decided != "" {
		switch state, err := k.Store.Lookup(id, key); {
		case err != nil:
			return Verdict{State: pki.Denied, Act: "denied"}, err
		case state != pki.Unknown && state != pki.Pending:
			decided = ""
		case decided == Accept:
			if limited = k.mayAccept(host); limited != nil {
				decided = ""
			}
		case state == pki.Unknown && !mayReject(k):
			return Verdict{State: pki.Rejected, Act: Reject, Limited: errRejected}, nil
		}
	}
	v, err := submit(k.Store, pki.Submission{ID: id, Key: key, Host: host, Here: k.Connected, Decided: decided != ""})
	v.Limited = limited
	if err == nil && v.State == pki.Pending && decided != "" {
		v.State, err = k.apply(decided, pki.Entry{ID: id, State: pki.Pending, Key: key}, rules, source, host)
		v.Act = Act(v.State)
	}
	return v, err
}

// submit records a key if it is new.
func submit(store *pki.Store, s pki.Submission) (Verdict, error) {
	state, isNew, err := store.SubmitFrom(s)
	if errors.Is(err, pki.ErrFull) {
		return Verdict{State: pki.Denied, Act: "full", New: isNew}, nil
	} else if err != nil {
		return Verdict{State: pki.Denied, Act: "denied", New: isNew}, err
	}
	return Verdict{State: state, Act: Act(state), New: isNew}, nil
}

// Bring makes a key pending or denied that was submitted to another master, whose rules have decided
// nothing; host is what it is counted for.
func (k *Keyring) Bring(id salt.MinionID, key pki.PublicKey, host string, as pki.State) (pki.State, error) {
	state, _, err := k.Store.SubmitFrom(pki.Submission{ID: id, Key: key, Host: host, Here: k.Connected, As: as})
	return state, err
}

// apply carries out what the rules have decided.
func (k *Keyring) apply(decided string, e pki.Entry, rules rules, source, host string) (pki.State, error) {
	if decided == Reject {
		k.actions.expect(e.Name(), Reject, Remote(e.ID, source), "autoreject_file: "+rules.autorej.path)
		err := k.Store.Reject(e)
		if err == nil {
			see(k, e.ID) // it counts at once
		}
		return pki.Rejected, err
	}
	k.bounds.spend(host)
	switch {
	case rules.auto:
		return k.accept(e, source, "auto_accept")
	}
	return k.accept(e, source, "autosign_file: "+rules.autosign.path)
}

// The results, as in Salt's events.
const (
	Accept = "accept"
	Reject = "reject"
	Delete = "delete"
)

// Act is the result for a key with this state.
func Act(s pki.State) string {
	switch s {
	case pki.Accepted:
		return Accept
	case pki.Pending:
		return "pend"
	case pki.Rejected:
		return Reject
	}
	return "denied"
}

// Remote is the connecting minion, for the audit log.
func Remote(id salt.MinionID, source string) audit.Who {
	return audit.Who{Minion: string(id), Source: source}
}

// accept accepts the key of a minion that connects, by a rule.
func (k *Keyring) accept(e pki.Entry, source, rule string) (pki.State, error) {
	k.actions.expect(e.Name(), Accept, Remote(e.ID, source), rule)
	if err := k.Store.Accept(e); err != nil {
		return e.State, err
	}
	see(k, e.ID) // it is a target at once
	return pki.Accepted, nil
}

// see reads the keys of an id before the watch reports the new file.
func see(k *Keyring, id salt.MinionID) {
	if err := k.Look(id); err != nil {
		k.log.Error("key store not read", "err", err)
	}
}

// admitOpen implements open_mode: every key is accepted, and replaces another key of its id. A
// rejected key stays rejected.
func (k *Keyring) admitOpen(id salt.MinionID, key pki.PublicKey, source, host string) (Verdict, error) {
	state, err := k.Store.Lookup(id, key)
	if err != nil {
		return Verdict{State: pki.Denied, Act: "denied"}, err
	}
	if state == pki.Accepted || state == pki.Rejected {
		return Verdict{State: state, Act: Act(state)}, nil
	}
	if limited := k.mayAccept(host); limited != nil {
		v, err := submit(k.Store, pki.Submission{ID: id, Key: key, Host: host, Here: k.Connected})
		v.Limited = limited
		return v, err
	}
	entries, err := k.Store.Of(id)
	if err != nil {
		return Verdict{State: pki.Denied, Act: "denied"}, err
	}
	for _, e := range entries {
		if e.State == pki.Accepted {
			k.actions.expect(e.Name(), Delete, Remote(id, source), "open_mode")
			if err := k.Store.Delete(e); err != nil {
				return Verdict{State: pki.Denied, Act: "denied"}, err
			}
		}
	}
	if state, _, err = k.Store.SubmitFrom(pki.Submission{ID: id, Key: key, Decided: true}); err != nil {
		return Verdict{State: pki.Denied, Act: "denied", New: true}, err
	}
	k.bounds.spend(host)
	state, err = k.accept(pki.Entry{ID: id, State: state, Key: key}, source, "open_mode")
	return Verdict{State: state, Act: Act(state), New: true}, err
}

// GrainsCount reports whether a key can be accepted because of its minion's grains.
func (k *Keyring) GrainsCount() bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.rules.grainsDir != ""
}

// SignByGrains accepts a waiting key whose minion has sent a grain with a value in that grain's
// file in autosign_grains_dir.
func (k *Keyring) SignByGrains(e pki.Entry, source string, grains map[string]string) (bool, error) {
	k.mu.RLock()
	dir := k.rules.grainsDir
	k.mu.RUnlock()
	if dir == "" {
		return false, nil
	}
	for name, shown := range grains {
		if shown == "" || filepath.Base(name) != name || strings.HasPrefix(name, ".") {
			continue // the name comes from the peer and is used as a file name
		}
		lines, err := ruleLines(filepath.Join(dir, name))
		if err != nil {
			return false, err
		}
		if slices.Contains(lines, shown) {
			if err := k.mayAccept(""); err != nil {
				return false, err
			}
			k.bounds.spend("")
			_, err := k.accept(e, source, "autosign_grains_dir: "+filepath.Join(dir, name))
			return err == nil, err
		}
	}
	return false, nil
}
