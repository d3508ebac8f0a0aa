package journal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/brinebus/brine/internal/uptime"
)

// TableReader follows a table for somebody who has its entries in memory. Of what was deleted it learns from the marks; one
// that has heard nothing for longer than these stay reads the table again. Its methods are called by one
// goroutine at a time.
type TableReader struct {
	Table *Table
	// Hear is called with each entry, with deleted ones that it may know, too, and with nil when all that
	// were stored when Follow began have come.
	Hear func(*TableEntry)
	// Known returns the keys of the entries that are known.
	Known func() []string

	after uint64        // the revision up to which the table is known
	heard uptime.Moment // when the leader has answered last
	miss  time.Duration // missTime, if it is 0
}

// Read calls Hear for all present entries, and for those that are known and are not there any more.
func (r *TableReader) Read(ctx context.Context) error {
	begun, known, there := uptime.Now(), r.Known(), map[string]bool{}
	end, err := r.Table.state(ctx, r.after)
	if err != nil {
		return fmt.Errorf("read table %s: %w", r.Table.name, err)
	}
	last, err := r.Table.Entries(ctx, func(e TableEntry) {
		there[e.Key] = true
		r.Hear(&e)
	})
	if err != nil {
		return err
	}
	last = max(last, end.LastSeq) // the newest one may have been removed
	for _, key := range known {
		if !there[key] {
			r.Hear(&TableEntry{Key: key, Revision: last})
		}
	}
	r.after, r.heard = last, begun
	return nil
}

// errMissed means that nothing was heard for so long that marks may be gone that nobody has read here.
var errMissed = errors.New("nothing was heard for a long time")

// Follow is Watch after what was read, which it reads first if it was not. It returns when ctx ends, or
// the table cannot be read.
func (r *TableReader) Follow(ctx context.Context) error {
	for {
		if r.heard.IsZero() || r.missed() {
			if err := r.Read(ctx); err != nil {
				return err
			}
		}
		err := r.Table.watchFrom(ctx, r.after, func(e *TableEntry) error {
			if e != nil {
				r.after = e.Revision
			}
			r.Hear(e)
			return nil
		}, func() error {
			if r.missed() {
				return errMissed
			}
			r.heard = uptime.Now()
			return nil
		})
		if !errors.Is(err, errMissed) {
			return err
		}
	}
}

func (r *TableReader) missed() bool {
	miss := r.miss
	if miss == 0 {
		miss = missTime
	}
	return uptime.Now().Sub(r.heard) > miss
}
