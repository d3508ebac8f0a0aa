package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/backoff"
)

// A deleted entry leaves a mark in its table, from which those learn of the deletion who have the entries in memory. Marks
// would be read by each start for ever, so Marks removes them after some time. It never removes the newest ones: where the
// server has to read all blocks, as after a kill, an entry that was replaced without a record of that (see rollup), by an
// older version or in a store of a cluster that is opened alone, may be there again once the mark that has replaced it is
// gone, until its block is written anew. So what must not come back is deleted with DeleteUntil.

const (
	// markTime is how long a mark stays at least. A reader that has heard nothing for missTime, which is less, reads
	// the table again.
	markTime = 30 * time.Minute
	missTime = 10 * time.Minute
	// keptMarks is how many of the newest marks of a table stay.
	keptMarks = 1000
	// marksAtOnce is how many are found at a time.
	marksAtOnce = 10_000
	// plainTime is how long a mark that does not say until when it stays is kept where others do: it was made by an older
	// version. Tokens do not live longer, as a rule.
	plainTime = 400 * 24 * time.Hour
)

const (
	// untilMark is the operation of a mark that says until when it stays, and untilHeader has that time.
	untilMark   = "DEL"
	untilHeader = "Salt-Until"
)

// DeleteUntil is Delete for an entry that must not come back before that time, whatever is lost or restored: its mark
// is not removed before.
func (t *Table) DeleteUntil(ctx context.Context, key string, until time.Time) error {
	err := t.write(ctx, func(ctx context.Context) error {
		if err := t.room(nil); err != nil {
			return err
		}
		answer, err := t.conn.RequestMsgWithContext(ctx, &nats.Msg{Subject: t.subject(key), Header: nats.Header{jetstream.MsgRollup: {jetstream.MsgRollupSubject}, operation: {untilMark}, untilHeader: {until.UTC().Format(time.RFC3339)}}})
		if err == nil {
			_, err = acknowledged(answer)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("delete %s of table %s: %w", key, t.name, err)
	}
	return t.store.Sync(t.stream())
}

// Marks are those that deletions have left in a table.
type Marks struct {
	Table *Table
	Log   *slog.Logger
	Dated bool          // the entries are deleted with DeleteUntil
	Every time.Duration // how long a mark stays at least; 0 is the usual time
	Most  int           // how many of the newest ones stay; 0 is the usual number
}

// Keep removes marks that are old until ctx ends. All members of a cluster may do so. A mark is old if it is older than what
// this process has seen some time ago: no clock matters, and none that is set removes one too early.
func (m Marks) Keep(ctx context.Context) {
	old, every := uint64(0), cmp.Or(m.Every, markTime)
	for {
		now, err := m.Table.state(ctx, 0)
		if err == nil {
			err = m.remove(ctx, old)
		}
		if err != nil && ctx.Err() == nil {
			m.Log.Warn("the marks of deleted entries are still there: they are removed later", "table", m.Table.Name(), "err", err)
		}
		old = max(old, now.LastSeq)
		if !backoff.Sleep(ctx, every+rand.N(every/2)) { // the members take turns
			return
		}
	}
}

// remove removes the marks that are not newer than the revision upto, except for the newest of all.
func (m Marks) remove(ctx context.Context, upto uint64) error {
	for after := uint64(0); upto > after; {
		list, more, err := m.find(ctx, after, upto)
		if err != nil || len(list) == 0 {
			return err
		}
		if err := m.Table.occupy(ctx); err != nil { // once: what is removed is older
			return err
		}
		for _, one := range list {
			if err := m.removeOne(ctx, one); err != nil {
				return err
			}
			after = one.revision
		}
		if !more {
			return nil
		}
	}
	return nil
}

// find returns the oldest marks after a revision that may go, and whether there are more.
func (m Marks) find(ctx context.Context, after, upto uint64) (list []tableMessage, more bool, err error) {
	all := 0 // also of the newer ones
	var places []int
	_, err = m.Table.consumed(ctx, func(one tableMessage) error {
		if !one.deleted {
			return nil
		}
		all++
		switch {
		case one.revision <= after || one.revision > upto || m.Dated && !one.until && time.Since(one.at) < plainTime:
		case len(list) == marksAtOnce:
			more = true
		default:
			list, places = append(list, one), append(places, all)
		}
		return nil
	}, jetstream.MetaOnly())
	for len(list) > 0 && places[len(list)-1] > all-cmp.Or(m.Most, keptMarks) {
		list = list[:len(list)-1]
	}
	return list, more, err
}

// removeOne removes a mark, unless it says that it stays, or it has been replaced.
func (m Marks) removeOne(ctx context.Context, one tableMessage) error {
	t := m.Table
	if one.until {
		until, err := m.until(ctx, one.revision)
		if err != nil || time.Now().Before(until) {
			return err
		}
	}
	return t.write(ctx, func(ctx context.Context) error {
		return purge(ctx, t.store, t.all, 1, jetstream.WithPurgeSequence(one.revision+1), jetstream.WithPurgeSubject(t.root()+one.name))
	})
}

// until returns until when the mark with this revision stays; the zero time if it says nothing, or is gone.
func (m Marks) until(ctx context.Context, revision uint64) (until time.Time, err error) {
	t := m.Table
	err = insist(ctx, t.store, "read the table "+t.name, func(ctx context.Context) error {
		m, err := t.all.GetMsg(ctx, revision)
		if err == nil {
			until, _ = time.Parse(time.RFC3339, m.Header.Get(untilHeader)) // none of ours: it may go
		}
		return err
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return time.Time{}, nil
	}
	return until, err
}
