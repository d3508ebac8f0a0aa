package fleet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"sync"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// Limits of the grains of one minion. A normal machine has some ten kilobytes and some hundred
// values; in memory, crafted values take fifty times their text.
const (
	maxGrains     = 256 << 10 // bytes
	maxGrainItems = 10_000    // values
	// Larger grains are kept as text and decoded when needed; the latest decoded ones are
	// cached.
	textGrains     = 32 << 10
	textGrainItems = 2000
	maxAtHand      = 8
)

// checkGrains refuses too large grains before they are decoded.
func checkGrains(body []byte) error {
	items := value.Count(body)
	if len(body) <= maxGrains && items <= maxGrainItems {
		return nil
	}
	return tooLargeGrains(len(body), items)
}

func tooLargeGrains(size, items int) error {
	return rpc.Errorf(rpc.Usage, "the grains of this minion have %d bytes and %d values: the limits are %d and %d", size, items, maxGrains, maxGrainItems).
		WithHint("see which of the grains configuration, the file of grains or a module for them makes so many; 'salt-call --local grains.items' shows them")
}

// grains are the grains of all minions. They are stored in the journal, and held in memory to
// match targets.
type grains struct {
	table   *journal.Table
	later   *laterGrains // in a cluster
	void    *deletions
	mu      sync.RWMutex
	byID    map[salt.MinionID]fact
	updates uint64 // counts what minions have told

	// The next ones are for a cluster, see follow.
	reader   *journal.TableReader
	deferred map[salt.MinionID]journal.TableEntry  // what was heard while something of the minion was to be written
	places   func(salt.MinionID) (here, more bool) // whether a minion is connected here, and to other members
	changed  func(salt.MinionID)                   // called after others have changed or deleted grains

	handMu sync.Mutex
	hand   []handed // the latest last
}

// fact is the grains of one minion: decoded, or if they are large their text.
type fact struct {
	grains map[string]any
	text   *[]byte
	sum    string // a checksum of the text, for others
	whole  [sha256.Size]byte
	update uint64 // which of the grains that minions have told these are; 0 if another member has told them
	stored bool   // the table has them
	// revision is that of the newest entry of the table that is known, 0 for none.
	revision uint64
	restored uint64 // the update that was written once more, see hear
}

// encoded returns the text.
func (f fact) encoded() []byte {
	if f.text != nil {
		return *f.text
	}
	b, _ := value.Encode(f.grains) // it was encoded before
	return b
}

// handed is a cached decoded text.
type handed struct {
	text   *[]byte
	grains map[string]any
}

func openGrains(ctx context.Context, j *journal.Journal) (*grains, error) {
	table, err := j.Table(ctx, "grains")
	if err != nil {
		return nil, err
	}
	g := &grains{table: table, void: newDeletions(table), byID: map[salt.MinionID]fact{}, deferred: map[salt.MinionID]journal.TableEntry{}}
	g.void.reread = g.recall
	g.places, g.changed = func(salt.MinionID) (here, more bool) { return false, false }, func(salt.MinionID) {}
	g.reader = &journal.TableReader{Table: table, Known: g.stored, Hear: func(e *journal.TableEntry) {
		if e != nil {
			g.hear(*e)
		}
	}}
	return g, g.reader.Read(ctx)
}

// stored returns the ids of which entries are known.
func (g *grains) stored() (ids []string) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for id, f := range g.byID {
		if f.revision > 0 {
			ids = append(ids, string(id))
		}
	}
	return ids
}

// read takes what is stored of a minion. If that is not readable, the minion gets an error at its next
// hello. The caller holds mu.
func (g *grains) read(id salt.MinionID, e journal.TableEntry) {
	delete(g.byID, id)
	if checkGrains(e.Value) != nil {
		return
	}
	if v, err := value.Decode(e.Value); err == nil {
		if grains, ok := v.(map[string]any); ok {
			f := newFact(grains, e.Value)
			f.stored, f.revision = true, e.Revision
			g.byID[id] = f
		}
	}
}

// recall reads the grains of a minion from the table, unless it has told newer ones.
func (g *grains) recall(ctx context.Context, id salt.MinionID) error {
	e, err := g.table.Entry(ctx, string(id))
	if err != nil || e.Value == nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, known := g.byID[id]; !known {
		g.read(id, e)
	}
	return nil
}

