package fleet

import (
	"context"
	"crypto/sha256"
	"log/slog"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
)

// Grains of a cluster. Each member holds those of all minions in memory, and follows the table, so that all know what
// one of them stores or deletes, also after it was cut off. What a minion has told here and is not stored yet counts
// more than the table; of what is stored the newest counts.

// follow takes over what other members store and delete, until ctx ends.
func (g *grains) follow(ctx context.Context, log *slog.Logger) {
	for ; ctx.Err() == nil; sleep(ctx, watchPause) {
		err := g.reader.Follow(ctx)
		if ctx.Err() == nil {
			log.Warn("the grains of the other members are not followed for the moment", "err", err)
		}
	}
}

// hear takes over an entry of the table, unless something newer is known.
func (g *grains) hear(e journal.TableEntry) {
	id, err := salt.ParseMinionID(e.Key)
	if err != nil {
		return
	}
	g.mu.Lock()
	changed := g.take(id, e)
	g.mu.Unlock()
	if changed {
		g.changed(id)
	}
}

// take is hear for one minion, and reports whether other grains are known of it now. The caller holds mu.
//
// An older write may be stored after a newer one, by a member that the minion was connected to before. So what the
// minion has told here is written once more, unless it is connected to other members, too: it may tell each of them
// something else.
func (g *grains) take(id salt.MinionID, e journal.TableEntry) (changed bool) {
	known, ok := g.byID[id]
	if e.Revision <= known.revision || g.void.covers(id, e.Revision) {
		return false
	}
	if g.later.waits(id) {
		g.deferred[id] = e
		return false
	}
	if e.Value == nil {
		delete(g.byID, id)
		return ok
	}
	if ok && sha256.Sum256(e.Value) == known.whole {
		known.stored, known.revision = true, e.Revision
		g.byID[id] = known
		return false
	}
	if here, more := g.places(id); here && !more && known.update != known.restored {
		known.stored, known.revision, known.restored = false, e.Revision, known.update
		g.byID[id] = known
		g.later.put(id, known.encoded())
		return false
	}
	g.read(id, e)
	return true
}

// takeDeferred takes what was heard while something of id was to be written, and reports whether other grains are known of
// it now. The caller holds mu.
func (g *grains) takeDeferred(id salt.MinionID) (changed bool) {
	e, ok := g.deferred[id]
	if !ok || g.later.waits(id) {
		return false
	}
	delete(g.deferred, id)
	return g.take(id, e)
}

// wrote records that a write is stored.
func (g *grains) wrote(id salt.MinionID, w *grainsWrite, revision uint64) {
	g.mu.Lock()
	changed := false
	if g.later.stored(id, w) {
		if f, ok := g.byID[id]; ok {
			f.stored, f.revision = true, revision
			g.byID[id] = f
		}
		changed = g.takeDeferred(id)
	}
	g.mu.Unlock()
	if changed {
		g.changed(id)
	}
}

// moved reports whether a write that could not be stored is one of a minion that has left for another member
// meanwhile: it has told that one its grains.
func (g *grains) moved(id salt.MinionID, w *grainsWrite) bool {
	if !w.failed {
		return false
	}
	here, more := g.places(id)
	return more && !here
}

// giveUp drops a write, unless there is a newer one.
func (g *grains) giveUp(id salt.MinionID, w *grainsWrite) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.later.stored(id, w) {
		g.takeDeferred(id)
	}
}

// check compares what is known of id with the table: another member, which the minion is connected to, knows no
// grains of it.
func (g *grains) check(ctx context.Context, id salt.MinionID) error {
	e, err := g.table.Entry(ctx, string(id))
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	known := g.byID[id]
	if e.Value == nil && !g.later.waits(id) && (!known.stored || known.revision <= e.Revision) {
		delete(g.byID, id)
		return nil
	}
	g.take(id, e)
	return nil
}

// clear deletes the grains of id, in the table and in memory; not those that it tells meanwhile.
func (g *grains) clear(ctx context.Context, id salt.MinionID) error {
	if g.later == nil {
		g.forget(id)
		return g.void.deleteNow(ctx, id)
	}
	g.mu.RLock()
	before := g.byID[id]
	g.mu.RUnlock()
	if err := g.table.Delete(ctx, string(id)); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := g.byID[id]; now.update == before.update && now.revision == before.revision {
		g.drop(id)
	}
	return nil
}
