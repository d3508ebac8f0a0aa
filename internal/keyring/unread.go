package keyring

import (
	"maps"
	"slices"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// A key file that is there, but that the system cannot read now, stands for what was known of it: one
// failed read must not cost an accepted minion its connection. Such files are read again, see Unread.

// hear records the problems with the files that were read, those of ids in looked. Each is logged once: what cannot be
// read is tried again and again. The caller holds looking.
func (k *Keyring) hear(problems []pki.Problem, looked func(salt.MinionID) bool) {
	before := maps.Clone(k.problems)
	maps.DeleteFunc(k.problems, func(_ string, p pki.Problem) bool { return looked(p.ID) })
	for _, p := range problems {
		k.problems[p.Path] = p
		if was, logged := before[p.Path]; logged && was.Err.Error() == p.Err.Error() {
			continue
		}
		if p.Unread() {
			k.log.Error("this key file cannot be read now: its key counts as before until it can", "file", p.Path, "err", p.Err)
		} else {
			k.log.Warn("this file in the key directory is not a key", "file", p.Path, "err", p.Err)
		}
	}
}

// Unread returns the ids with a key file that could not be read: they should be looked at again.
func (k *Keyring) Unread() []salt.MinionID {
	k.looking.Lock()
	defer k.looking.Unlock()
	ids := map[salt.MinionID]bool{}
	for _, p := range k.problems {
		if p.Unread() && p.ID != "" {
			ids[p.ID] = true
		}
	}
	for id := range k.again {
		ids[id] = true
	}
	return slices.Collect(maps.Keys(ids))
}

// Refuse makes an accepted key whose file cannot be read count as rejected, or with the state Unknown as deleted,
// since who has refused it. That lasts until EndRefusal, also if the file, which still says that the key is accepted, can
// be read before.
func (k *Keyring) Refuse(name pki.Name, to pki.State, who audit.Who) error {
	k.mu.Lock()
	was, already := k.refused[name]
	k.refused[name] = to
	k.mu.Unlock()
	if already && was == to {
		return nil
	}
	act := Delete
	if to == pki.Rejected {
		act = Reject
	}
	k.actions.expect(name, act, who, "")
	err := k.Look(name.ID)
	k.lookAgain(name.ID) // by who cuts its connection
	return err
}

// EndRefusal ends what Refuse has begun: from now on the files say again what counts.
func (k *Keyring) EndRefusal(name pki.Name) {
	k.mu.Lock()
	_, refused := k.refused[name]
	delete(k.refused, name)
	k.mu.Unlock()
	if refused {
		k.lookAgain(name.ID)
	}
}

func (k *Keyring) lookAgain(id salt.MinionID) {
	k.looking.Lock()
	defer k.looking.Unlock()
	k.again[id] = true
}

// counts returns the state of a key that counts instead of that of its file, see Refuse. That of a deleted one is
// Denied: it cannot begin to wait before its file is removed.
func (k *Keyring) counts(name pki.Name, file pki.State) pki.State {
	k.mu.RLock()
	defer k.mu.RUnlock()
	to, refused := k.refused[name]
	switch {
	case !refused || file != pki.Accepted:
		return file
	case to == pki.Unknown:
		return pki.Denied
	}
	return to
}

// override replaces the states of refused keys among those of id. The caller holds mu.
func (k *Keyring) override(id salt.MinionID, now map[string]pki.State) {
	for finger, is := range now {
		switch to, refused := k.refused[pki.Name{ID: id, Finger: finger}]; {
		case !refused || is != pki.Accepted:
		case to == pki.Unknown:
			delete(now, finger)
		default:
			now[finger] = to
		}
	}
}

// unread returns the states of the files that could not be read, by id.
func unread(problems []pki.Problem) map[salt.MinionID]map[pki.State]bool {
	all := map[salt.MinionID]map[pki.State]bool{}
	for _, p := range problems {
		if !p.Unread() || p.ID == "" {
			continue
		}
		if all[p.ID] == nil {
			all[p.ID] = map[pki.State]bool{}
		}
		all[p.ID][p.State] = true
	}
	return all
}

// keep returns the present keys of id with those that were known in one of the unread states. As in note, a
// refusal takes precedence, also one that no file has. The caller holds mu.
func (k *Keyring) keep(id salt.MinionID, now map[string]pki.State, unread map[pki.State]bool) map[string]pki.State {
	for finger, was := range k.known[id] {
		_, refused := k.refused[pki.Name{ID: id, Finger: finger}]
		if !unread[was] && !(refused && unread[pki.Accepted]) {
			continue
		}
		if now == nil {
			now = map[string]pki.State{}
		}
		now[finger] = max(now[finger], was)
	}
	k.override(id, now)
	return now
}

// holdOn is hold for an accepted key that was kept. The caller holds mu.
func (k *Keyring) holdOn(id salt.MinionID, token string) {
	if token != "" && k.holders[id] == "" && k.isAccepted(id) {
		k.holders[id] = token
	}
}

// Stands reports whether the key of id with this token is accepted, as its files say now; a file that
// cannot be read counts as it was known.
func (k *Keyring) Stands(id salt.MinionID, token string) bool {
	entries, problems := k.Store.OfFiles(id)
	if slices.ContainsFunc(problems, func(p pki.Problem) bool { return !p.Unread() }) {
		return false // it may be a refusal
	}
	known := map[salt.MinionID]map[string]pki.State{}
	finger := ""
	for _, e := range entries {
		note(known, e)
		if bus.KeyToken(e.Key.Key()) == token {
			finger = e.Key.SHA256()
		}
	}
	states := unread(problems)[id]
	k.mu.RLock()
	defer k.mu.RUnlock()
	if finger == "" {
		return states[pki.Accepted] && token != "" && k.holders[id] == token
	}
	return k.keep(id, known[id], states)[finger] == pki.Accepted
}
