package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
)

// Limits of one read from the queue.
const (
	readCount = 1000
	readBytes = 1 << 20
)

// Query selects entries to read. The zero value selects all.
type Query struct {
	Since time.Time // entries from this time on
	Last  int       // or this many of the newest
}

func parse(line []byte) (Entry, error) {
	var e Entry
	if err := json.Unmarshal(line, &e); err != nil {
		return e, fmt.Errorf("unreadable audit entry: %w", err)
	}
	return e, nil
}

// Each calls f in order for each entry that is stored at the start of the call.
func (l *Log) Each(ctx context.Context, q Query, f func(line []byte) error) error {
	return eachOf(ctx, l.opts.Queue, q, f)
}

func eachOf(ctx context.Context, from *journal.Queue, q Query, f func(line []byte) error) error {
	span, err := from.Span(ctx)
	if err != nil {
		return err
	}
	first, skip := span.First, 0
	switch {
	case q.Last > 0:
		if first, skip, err = newest(ctx, from, span, q.Last); err != nil {
			return err
		}
	case !q.Since.IsZero():
		if first, err = sequenceAt(ctx, from, span, q.Since); err != nil {
			return err
		}
	}
	return each(ctx, from, first, span.Last, func(e journal.Entry) error {
		if skip--; skip >= 0 {
			return nil
		}
		return f(e.Body)
	})
}

// newest returns from where on the queue has the n newest entries, and how many others are before these there. More
// than entries have sequences: marks, which no reader sees, and what was lost.
func newest(ctx context.Context, q *journal.Queue, span journal.Span, n int) (from uint64, others int, err error) {
	from = span.Last + 1
	have := 0
	for step := uint64(n); have < n && from > span.First; step *= 2 {
		end := from - 1
		from -= min(step, from-span.First)
		if err := each(ctx, q, from, end, func(journal.Entry) error { have++; return nil }); err != nil {
			return 0, 0, err
		}
	}
	return from, max(0, have-n), nil
}

// each reads the queue from one sequence to another.
func each(ctx context.Context, q *journal.Queue, from, to uint64, f func(journal.Entry) error) error {
	for from <= to {
		list, err := q.Read(ctx, from, int(min(readCount, to-from+1)), readBytes)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return nil
		}
		for _, e := range list {
			if e.Seq > to {
				return nil
			}
			if err := f(e); err != nil {
				return err
			}
			from = e.Seq + 1
		}
	}
	return nil
}

// sequenceAt returns the first entry at or after t: entries are sorted by time unless the clock was
// set back.
func sequenceAt(ctx context.Context, q *journal.Queue, span journal.Span, t time.Time) (uint64, error) {
	var failed error
	n := sort.Search(int(span.Last+1-span.First), func(i int) bool {
		list, err := q.Read(ctx, span.First+uint64(i), 1, 1)
		if err != nil {
			failed = errors.Join(failed, err)
		}
		return len(list) == 0 || !list[0].Stored.Before(t)
	})
	return span.First + uint64(n), failed
}

// find returns the entry with this number: its hash, and its sequence, which is 0 if there is none; it was
// pruned, for example.
func find(ctx context.Context, q *journal.Queue, n uint64) (hash string, seq uint64, err error) {
	span, err := q.Span(ctx)
	if err != nil {
		return "", 0, err
	}
	sort.Search(int(span.Last+1-span.First), func(i int) bool {
		list, failed := q.Read(ctx, span.First+uint64(i), 1, 1)
		if failed != nil || len(list) == 0 {
			err = errors.Join(err, failed)
			return true
		}
		e, failed := parse(list[0].Body)
		if failed == nil && e.N == n {
			hash, seq = Hash(list[0].Body), list[0].Seq
		}
		return failed == nil && e.N >= n
	})
	return hash, seq, err
}

// Digest returns the digest of these arguments of one function, as entries contain it.
func (l *Log) Digest(args []any, kwargs map[string]any) (string, error) {
	text, err := arguments([]salt.Command{{Args: args, Kwargs: kwargs}})
	l.mu.Lock()
	defer l.mu.Unlock() // Repair may replace the key
	return l.digest.digest(text), err
}
