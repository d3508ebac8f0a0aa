package journal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/event"
)

// Purger removes events from a journal, but never the newest: a store without messages has the sequence that it has
// reached only in a block that the server does not sync. After a power cut a journal would number its events anew, and one
// with copies would have no leader any more (see Table.occupy).
type Purger struct {
	of     *source
	store  Store
	extent func(context.Context) (event.Extent, error)
}

// Purger returns what removes events from the journal.
func (j *Journal) Purger() Purger { return Purger{&j.source, j.writer.store, j.Extent} }

// PurgerOf returns what removes events from the journal of another member of the cluster, which need
// not run. known is false for the mirror of a journal that is somewhere else.
func PurgerOf(j *Journal, of *Mirror) (p Purger, known bool) {
	return Purger{&of.source, j.writer.store, of.Extent}, strings.HasPrefix(of.source.name, memberPrefix)
}

// SequenceAt returns the sequence of the first event from the time t on; if there is none, the
// one after the newest.
func (p Purger) SequenceAt(ctx context.Context, t time.Time) (uint64, error) {
	return p.of.SequenceAt(ctx, t)
}

// PurgeBefore removes every event before the sequence seq, except for the newest, and returns how many messages were
// removed.
func (p Purger) PurgeBefore(ctx context.Context, seq uint64) (uint64, error) {
	before, err := p.extent(ctx)
	if err != nil {
		return 0, err
	}
	if err := purgeHead(ctx, p.store, p.of.stream, before.First, min(seq, before.Last)); err != nil {
		return 0, fmt.Errorf("purge the journal: %w", err)
	}
	after, err := p.extent(ctx)
	if err != nil || after.Count > before.Count {
		return 0, err
	}
	return before.Count - after.Count, nil
}

// PurgeWhere removes the events before the sequence seq that match selects, except for the newest, one by one, and
// returns how many were removed.
func (p Purger) PurgeWhere(ctx context.Context, seq uint64, match func(text []byte) (bool, error)) (uint64, error) {
	now, err := p.extent(ctx)
	if err != nil {
		return 0, err
	}
	seq = min(seq, now.Last)
	join, pieces, gone := joiner{}, map[string][]uint64{}, uint64(0)
	err = p.of.For("", nil).messages(ctx, Query{}, func(m jetstream.Msg, at uint64) error {
		if at >= seq {
			return errEnd
		}
		part, text := piece(m.Headers(), m.Data())
		body, whole := join.join(part, text)
		id, _, _, _ := splitPart(part)
		all := append(pieces[id], at)
		if !whole {
			pieces[id] = all
			return nil
		}
		delete(pieces, id)
		if ok, err := match(body); !ok || err != nil {
			return err
		}
		gone++
		return p.remove(ctx, all)
	})
	return gone, err
}

func (p Purger) remove(ctx context.Context, sequences []uint64) error {
	for _, seq := range sequences {
		if err := p.of.stream.DeleteMsg(ctx, seq); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			return fmt.Errorf("remove event %d: %w", seq, err)
		}
	}
	return nil
}
