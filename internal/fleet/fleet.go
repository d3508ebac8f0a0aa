// Package fleet is what the master knows of its minions: which are connected, or when they last
// were; their grains, pillar and mine; and so which of them a target matches. It decides no
// permissions, and sends no jobs.
package fleet

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/authz/decision"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/mine"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/semaphore"
	"github.com/brinebus/brine/internal/target"
)

// Keys reports whose keys are accepted.
type Keys interface {
	// IDs returns the minions with an accepted key, sorted. The slice must not be changed.
	IDs() []salt.MinionID
	// Token returns the token of a minion's accepted key, as the key store has it now; "" for
	// none.
	Token(id salt.MinionID) (string, error)
}

// Decisions are what the masters that write the same tables have decided about keys.
type Decisions interface {
	// Decided reports whether they accept a key of a minion, and whether they have refused or
	// deleted one; known is false until all that they have decided is known.
	Decided(id salt.MinionID) (accepted, refused, known bool)
}

// Events stores events about the fleet.
type Events interface {
	Announce(tag string, data any)
}

// Options are what a Fleet needs from its master.
type Options struct {
	Journal     *journal.Journal
	Keys        Keys
	Events      Events
	Nodegroups  func() map[string]any // in force, as package target takes them
	PillarRoots map[string][]string
	Log         *slog.Logger
	// MayReadMine decides whether a minion may read entries of the mine, and records that. The
	// target is nil if it cannot be parsed.
	MayReadMine func(ctx context.Context, from bus.Identity, t *target.Target, tgt, kind string, names []string) decision.Decision
	// MayTarget reports whether a minion may use this target for others, which may match by
	// pillar. Refused records a refusal, and returns the error for the minion.
	MayTarget func(salt.MinionID, *target.Target) bool
	Refused   func(owner salt.MinionID, what, expression string) error
	// Members hears which minions are connected here; nil for a single master.
	Members Members
	Name    string // of this member; "" for a single master
	// Decisions are nil for a master that writes its tables alone: then its keys are all there are.
	Decisions Decisions
}

// Fleet is all minions of one master.
type Fleet struct {
	Options
	*Presence

	grains      *grains
	mine        *mines
	pillars     pillars
	evaluations *semaphore.Keyed
	warned      logging.Throttle
	announced   announced
	gone        chan struct{} // gets a message when a minion is no longer connected here, in a cluster
	elsewhere   *Elsewhere    // in a cluster
	marks       journal.Marks // of deleted entries; without a table
}

// Open reads the stored data.
func Open(ctx context.Context, o Options) (*Fleet, error) {
	f := &Fleet{Options: o, evaluations: NewEvaluations()}
	var err error
	if f.grains, err = openGrains(ctx, o.Journal); err != nil {
		return nil, err
	}
	if o.Members != nil {
		f.grains.later, f.gone = newLaterGrains(), make(chan struct{}, 1)
	}
	if f.mine, err = openMine(ctx, o.Journal, o.Members != nil || o.Decisions != nil); err != nil {
		return nil, err
	}
	if f.Presence, err = openPresence(ctx, o.Journal, o.Name); err != nil {
		return nil, err
	}
	f.grains.places, f.grains.changed = f.places, f.tellChanged
	return f, nil
}

// IDs returns the minions with an accepted key, sorted. It implements acl.Fleet.
func (f *Fleet) IDs() []salt.MinionID { return f.Keys.IDs() }

// Facts returns what targets match a minion by. It implements acl.Fleet.
func (f *Fleet) Facts(id salt.MinionID) target.Facts {
	return target.Facts{ID: id, Grains: f.grains.of(id), Pillar: f.pillars.of(id)}
}

// Grains returns the latest grains of a minion, nil if there are none. The map must not be
// changed.
func (f *Fleet) Grains(id salt.MinionID) map[string]any { return f.grains.of(id) }

// StoreGrains stores the grains of a minion, see CheckGrains.
func (f *Fleet) StoreGrains(ctx context.Context, id salt.MinionID, grains any) error {
	return f.grains.store(ctx, id, grains)
}

// Mine returns the entries of a minion, decoded; nil if there are none.
func (f *Fleet) Mine(id salt.MinionID) (map[string]any, error) { return f.mine.shown(id) }

// Forget drops the data of a minion without an accepted key; a key whose file cannot be read may be accepted. Keep
// deletes what is stored of it.
func (f *Fleet) Forget(id salt.MinionID) {
	if accepted, err := f.Keys.Token(id); err != nil || accepted != "" {
		return
	}
	f.pillars.set(id, nil)
	f.mine.forget(id)
	f.grains.forget(id)
	f.forget(id)
}

// Keep records when minions were seen last, and deletes what is stored of those that are to be
// forgotten, until ctx ends.
func (f *Fleet) Keep(ctx context.Context, log *slog.Logger) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, void := range []*deletions{f.mine.void, f.grains.void} {
		wg.Go(func() { void.run(ctx, f.due, log) })
		marks := f.marks
		marks.Table, marks.Log = void.table, log
		wg.Go(func() { marks.Keep(ctx) })
	}
	if f.mine.shared {
		wg.Go(func() { f.mine.follow(ctx, log) })
	}
	if f.grains.later != nil {
		wg.Go(func() { f.grains.follow(ctx, log) })
	}
	if f.Decisions != nil {
		wg.Go(func() { f.forgetRefused(ctx, f.undecided()) })
	}
	f.Presence.Keep(ctx, log)
}

