package eventbus

import (
	"context"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/protocol"
)

// Figures are the metrics at one moment.
type Figures struct {
	Journal   event.Extent
	Taken     map[string]uint64 // events since the start, by the kind of sender
	Positions []protocol.PositionStat
	Mirrors   []protocol.MirrorStat
	// DeadDropped is how many dead letters of the reactor gave way to newer ones since the start.
	DeadDropped uint64
}

// Figures returns the metrics. What cannot be read now is left empty.
func (r *Bus) Figures(ctx context.Context) Figures {
	f := Figures{Taken: r.journal.Taken(), Mirrors: r.mirrorStats(ctx), DeadDropped: r.dead.gaveWay.Load()}
	extent, err := r.journal.Extent(ctx)
	if err != nil {
		r.log.Debug("the size of the journal is not known", "err", err)
		return f
	}
	f.Journal = extent
	ends, err := allEnds(ctx, r, extent.Last)
	if err == nil {
		f.Positions, err = r.positions.stats(ctx, ends)
	}
	if err != nil {
		r.log.Debug("the positions of listeners cannot be read", "err", err)
	}
	return f
}
