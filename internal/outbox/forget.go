package outbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/brinebus/brine/internal/salt"
)

// Keys report which minions have a key.
type Keys interface {
	// Has reports whether there is a key of that id, accepted or not.
	Has(id salt.MinionID) (bool, error)
}

const (
	// forgetAfter is how long a minion has no key until what is stored of its outbox is forgotten. A key that
	// is deleted by mistake is accepted again meanwhile, and the minion may repeat what was not confirmed.
	forgetAfter = time.Hour
	forgetEvery = 10 * time.Minute // so often keys are looked for
	forgetTime  = 10 * time.Second // limits one look, since checkpoints wait for it
)

// forget removes what is known of minions that have had no key since after: where minions live for
// minutes only, there would be more with every day. It is not called at the same time as checkpoint.
func (w *watermarks) forget(ctx context.Context, keys Keys, after time.Duration) (err error) {
	ctx, cancel := context.WithTimeout(ctx, forgetTime)
	defer cancel()
	w.mu.Lock()
	ids := slices.Collect(maps.Keys(w.senders))
	w.mu.Unlock()
	for _, id := range ids {
		has, bad := keys.Has(id)
		if bad == nil && w.isKeyless(id, has, after) {
			bad = w.remove(ctx, id)
		}
		if err = errors.Join(err, bad); ctx.Err() != nil {
			return err
		}
	}
	return err
}

// isKeyless records whether a minion has a key now, and reports whether it has had none since after.
func (w *watermarks) isKeyless(id salt.MinionID, has bool, after time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, now := w.senders[id], time.Now()
	if s == nil {
		return false
	}
	if has {
		s.keyless = time.Time{}
		return false
	}
	if s.keyless.IsZero() {
		s.keyless = now
		return false
	}
	return now.Sub(s.keyless) >= after
}

// remove removes a minion, unless something of it is being stored, or may be.
func (w *watermarks) remove(ctx context.Context, id salt.MinionID) error {
	s := w.tryBegin(id)
	if s == nil {
		return nil
	}
	defer s.end()
	if s.doubt || len(s.asking) > 0 {
		return nil
	}
	if err := w.table.Remove(ctx, string(id)); err != nil {
		return fmt.Errorf("forget the outbox of %s: %w", id, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s.gone = true
	delete(w.senders, id)
	return nil
}
