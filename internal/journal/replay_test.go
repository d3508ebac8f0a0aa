package journal_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/bustest"
)

// replayed returns what Replay reads, as sequence:tag:length, with the length of the data.
func replayed(t testing.TB, j *journal.Journal, from, to uint64) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	got := []string{}
	err := j.Replay(ctx, from, to, func(e journal.Text) error {
		whole, err := event.Read(e.Body)
		if err != nil {
			return err
		}
		got = append(got, fmt.Sprintf("%d:%s:%d", e.Seq, whole.Tag, len(whole.Data)))
		return nil
	})
	if err != nil {
		t.Errorf("replay from %d to %d: %v", from, to, err)
	}
	return got
}

// TestReplay: every event in the requested range is read once, in order and with its own
// sequence, whatever has been removed in between, and however large the events are.
func TestReplay(t *testing.T) {
	t.Parallel()
	const many = 1600
	for name, row := range map[string]struct {
		size    func(n int) int // of the data of event n, from 1; nil is a few bytes
		ids     bool
		removed func(n int) bool
		counted bool // no consumer may be used
	}{
		"small":                {counted: true},
		"with names":           {ids: true, counted: true},
		"one is missing":       {removed: func(n int) bool { return n == 700 }},
		"every third missing":  {removed: func(n int) bool { return n%3 == 0 }},
		"the first are gone":   {removed: func(n int) bool { return n <= 600 }},
		"the last are gone":    {removed: func(n int) bool { return n > 1300 }},
		"some are large":       {size: func(n int) int { return 10 + 300<<10*(n/400%2)*(n%20/19) }, counted: true},
		"some take two pieces": {ids: true, size: func(n int) int { return 10 + mega*(n%500/499) }},
		"pieces and a gap":     {size: func(n int) int { return 10 + mega*(n%500/499) }, removed: func(n int) bool { return n == 1200 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bustest.StartStore(t).Broker
			j := open(t, b)
			s := eventStream(t, b)
			want, sequence := []string{}, uint64(0)
			var last *journal.Pending
			var gone []uint64
			for n := 1; n <= many; n++ {
				size, id := 1+n%50, ""
				if row.size != nil {
					size = row.size(n)
				}
				if row.ids {
					id = "web1/" + strconv.Itoa(n)
				}
				var err error
				if last, err = j.Begin(filled("t/"+strconv.Itoa(n), "x", size), id); err != nil {
					t.Fatal(err)
				}
				pieces := uint64(1)
				if size > 512<<10 {
					pieces = 2
				}
				sequence += pieces
				if row.removed != nil && row.removed(n) {
					for p := sequence - pieces + 1; p <= sequence; p++ {
						gone = append(gone, p)
					}
					continue
				}
				want = append(want, fmt.Sprintf("%d:t/%d:%d", sequence, n, size+2))
			}
			if seq, err := last.Wait(t.Context()); err != nil || seq != sequence {
				t.Fatalf("the last is at %d, %v; want %d", seq, err, sequence)
			}
			for _, seq := range gone {
				if err := s.DeleteMsg(t.Context(), seq); err != nil {
					t.Fatal(err)
				}
			}
			made, err := b.Conn().SubscribeSync("$JS.API.CONSUMER.CREATE.>")
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range [][2]uint64{{1, sequence}, {1, 1}, {512, 512}, {2, 1400}, {500, 700}, {599, 1111}, {sequence, sequence}, {sequence, sequence - 1}} {
				var within []string
				for _, w := range want {
					at, _, _ := strings.Cut(w, ":")
					if seq, _ := strconv.ParseUint(at, 10, 64); seq >= part[0] && seq <= part[1] {
						within = append(within, w)
					}
				}
				if got := replayed(t, j, part[0], part[1]); strings.Join(got, " ") != strings.Join(within, " ") {
					t.Errorf("from %d to %d: %d events, want %d: %.300v", part[0], part[1], len(got), len(within), got)
				}
			}
			if n, _, err := made.Pending(); err != nil || row.counted != (n == 0) {
				t.Errorf("%d consumers were made, %v", n, err)
			}
		})
	}
}

// TestReplayEnds: it ends when the callback fails, when the context ends, and when the
// remaining events are removed.
func TestReplayEnds(t *testing.T) {
	t.Parallel()
	b := bustest.StartStore(t).Broker
	j := open(t, b)
	const many = 5000
	for range many - 1 {
		if _, err := j.Begin(filled("x", "x", 1), ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := j.Append(t.Context(), filled("x", "x", 1), ""); err != nil {
		t.Fatal(err)
	}
	wrong, gone := errors.New("wrong"), errors.New("gone")
	for name, row := range map[string]struct {
		do   func(cancel context.CancelCauseFunc) error
		want error
	}{
		"failure": {func(context.CancelCauseFunc) error { return wrong }, wrong},
		"context": {func(cancel context.CancelCauseFunc) error { cancel(gone); return nil }, gone},
	} {
		n := 0
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		err := j.Replay(ctx, 1, many, func(journal.Text) error {
			if n++; n == 700 {
				return row.do(cancel)
			}
			return nil
		})
		if name == "failure" && n != 700 || !errors.Is(err, row.want) {
			t.Errorf("%s: ended after %d with %v", name, n, err)
		}
	}
	bounded, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	n, s := 0, eventStream(t, b)
	if err := j.Replay(bounded, 1, many, func(journal.Text) error {
		if n++; n == 1 {
			return s.Purge(bounded)
		}
		return nil
	}); err != nil || n == many {
		t.Errorf("after the rest was removed: %d, %v", n, err)
	}
}

func eventStream(t testing.TB, b *broker.Broker) jetstream.Stream {
	t.Helper()
	js, err := jetstream.New(b.Conn())
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), "EVENTS")
	if err != nil {
		t.Fatal(err)
	}
	return s
}