// due decides about the entries of a minion that was forgotten here. Other masters may have accepted
// its key again, and stored something of it.
func (f *Fleet) due(id salt.MinionID) dueState {
	switch key, err := f.Keys.Token(id); {
	case f.Decisions == nil && f.Members == nil:
		return dueNow
	case err == nil && key != "":
		return dueNever
	case f.Decisions == nil:
		return dueNow
	}
	if accepted, _, known := f.Decisions.Decided(id); accepted || !known {
		return dueLater // the key comes, or what is decided about it
	}
	return dueNow
}

// DropGrains deletes the grains of a minion, until it sends them again. The other members hear of it by the table.
func (f *Fleet) DropGrains(ctx context.Context, id salt.MinionID) error {
	if err := f.grains.clear(ctx, id); err != nil {
		return err
	}
	f.tellChanged(id)
	return nil
}

// DropPillar drops the pillar that targets match a minion by, here and at the other members that run, until it requests
// it again.
func (f *Fleet) DropPillar(ctx context.Context, id salt.MinionID) error {
	clearPillar(f, id)
	if f.elsewhere == nil {
		return nil
	}
	return f.elsewhere.clearPillar(ctx, id)
}

func clearPillar(f *Fleet, id salt.MinionID) {
	f.pillars.clear(id)
	f.tellChanged(id)
}

// DropMine deletes entries of a minion: one, or all for "".
func (f *Fleet) DropMine(ctx context.Context, id salt.MinionID, entry string) error {
	if !f.mine.shared && len(f.mine.of(id)) == 0 {
		return nil
	}
	return f.mine.change(ctx, id, mine.Change{Clear: entry == "", Delete: []string{entry}})
}

// ForgetDeleted forgets the minions whose keys were deleted while the master did not run, or just
// before it was killed. Where others write the same tables, it does nothing: a minion without a key
// here may be one that they have accepted meanwhile. Keep forgets those that were refused.
func (f *Fleet) ForgetDeleted() {
	if f.Decisions != nil || f.Members != nil {
		return
	}
	for _, id := range f.undecided() {
		f.Forget(id)
	}
}

// undecided returns the minions of which something is known, but no accepted key.
func (f *Fleet) undecided() []salt.MinionID {
	ids := slices.Concat(f.mine.ids(), f.grains.ids(), f.everSeen())
	slices.Sort(ids)
	return slices.DeleteFunc(slices.Compact(ids), f.accepted)
}

// forgetRefused forgets those of the minions whose keys were refused or deleted, and of whom no other
// key is accepted, as soon as that is known. Of whom nothing was decided nothing is deleted: another
// master may not have published yet that it accepts the key.
func (f *Fleet) forgetRefused(ctx context.Context, ids []salt.MinionID) {
	for len(ids) > 0 {
		ids = slices.DeleteFunc(ids, func(id salt.MinionID) bool {
			accepted, refused, known := f.Decisions.Decided(id)
			if !known || accepted {
				return f.accepted(id)
			}
			if refused {
				f.Forget(id)
			}
			return true
		})
		if len(ids) > 0 && !sleep(ctx, deletionPause) {
			return
		}
	}
}

func (f *Fleet) accepted(id salt.MinionID) bool {
	_, known := slices.BinarySearch(f.Keys.IDs(), id)
	return known
}

// Leave records the end of a connection, see Presence.Leave. The connections of a deleted key end
// after its minion was forgotten.
func (f *Fleet) Leave(id salt.MinionID, inbox string, now time.Time) bool {
	last := f.Presence.Leave(id, inbox, now)
	if last && !f.accepted(id) {
		f.forget(id)
	}
	return last
}

// Refresh stores new grains of a minion. The event counts for the minion's share of the journal,
// since it may send the same again and again.
func (f *Fleet) Refresh(ctx context.Context, r *rpc.Request) error {
	if err := f.CheckGrains(r); err != nil {
		return err
	}
	var q protocol.Hello
	if err := r.Decode(&q); err != nil {
		return err
	}
	if err := f.grains.store(ctx, salt.MinionID(r.From.Name), q.Grains.V); err != nil {
		return err
	}
	f.tellMembers(salt.MinionID(r.From.Name), held{})
	f.Events.Announce("minion/refresh/"+r.From.Name, map[string]any{"Minion data cache refresh": r.From.Name})
	return nil
}

// CheckGrains refuses a request with too large grains before they are decoded. The minion gets
// an error each time.
func (f *Fleet) CheckGrains(r *rpc.Request) error {
	err := checkGrains(r.Body)
	if err == nil {
		return nil
	}
	f.warned.Log(f.Log, slog.LevelWarn, "grains "+r.From.Name, 1, "grains refused", "minion", r.From.Name, "err", err)
	return err
}
