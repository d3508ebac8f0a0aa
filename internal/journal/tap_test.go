package journal_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
)

// tapped collects the events of a tap.
type tapped struct {
	mu       sync.Mutex
	reported []string
}

func (c *tapped) take(batch []journal.Text) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range batch {
		h, err := event.HeadOf(e.Body)
		name := h.Tag
		if err != nil {
			name = "?"
		}
		c.reported = append(c.reported, fmt.Sprintf("%d %s", e.Seq, name))
	}
}

func (c *tapped) want(t *testing.T, want string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if got := strings.Join(c.reported, ", "); got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	c.reported = nil
}

// batchOf is a batch of events with these tags.
func batchOf(name string, tags ...string) journal.Batch {
	return journal.Batch{Name: name, Count: len(tags), Drafts: func(yield func(journal.Draft) bool) {
		for _, tag := range tags {
			if !yield(journal.Draft{Tag: tag, Text: event.Event{Tag: tag, Data: json.RawMessage("{}")}.Append(nil)}) {
				return
			}
		}
	}}
}

// TestTap: events that are stored arrive with their sequences, in order; where the sequences
// are unknown, the tap says what to read from the journal.
func TestTap(t *testing.T) {
	j := open(t, startStore(t, t.TempDir()))
	batch := func(id string, tags ...string) {
		t.Helper()
		p, err := j.BeginAll(batchOf(id, tags...))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	batch("", "before")
	c := &tapped{}
	from, stop := j.Tap(c.take)
	if from != 1 {
		t.Errorf("it begins behind %d", from)
	}
	batch("", "a")
	batch("x", "b", "c")
	c.want(t, "2 a, 3 b, 4 c")
	batch("x", "b", "c") // a duplicate
	c.want(t, "")
	batch("x", "b", "c", "d") // a part of it is a duplicate
	c.want(t, "5 d")
	batch("", "e")
	c.want(t, "6 e")
	if _, err := j.Append(t.Context(), filled("long", "x", 1<<20), ""); err != nil {
		t.Fatal(err)
	}
	c.want(t, "9 long")
	stop()
	batch("", "after")
	c.want(t, "")
	from, stop = j.Tap(c.take)
	defer stop()
	batch("", "again")
	if c.want(t, "11 again"); from != 10 {
		t.Errorf("it begins again behind %d", from)
	}
}

// TestALongEventIsNotCopied: the journal copies a long event, for example a return of 60 MB,
// neither for the store nor for listeners; only the server allocates memory for it.
func TestALongEventIsNotCopied(t *testing.T) {
	const size = 16 << 20
	j := open(t, startStore(t, t.TempDir()))
	reported := 0
	_, stop := j.Tap(func(batch []journal.Text) {
		for _, e := range batch {
			reported += len(e.Body)
		}
	})
	defer stop()
	e, err := event.NewLong("long", "", time.Now(), size, func(b []byte) ([]byte, error) {
		return append(append(append(b, `{"a":"`...), bytes.Repeat([]byte("x"), size)...), `"}`...), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := j.Append(t.Context(), e, ""); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	stop()
	t.Logf("%.1f times its size", float64(after.TotalAlloc-before.TotalAlloc)/size)
	if took := after.TotalAlloc - before.TotalAlloc; took > 7*size/2 {
		t.Errorf("%d bytes were taken for an event of %d", took, size)
	}
	if reported < size {
		t.Errorf("%d bytes were told of it", reported)
	}
}
