package accord

import (
	"errors"
	"fmt"
	"slices"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/keyring"
	"github.com/brinebus/brine/internal/pki"
)

// keystore is the key store of this master, as decisions of other masters change it.
type keystore struct{ *keyring.Keyring }

// of is the key store for what the other one of two masters has decided: each tells of what changes there.
func (s keystore) of(master string, e entry) *keyring.Store {
	return s.By(audit.Who{Source: "the master " + master}).Under(ruleOf(e, master))
}

func find(entries []pki.Entry, name pki.Name) (found pki.Entry) {
	for _, e := range entries {
		// If it is in two directories, the refusal counts, as everywhere.
		if e.Key.SHA256() == name.Finger && e.State >= found.State {
			found = e
		}
	}
	return found
}

// enforce brings a key of the store, which is zero if it is not there, into the state that
// follows from both decisions. It obeys the rules of the store: another accepted key of the
// same id stays. store is that for whoever has decided.
func (s keystore) enforce(name pki.Name, entries []pki.Entry, want Act, text string, store *keyring.Store) error {
	e := find(entries, name)
	if want == "" {
		return store.Delete(e)
	}
	if want == Accept {
		if err := s.mayAccept(name, entries); err != nil {
			return err
		}
	}
	if e.State == pki.Unknown {
		var err error
		if e, err = s.bring(name, text); err != nil {
			return err
		}
	}
	if want == Accept {
		return store.Accept(e)
	}
	return store.Reject(e)
}

// refuseUnread carries out a refusal of a key that may be the accepted one, whose file cannot be read: it counts
// until the file can be read and changed.
func (s keystore) refuseUnread(name pki.Name, want Act, who audit.Who) error {
	_, problems := s.Store.OfFiles(name.ID)
	if !slices.ContainsFunc(problems, func(p pki.Problem) bool { return p.Unread() && p.State == pki.Accepted }) {
		return nil
	}
	to := pki.Unknown
	if want == Reject {
		to = pki.Rejected
	}
	return s.Refuse(name, to, who)
}

// mayAccept returns an error if this master's own rules would not accept a key of this id.
func (s keystore) mayAccept(name pki.Name, entries []pki.Entry) error {
	for _, e := range entries {
		if e.State == pki.Accepted && e.Key.SHA256() != name.Finger {
			return fmt.Errorf("minion %q: %w: %s", name.ID, pki.ErrTaken, e.Key)
		}
	}
	if barred, err := s.Bars(name.ID); err != nil || barred {
		return errors.Join(err, fmt.Errorf("minion %q: the rules of this master on new keys reject it", name.ID))
	}
	return nil
}

// bring adds a key to the store that is new to this master.
func (s keystore) bring(name pki.Name, text string) (pki.Entry, error) {
	key, err := pki.ParsePublic([]byte(text))
	if err != nil {
		return pki.Entry{}, err
	}
	if key.SHA256() != name.Finger {
		return pki.Entry{}, errFalse
	}
	state, _, err := s.Store.SubmitFrom(pki.Submission{ID: name.ID, Key: key, Decided: true})
	return pki.Entry{ID: name.ID, Key: key, State: state}, err
}

// decided returns the keys with a decision, by their names. If one is in two directories, the refusal counts, as everywhere.
func (s keystore) decided() (map[string]Act, error) {
	entries, _, err := s.Store.List()
	keys := map[string]Act{}
	for _, e := range entries {
		if act, key := stateOf(e), keyOf(e.Name()); act.weight() > keys[key].weight() {
			keys[key] = act
		}
	}
	return keys, err
}
