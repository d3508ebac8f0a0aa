package eventbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/lease"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// Taken is a dead letter that is handled again, by nobody else at the same time. It stays stored until that has succeeded. In a cluster its entry names the member, so
// that others leave it alone; after a kill it is free when the lease of that member has ended.
type Taken struct {
	Letter protocol.DeadLetter

	dead     *DeadLetters
	key      string
	revision uint64          // of its entry, in a cluster
	holder   lease.Holder    // this member, as in the entry
	term     context.Context // ends when another member may take it; nil for a single master
}

// heldLetter is a dead letter as stored, with the member of a cluster that has taken it.
type heldLetter struct {
	protocol.DeadLetter
	Holder lease.Holder `json:"holder,omitzero"`
}

// errTaken is why a dead letter cannot be taken.
func errTaken(where string) error {
	return rpc.Errorf(rpc.Busy, "it is being handled again already%s", where)
}

// takeTries is how often a dead letter is looked at again that changes while it is taken.
const takeTries = 5

// Take takes a dead letter of the daemon's own handler, until Done or Release is called. It returns
// nil if it is no longer there.
func (s *DeadLetters) Take(ctx context.Context, l protocol.DeadLetter) (*Taken, error) {
	return s.take(ctx, letterKey(daemonOwner, l.Name, l.Journal, l.Seq))
}

// take is Take for the dead letter of any owner.
func (s *DeadLetters) take(ctx context.Context, key string) (*Taken, error) {
	t, err := s.tables.get(ctx, "dead")
	if err != nil {
		return nil, err
	}
	k := &Taken{dead: s, key: key}
	if !s.begin(k.key) {
		return nil, errTaken("")
	}
	there := false
	if s.member == nil {
		there, err = k.read(ctx, t)
	} else {
		there, err = k.claim(ctx, t)
	}
	switch {
	case err == nil && there:
		return k, nil
	case k.term != nil:
		k.Release() // what is taken without an answer is taken all the same
	default:
		s.end(k.key)
	}
	return nil, err
}

// begin marks a dead letter as taken at this daemon; it is false if it is already.
func (s *DeadLetters) begin(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[key] {
		return false
	}
	s.taken[key] = true
	return true
}

func (s *DeadLetters) end(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.taken, key)
}

// read is claim for a single master.
func (k *Taken) read(ctx context.Context, t *journal.Table) (there bool, err error) {
	b, err := t.Get(ctx, k.key)
	if b == nil || err != nil {
		return false, err
	}
	return true, json.Unmarshal(b, &k.Letter)
}

// claim writes this member into the entry, at the revision at which nobody else has it.
func (k *Taken) claim(ctx context.Context, t lease.Table) (there bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	holder, term, err := k.dead.member.lease.Holder(ctx)
	if err != nil {
		return false, fmt.Errorf("this member has no lease: %w", err)
	}
	for range takeTries {
		var have *heldLetter
		if have, err = k.look(ctx, t); have == nil || err != nil {
			return false, err
		}
		if have.Holder != holder { // what this member has not given back in an earlier attempt is free
			live, err := k.dead.member.lease.Live(ctx, have.Holder)
			if err != nil {
				return false, err
			}
			if live {
				return false, errTaken(" at the member " + have.Holder.Member)
			}
		}
		have.Holder = holder
		if err = k.write(ctx, t, *have); !errors.Is(err, journal.ErrChanged) {
			k.Letter, k.holder, k.term = have.DeadLetter, holder, term
			return err == nil, err
		}
	}
	return false, err
}

// look reads the entry, nil if there is none, and remembers its revision.
func (k *Taken) look(ctx context.Context, t lease.Table) (*heldLetter, error) {
	e, err := t.Entry(ctx, k.key)
	if err != nil || e.Value == nil {
		return nil, err
	}
	k.revision = e.Revision
	have := new(heldLetter)
	return have, json.Unmarshal(e.Value, have)
}

func (k *Taken) write(ctx context.Context, t lease.Table, l heldLetter) error {
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	revision, err := t.Update(ctx, k.key, b, k.revision)
	if err == nil {
		k.revision = revision
	}
	return err
}

// Context returns ctx with an end when another member may take the dead letter, since the lease of
// this one has ended.
func (k *Taken) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if k.term == nil {
		return ctx, func() { cancel(nil) }
	}
	stop := context.AfterFunc(k.term, func() { cancel(errLeaseEnded) })
	return ctx, func() { stop(); cancel(nil) }
}

var errLeaseEnded = errors.New("the lease of this member has ended, so that another one may handle it")

// Done deletes the dead letter, which was handled, also for a caller who has gone. If another member
// has taken it meanwhile, it stays.
func (k *Taken) Done(ctx context.Context) error {
	defer k.dead.end(k.key)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTime)
	defer cancel()
	t, err := k.dead.tables.get(ctx, "dead")
	if err == nil {
		err = k.remove(ctx, t)
	}
	if err != nil {
		return fmt.Errorf("it was handled, but stays a dead letter: %w", err)
	}
	k.dead.mu.Lock()
	defer k.dead.mu.Unlock()
	if _, known := k.dead.known[k.key]; known { // watch may have heard of it already
		k.dead.gone(k.key, k.revision)
	}
	return nil
}

func (k *Taken) remove(ctx context.Context, t *journal.Table) error {
	if k.term == nil {
		return t.Delete(ctx, k.key)
	}
	err := t.DeleteAt(ctx, k.key, k.revision)
	if !errors.Is(err, journal.ErrChanged) {
		return err
	}
	have, bad := k.look(ctx, t)
	if have == nil && bad == nil {
		return nil // somebody has dropped it, or an attempt without an answer has deleted it
	}
	return errors.Join(err, bad)
}

// Release gives the dead letter back, which was not handled.
func (k *Taken) Release() {
	defer k.dead.end(k.key)
	if k.term == nil || k.term.Err() != nil {
		return
	}
	k.dead.member.giveBack(k.term, k.key, func(ctx context.Context) error {
		t, err := k.dead.tables.get(ctx, "dead")
		if err != nil {
			return err
		}
		return k.free(ctx, t)
	})
}

// free stores the entry without this member. If a write before it has got no answer, and was stored, it does so after
// that one.
func (k *Taken) free(ctx context.Context, t lease.Table) error {
	err := k.write(ctx, t, heldLetter{DeadLetter: k.Letter})
	if !errors.Is(err, journal.ErrChanged) {
		return err
	}
	have, err := k.look(ctx, t)
	if err != nil || have == nil || have.Holder != k.holder {
		return err
	}
	return k.write(ctx, t, heldLetter{DeadLetter: k.Letter})
}
