package journal_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/deadline"
)

// TestAllJournalsAreReadByTime: two journals whose events alternate, and events without a
// stamp, which stay after the one before them.
func TestAllJournalsAreReadByTime(t *testing.T) {
	a := startOwner(t, t.TempDir(), "m1-a", "127.0.0.1:0")
	own := open(t, startStore(t, t.TempDir()))
	begun := time.Now().UTC()
	var want []string
	var last uint64
	for i := range 60 {
		j, tag := own, fmt.Sprint("own/", i)
		if i/3%2 == 1 {
			j, tag = a.journal, fmt.Sprint("other/", i)
		}
		data := []byte(`{}`)
		if i%7 == 1 { // within its three
			data = []byte(`"no object"`)
		}
		e, err := event.New(tag, data, "web1", begun.Add(time.Duration(i)*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		seq, err := j.Append(t.Context(), e, "")
		if err != nil {
			t.Fatal(err)
		}
		if j == a.journal {
			last = seq
		}
		want = append(want, tag)
	}
	_, m := startMirror(t, t.TempDir(), a.broker.Links.Addr(), "m1-a", "m2-b")
	heard(t, m, last)
	all := journal.All{Own: own, Mirrors: func() []*journal.Mirror { return []*journal.Mirror{m} }, Log: slog.New(slog.DiscardHandler)}
	var got []string
	if err := all.Read(t.Context(), journal.Query{}, func(e event.Event) error { got = append(got, e.Tag); return nil }); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"own", "other"} { // each journal keeps its order
		if !slices.Equal(only(got, kind), only(want, kind)) {
			t.Errorf("%s: %v, want %v", kind, only(got, kind), only(want, kind))
		}
	}
	stamped := func(list []string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(tag string) bool {
			var n int
			_, err := fmt.Sscanf(tag[len(tag)-2:], "%d", &n)
			if err != nil {
				_, _ = fmt.Sscanf(tag[len(tag)-1:], "%d", &n)
			}
			return n%7 == 1
		})
	}
	if !slices.Equal(stamped(got), stamped(want)) {
		t.Errorf("read %v, want %v", stamped(got), stamped(want))
	}
}

func only(list []string, kind string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(tag string) bool { return tag[:3] != kind[:3] })
}

// TestOrderEnds: waiting for a reader that never comes ends with the context.
func TestOrderEnds(t *testing.T) {
	o := journal.NewOrder(2)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	flushed := false
	go func() {
		done <- o.Turn(ctx, 0, "2", func(context.Context) error { flushed = true; return nil })
	}()
	cancel()
	if err := deadline.Receive(t, done, "done"); err == nil || !flushed {
		t.Errorf("%v, flushed %v", err, flushed)
	}
	go func() { done <- o.Turn(t.Context(), 0, "3", nil) }()
	o.End(1)
	if err := deadline.Receive(t, done, "done"); err != nil {
		t.Error(err)
	}
}