// learn takes over grains that another member has stored, unless the minion has told some here since
// lastUpdate returned before.
func (g *grains) learn(id salt.MinionID, grains map[string]any, before uint64) error {
	b, err := value.Encode(grains)
	if err == nil {
		err = checkGrains(b)
	}
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	known := g.byID[id]
	if known.update != before {
		return errUpdated
	}
	f := newFact(grains, b)
	f.stored, f.revision = known.stored && known.whole == f.whole, known.revision
	g.byID[id] = f
	g.later.drop(id)
	g.void.drop(id)
	g.takeDeferred(id)
	return nil
}

// lastUpdate returns which grains id has told here last, 0 for none.
func (g *grains) lastUpdate(id salt.MinionID) uint64 {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.byID[id].update
}

// update takes grains that id has told here. The caller holds mu.
func (g *grains) update(id salt.MinionID, f fact) {
	g.updates++
	f.update = g.updates
	g.byID[id] = f
}

func newFact(grains map[string]any, text []byte) fact {
	f := fact{sum: checksum(text), whole: sha256.Sum256(text)}
	if len(text) > textGrains || value.Count(text) > textGrainItems {
		text = slices.Clone(text)
		f.text = &text
		return f
	}
	f.grains = grains
	return f
}

// checksum is a short one, by which members see whether they know the same.
func checksum(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// of returns the latest grains of id, nil if there are none. The map must not be changed.
func (g *grains) of(id salt.MinionID) map[string]any {
	g.mu.RLock()
	said := g.byID[id]
	g.mu.RUnlock()
	if said.text == nil {
		return said.grains
	}
	return g.decoded(said.text)
}

// ids returns the minions with grains.
func (g *grains) ids() []salt.MinionID {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return slices.Collect(maps.Keys(g.byID))
}

// sum returns a checksum of the latest grains of id, "" if there are none.
func (g *grains) sum(id salt.MinionID) string {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.byID[id].sum
}

// repeats reports whether id tells the text again that is stored, or about to be.
func (g *grains) repeats(id salt.MinionID, text []byte) bool {
	sum := sha256.Sum256(text)
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.byID[id]
	if now.whole != sum || !now.stored && !g.later.waits(id) {
		return false
	}
	g.update(id, now)
	return true
}

// decoded decodes a text, or returns it from the cache.
func (g *grains) decoded(text *[]byte) map[string]any {
	g.handMu.Lock()
	defer g.handMu.Unlock()
	for _, h := range g.hand {
		if h.text == text {
			return h.grains
		}
	}
	v, _ := value.Decode(*text) // encoded by us
	grains, _ := v.(map[string]any)
	g.hand = append(g.hand, handed{text, grains})
	if len(g.hand) > maxAtHand {
		g.hand = slices.Delete(g.hand, 0, 1)
	}
	return grains
}

// forget drops the grains of id, and has them deleted in the table.
func (g *grains) forget(id salt.MinionID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	revision := uint64(0)
	if g.later != nil && !g.later.waits(id) { // what is being written may be stored already, at a revision that is not known
		revision = max(g.byID[id].revision, g.deferred[id].Revision) // what another member stores later stays
	}
	g.drop(id)
	g.void.add(id, revision)
}

// drop drops what is known of id, and what is not stored yet. The caller holds mu.
func (g *grains) drop(id salt.MinionID) {
	delete(g.byID, id)
	delete(g.deferred, id)
	g.later.drop(id)
}

func (g *grains) store(ctx context.Context, id salt.MinionID, v any) error {
	grains, ok := v.(map[string]any)
	if !ok {
		return rpc.Errorf(rpc.Usage, "grains of %s are not a map", id)
	}
	b, err := value.Encode(grains)
	if err != nil {
		return err
	}
	if err := checkGrains(b); err != nil {
		return err
	}
	if g.repeats(id, b) {
		return nil // most minions say the same at each hello
	}
	f := newFact(grains, b)
	if g.later != nil {
		g.mu.Lock()
		f.revision = g.byID[id].revision
		g.update(id, f)
		w := g.later.put(id, b)
		g.mu.Unlock()
		w.wait(ctx)
		return nil
	}
	if f.revision, err = g.put(ctx, id, b); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	f.stored = true
	g.update(id, f)
	return nil
}

// put stores a text, after what is still to be deleted, and returns its revision.
func (g *grains) put(ctx context.Context, id salt.MinionID, text []byte) (uint64, error) {
	if err := g.void.deleteNow(ctx, id); err != nil {
		return 0, err
	}
	return g.table.Set(ctx, string(id), text)
}
