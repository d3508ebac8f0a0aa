package relay

import (
	"log/slog"
	"sort"
	"sync"

	"brine/internal/event"
	"brine/internal/journal"
)

// Bounds of the window. A listener that falls out of it reads the journal.
const (
	windowLines = 16 << 10
	windowBytes = 16 << 20
)

// line is one event on its way to listeners.
type line struct {
	seq  uint64
	head event.Head
	text []byte // JSON with the place, ended by a line feed; shared, never changed
}

// tail holds the newest events in memory, as they were stored, so that listeners who
// keep up cost no reading of the journal. It collects while anybody listens.
type tail struct {
	journal *journal.Journal
	log     *slog.Logger

	life  sync.Mutex // one start or stop at a time
	users int
	stop  func()

	mu    sync.Mutex
	lines []line // the oldest first
	bytes int
	from  uint64        // every event from this place to next is in lines
	next  uint64        // behind the newest
	grown chan struct{} // closed when lines or next change
}

// join begins to collect for the first user. What is stored after it returns comes
// through the window.
func (t *tail) join() {
	t.life.Lock()
	defer t.life.Unlock()
	if t.users++; t.users > 1 {
		return
	}
	t.mu.Lock()
	t.next, t.grown = 0, make(chan struct{})
	t.mu.Unlock()
	last, stop := t.journal.Tap(t.take)
	t.stop = stop
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next == 0 { // nothing has come yet
		t.from, t.next = last+1, last+1
	}
}

// leave ends that with the last user.
func (t *tail) leave() {
	t.life.Lock()
	defer t.life.Unlock()
	if t.users--; t.users > 0 {
		return
	}
	t.stop()
	t.mu.Lock()
	t.lines, t.bytes = nil, 0
	t.mu.Unlock()
}

// take adds one event to the window. One without a body says that events were stored
// that are to be read from the journal: the window begins anew behind it.
func (t *tail) take(e journal.Text) {
	l, err := lineOf(e)
	if err != nil && e.Body != nil {
		t.log.Error("unreadable event in the journal passed over", "seq", e.Seq, "err", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next == 0 {
		t.from = e.Seq
	}
	switch {
	case err == nil:
		t.lines = append(t.lines, l)
		t.bytes += len(l.text)
	case e.Body == nil:
		t.lines, t.bytes, t.from = nil, 0, e.Seq+1
	}
	t.next = e.Seq + 1
	drop := 0
	for len(t.lines)-drop > windowLines || t.bytes > windowBytes && len(t.lines)-drop > 1 {
		t.bytes -= len(t.lines[drop].text)
		t.from = t.lines[drop].seq + 1
		t.lines[drop] = line{} // nobody has a part of this slice: after copies
		drop++
	}
	t.lines = t.lines[drop:]
	close(t.grown)
	t.grown = make(chan struct{})
}

func lineOf(e journal.Text) (line, error) {
	head, err := event.HeadOf(e.Body)
	if err != nil {
		return line{}, err
	}
	text := make([]byte, 0, len(e.Body)+30)
	text = append(event.AppendPlaced(text, e.Body, e.Seq), '\n')
	return line{e.Seq, head, text}, nil
}

// after appends to buf the events from the place next on, as many as have room
// in buf. behind says that some of them have left the window already. grown is
// closed when there is more.
func (t *tail) after(next uint64, buf []line) (lines []line, behind bool, grown <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if next < t.from {
		return buf, true, nil
	}
	i := sort.Search(len(t.lines), func(i int) bool { return t.lines[i].seq >= next })
	n := min(len(t.lines)-i, cap(buf)-len(buf))
	return append(buf, t.lines[i:i+n]...), false, t.grown
}

// span is the part of the journal that is in the window.
func (t *tail) span() (from, next uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.from, t.next
}
