package eventbus

import (
	"context"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/journal"
)

// marked are the tables in which deletions leave marks.
var marked = []string{"dead", "positions"}

// openLook is how often KeepMarks looks whether a table has been opened.
const openLook = time.Minute

// KeepMarks removes old marks of dropped dead letters and positions until ctx ends; marks has how. It opens no table
// that the bus does not need.
func KeepMarks(ctx context.Context, r *Bus, marks journal.Marks) {
	var wg sync.WaitGroup
	defer wg.Wait()
	begun := map[string]bool{}
	for len(begun) < len(marked) {
		for _, name := range marked {
			t := r.tables.opened(name)
			if t == nil || begun[name] {
				continue
			}
			begun[name] = true
			one := marks
			one.Table, one.Log = t, r.log
			wg.Go(func() { one.Keep(ctx) })
		}
		if !backoff.Sleep(ctx, openLook) {
			return
		}
	}
}

// opened returns a table that is open, nil otherwise.
func (t *tables) opened(name string) *journal.Table {
	t.mu.Lock()
	o := t.open[name]
	t.mu.Unlock()
	if o == nil {
		return nil
	}
	select {
	case <-o.done:
		return o.table
	default:
		return nil
	}
}
