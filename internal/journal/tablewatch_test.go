package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TestAWatchCatchesUp: several members store more entries in a second than can be read in that time one after the
// other. The watch is soon at the end nevertheless, and brings each entry once, in order. Sequences without an
// entry, and entries that are stored while it reads, do not confuse it.
func TestAWatchCatchesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const entries, each = 10_000, time.Millisecond
		var want []uint64
		for n := range uint64(entries) {
			if n%7 != 3 && n%100 < 90 { // what was replaced is gone
				want = append(want, n)
			}
		}
		want = append(want, entries)
		begun := time.Now()
		w := &tableWatch{heard: func() error { return nil }, t: &Table{name: "keys"}, hint: make(chan struct{}, 1)}
		w.first = func(_ context.Context, after uint64) (*jetstream.RawStreamMsg, error) {
			time.Sleep(each + time.Duration(after%5)*each)   // the answers do not come in the order of the questions
			stored := uint64(time.Since(begun) / (each / 2)) // so many are there already
			i, _ := slices.BinarySearch(want, after+1)
			if i == len(want) || want[i] > stored {
				return nil, jetstream.ErrMsgNotFound
			}
			return &jetstream.RawStreamMsg{Subject: fmt.Sprint(w.t.root(), "k", want[i]), Sequence: want[i]}, nil
		}
		var got []uint64
		enough := errors.New("enough")
		w.f = func(e *TableEntry) error {
			if e == nil {
				return nil
			}
			if got = append(got, e.Revision); e.Revision == entries {
				return enough
			}
			return nil
		}
		if err := w.follow(t.Context()); !errors.Is(err, enough) {
			t.Error(err)
		}
		if want = want[1:]; !slices.Equal(got, want) { // there is no sequence 0
			t.Errorf("it has brought %d entries, want %d", len(got), len(want))
		}
		if late := time.Since(begun) - entries*each/2; late > 100*each {
			t.Errorf("it came to the end %s after the last one was stored", late)
		}
	})
}
