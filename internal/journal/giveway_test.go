package journal_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/test/deadline"
)

// huge is a size that takes more pieces than may be under way.
const huge = 5 << 20

// begunLong is a journal that is storing a long event; syncs to its disk wait until the test
// releases them.
type begunLong struct {
	*journal.Journal
	release func()
	end     chan error // of the long event
}

func beginLong(t *testing.T, name string) *begunLong {
	t.Helper()
	b := startStore(t, t.TempDir())
	disk := &slowDisk{Store: b.Store(), begun: make(chan struct{}), goOn: make(chan error)}
	j, err := journal.Open(t.Context(), b.Conn(), journal.Options{Store: disk})
	if err != nil {
		t.Fatal(err)
	}
	l := &begunLong{Journal: j, end: make(chan error, 1)}
	ended := make(chan struct{})
	l.release = func() {
		go func() {
			for {
				select {
				case disk.goOn <- nil:
				case <-disk.begun:
				case <-ended:
					return
				}
			}
		}()
	}
	t.Cleanup(func() { close(ended) })
	go func() {
		_, err := j.Append(t.Context(), filled("long", "l", huge), name)
		l.end <- err
	}()
	deadline.Receive(t, disk.begun, "begun")
	for last := uint64(0); last < 3; { // as many pieces as may be under way, and no more
		if last, err = j.Last(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// While a long event is stored, others are stored too, and wait for only a few of its pieces. A
// reader that begins in the middle gets it, and a repetition of any of them is recognised.
func TestOtherEventsAreStoredDuringALongOne(t *testing.T) {
	t.Parallel()
	j := beginLong(t, "web1/long")
	var short []*journal.Pending
	for n, name := range []string{"web2/0", "", "web1/short"} {
		p, err := j.Begin(filled(fmt.Sprintf("short/%d", n), "s", 1), name)
		if err != nil {
			t.Fatal(err)
		}
		short = append(short, p)
	}
	j.release()
	for n, p := range short {
		if seq, err := p.Wait(t.Context()); err != nil || seq > 6 {
			t.Errorf("short event %d is at the sequence %d, %v: it waited for all of the long one", n, seq, err)
		}
	}
	if err := deadline.Receive(t, j.end, "end"); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("short/0:s×1 short/1:s×1 short/2:s×1 long:l×%d", huge)
	if got := show(readAll(t, j.Journal, journal.Query{})); got != want {
		t.Errorf("read %s, want %s", got, want)
	}
	last, err := j.Last(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []uint64{5, last} { // as a reader that has read what came before
		var got []journal.Text
		if err := j.Replay(t.Context(), from, last, func(x journal.Text) error { got = append(got, x); return nil }); err != nil {
			t.Fatal(err)
		}
		if n := len(got); n == 0 || len(got[n-1].Body) < huge || got[n-1].Seq != last {
			t.Errorf("from %d: %d events, the long one not whole among them", from, n)
		}
	}
	for name, e := range map[string]string{"web1/long": "long", "web2/0": "short/0", "web1/short": "short/2"} {
		if p, err := j.Append(t.Context(), filled(e, "x", 1), name); err != nil || p > last {
			t.Errorf("%s again: sequence %d, %v, want that of the first", name, p, err)
		}
	}
}

// If the journal is reconciled while a long event is incomplete, storing the event fails; when
// it is sent again, it is stored once.
func TestLongEventsThatAreBroken(t *testing.T) {
	t.Parallel()
	j := beginLong(t, "web1/long")
	j.Doubt()
	j.release() // what is found stored must be on the disk before anything else is stored
	if _, err := j.Begin(filled("short", "s", 1), "web2/0"); err != nil {
		t.Fatal(err)
	}
	if err := deadline.Receive(t, j.end, "end"); !errors.Is(err, journal.ErrStore) {
		t.Fatalf("the long event: %v, want it to fail", err)
	}
	for range 2 {
		if _, err := j.Append(t.Context(), filled("long", "l", huge), "web1/long"); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := show(readAll(t, j.Journal, journal.Query{})), fmt.Sprintf("short:s×1 long:l×%d", huge); got != want {
		t.Errorf("read %s, want %s", got, want)
	}
}
