package accord

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// Of one id a key store has one pending key and up to pki.MaxRefused denied ones. Members can claim more
// than that together, when minions come to several of them at the same moment. The order of the claims in the table
// decides then, so that all members come to the same.

// claimedIDs are the names of the claimed keys of each id.
type claimedIDs map[salt.MinionID][]string

func (ids claimedIDs) add(key string) {
	if name, ok := nameOf(key); ok {
		ids[name.ID] = append(ids[name.ID], key)
	}
}

func (ids claimedIDs) remove(key string) {
	name, _ := nameOf(key)
	left := slices.DeleteFunc(ids[name.ID], func(k string) bool { return k == key })
	if ids[name.ID] = left; len(left) == 0 {
		delete(ids, name.ID)
	}
}

// counts returns the state that a claimed key has at all members: pending for the first one of an id that
// is pending where it was claimed, denied for the first others, and Unknown for the rest and for what is not claimed. The
// caller holds mu.
func (w *waits) counts(key string, id salt.MinionID) pki.State {
	c, claimed := w.claims[key]
	if !claimed {
		return pki.Unknown
	}
	pending, earlier := false, 0
	for _, other := range w.ids[id] {
		if o := w.claims[other]; o.revision < c.revision {
			pending = pending || o.state() == pki.Pending
			earlier++
		}
	}
	if pending {
		earlier--
	}
	switch {
	case c.state() == pki.Pending && !pending:
		return pki.Pending
	case earlier >= pki.MaxRefused:
		return pki.Unknown
	}
	return pki.Denied
}

// claimed returns whether a key of an id is pending at all members, and how many are denied.
func (w *waits) claimed(id salt.MinionID) (pending bool, denied int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range w.ids[id] {
		switch w.counts(key, id) {
		case pki.Pending:
			pending = true
		case pki.Denied:
			denied++
		}
	}
	return pending, denied
}

// align gives a key that waits here the state in which it counts, and then writes that into the claim if it is one of
// this member: a denied key stays denied when the pending one is gone.
func (w *waits) align(ctx context.Context, key string, name pki.Name, entries []pki.Entry, c claim, counts pki.State) error {
	e, own := find(entries, name), c.Master == w.of.opts.Name
	switch {
	case counts == pki.Unknown && own:
		return w.dropClaim(ctx, key, c)
	case counts == pki.Unknown:
		return nil // its member gives the claim up
	}
	if e.State != counts {
		var err error
		if e, err = w.suspend(entries, e, counts); err != nil {
			return err
		}
	}
	if !own || e.State != counts || c.state() == counts {
		return nil
	}
	now := newClaim(c.Master, e)
	value, err := json.Marshal(now)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	revision, err := w.of.opts.Table.Update(ctx, claimOf(key), value, c.revision)
	if errors.Is(err, journal.ErrChanged) {
		return nil // the watch brings that
	}
	if err != nil {
		return w.of.unwritten(ctx, claimOf(key), err)
	}
	w.claimedAt(key, name, now, revision)
	return nil
}

// suspend makes a pending key denied, or a denied one pending. If there is no room for it, it is deleted: the result has
// the state Unknown then.
func (w *waits) suspend(entries []pki.Entry, e pki.Entry, as pki.State) (pki.Entry, error) {
	store := w.of.opts.Keys.Store
	if err := w.makeRoom(entries, e.Name(), as); err != nil {
		return e, err
	}
	err := store.Suspend(e, as)
	if errors.Is(err, pki.ErrFull) {
		err, as = w.evict(e), pki.Unknown
	}
	if err == nil {
		e.State = as
	}
	return e, err
}

// makeRoom makes room for a key of an id in the state in which it counts. Another pending key does not count as pending then,
// and of as many denied keys as a store can have at least one does not count.
func (w *waits) makeRoom(entries []pki.Entry, name pki.Name, as pki.State) error {
	var denied []pki.Entry
	for _, other := range entries {
		switch {
		case other.Name() == name:
		case other.State == pki.Denied:
			denied = append(denied, other)
		case other.State == pki.Pending && as == pki.Pending:
			if _, err := w.suspend(entries, other, pki.Denied); err != nil {
				return err
			}
		}
	}
	if as != pki.Denied || len(denied) < pki.MaxRefused {
		return nil
	}
	w.mu.Lock()
	i := slices.IndexFunc(denied, func(e pki.Entry) bool { return w.counts(keyOf(e.Name()), name.ID) == pki.Unknown })
	w.mu.Unlock()
	if i < 0 {
		return nil
	}
	return w.evict(denied[i])
}

// makeRoomForDecided makes room for a key that is not here and that others have decided about: it may be denied for a moment, and a
// flood of denied keys must not keep it out. What gives way is shown again by its minion, or by another member.
func (w *waits) makeRoomForDecided(entries []pki.Entry, name pki.Name) error {
	denied := slices.DeleteFunc(slices.Clone(entries), func(e pki.Entry) bool { return e.State != pki.Denied })
	if find(entries, name).State != pki.Unknown || len(denied) < pki.MaxRefused {
		return nil
	}
	return w.evict(denied[0])
}

// evict deletes a key, so that others of its id have room.
func (w *waits) evict(e pki.Entry) error {
	key := keyOf(e.Name())
	w.undoes(key, true)
	err := w.of.opts.Keys.Store.Evict(e)
	if err != nil {
		w.undoes(key, false)
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.brought, key)
	return nil
}

// retry is called when a key of an id has gone: there may be room for one that waits here and is not claimed.
func (w *waits) retry(entries []pki.Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range entries {
		if _, claimed := w.claims[keyOf(e.Name())]; waiting(e.State) && !claimed {
			w.of.due.mark(keyOf(e.Name()))
			w.of.signal()
		}
	}
}
