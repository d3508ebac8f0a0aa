// Package fleet is what the master knows of its minions: who is connected, and was when;
// their grains, pillar and mine; and so which of them a target means. It decides nothing
// about who may ask, and sends no jobs.
package fleet

import (
	"context"
	"log/slog"

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

// Keys says whose keys are accepted.
type Keys interface {
	// IDs are the minions with an accepted key, sorted. The slice is not changed.
	IDs() []salt.MinionID
	// Token names the accepted key of a minion, as the key store has it now; "" for none.
	Token(id salt.MinionID) (string, error)
}

// Events takes what is told of the fleet.
type Events interface {
	Announce(tag string, data any)
}

// Options are what a fleet needs of its master.
type Options struct {
	Journal     *journal.Journal
	Keys        Keys
	Events      Events
	Nodegroups  func() map[string]any // in force, as package target takes them
	PillarRoots map[string][]string
	Log         *slog.Logger
	// MayReadMine decides whether a minion may read entries of the mine, and writes that
	// down. The target is nil where it cannot be read.
	MayReadMine func(ctx context.Context, from bus.Identity, t *target.Target, tgt, kind string, names []string) decision.Decision
	// MayTarget says whether a minion may name others by this target, which may look at
	// pillar. Refused writes down that it may not, and is what the minion is told.
	MayTarget func(salt.MinionID, *target.Target) bool
	Refused   func(owner salt.MinionID, what, expression string) error
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
}

// Open reads what is known from before.
func Open(ctx context.Context, o Options) (*Fleet, error) {
	f := &Fleet{Options: o, evaluations: NewEvaluations()}
	var err error
	if f.grains, err = openGrains(ctx, o.Journal); err != nil {
		return nil, err
	}
	if f.mine, err = openMine(ctx, o.Journal); err != nil {
		return nil, err
	}
	f.Presence, err = openPresence(ctx, o.Journal)
	return f, err
}

// IDs are the minions with an accepted key, sorted. It implements acl.Fleet.
func (f *Fleet) IDs() []salt.MinionID { return f.Keys.IDs() }

// Facts are what targets look at of a minion. It implements acl.Fleet.
func (f *Fleet) Facts(id salt.MinionID) target.Facts {
	return target.Facts{ID: id, Grains: f.grains.of(id), Pillar: f.pillars.of(id)}
}

// Grains returns what a minion last said of itself, nil for nothing. The map must not be
// changed.
func (f *Fleet) Grains(id salt.MinionID) map[string]any { return f.grains.of(id) }

// StoreGrains keeps what a minion says of itself, see CheckGrains.
func (f *Fleet) StoreGrains(ctx context.Context, id salt.MinionID, grains any) error {
	return f.grains.store(ctx, id, grains)
}

// Mine is what a minion keeps for others, decoded; nil for nothing.
func (f *Fleet) Mine(id salt.MinionID) (map[string]any, error) { return f.mine.shown(id) }

// Forget drops what a minion without any accepted key once said.
func (f *Fleet) Forget(ctx context.Context, id salt.MinionID) {
	if accepted, err := f.Keys.Token(id); err != nil || accepted != "" {
		return
	}
	f.pillars.set(id, nil)
	if err := f.mine.forget(ctx, id); err != nil {
		f.Log.Warn("mine of a deleted minion not dropped", "minion", id, "err", err)
	}
	if err := f.grains.forget(ctx, id); err != nil {
		f.Log.Warn("facts of a deleted minion not dropped", "minion", id, "err", err)
	}
}

// DropGrains forgets what a minion last said of itself, until it says it again.
func (f *Fleet) DropGrains(ctx context.Context, id salt.MinionID) error {
	return f.grains.forget(ctx, id)
}

// DropPillar forgets the pillar by which targets know a minion, until it asks for it again.
func (f *Fleet) DropPillar(id salt.MinionID) { f.pillars.set(id, nil) }

// DropMine forgets what a minion keeps for others: one entry, or all for "".
func (f *Fleet) DropMine(ctx context.Context, id salt.MinionID, entry string) error {
	if len(f.mine.of(id)) == 0 {
		return nil
	}
	return f.mine.change(ctx, id, mine.Change{Clear: entry == "", Delete: []string{entry}})
}

// ForgetDeleted drops what minions left in the mine whose keys were deleted while the
// master did not run.
func (f *Fleet) ForgetDeleted(ctx context.Context) {
	for _, id := range f.mine.ids() {
		f.Forget(ctx, id)
	}
}

// Refresh takes the grains of a minion anew.
func (f *Fleet) Refresh(ctx context.Context, r *rpc.Request) error {
	if err := f.CheckGrains(r); err != nil {
		return err
	}
	var q protocol.Hello
	if err := r.Decode(&q); err != nil {
		return err
	}
	if err := f.grains.store(ctx, salt.MinionID(r.From.Name), q.Grains.V); err != nil {
		return rpc.Errorf(rpc.Usage, "%v", err)
	}
	f.Events.Announce("minion/refresh/"+r.From.Name, map[string]any{"Minion data cache refresh": r.From.Name})
	return nil
}

// CheckGrains refuses a request with grains that are too large, before they are read. The
// minion is told each time.
func (f *Fleet) CheckGrains(r *rpc.Request) error {
	err := checkGrains(r.Body)
	if err == nil {
		return nil
	}
	f.warned.Log(f.Log, slog.LevelWarn, "grains "+r.From.Name, 1, "grains refused", "minion", r.From.Name, "err", err)
	return err
}
