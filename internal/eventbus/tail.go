package eventbus

import (
	"log/slog"
	"sort"
	"sync"

	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/logging"
)

// Limits of the window. A listener that falls behind it reads the journal.
const (
	windowLines = 16 << 10
	windowBytes = 16 << 20
)

// line is one event on its way to listeners.
type line struct {
	seq  uint64 // its sequence; if it is not stored, that of the newest stored event before it
	live uint64 // its number among the events that are not stored, from 1; 0 if it is stored
	head event.Head
	text []byte // JSON with the sequence, with a line feed at the end; shared, never changed
	body int    // how much of text is as it is stored: all but the last brace; 0 if it is not stored
}

// tail is the window of a journal: the newest events in memory, as they were stored, so that listeners
// that keep up need not read the journal. Between them, in order of arrival, are the events that are
// not stored. It collects while anybody listens.
type tail struct {
	// tap begins to call take with what is stored after the sequence last; see journal.Tap.
	tap      func(take func([]journal.Text)) (last uint64, stop func())
	master   string // whose journal it is; "" for the own one
	log      *slog.Logger
	throttle logging.Throttle

	life  sync.Mutex // one start or stop at a time
	users int
	stop  func()

	mu    sync.Mutex
	lines []line // the oldest first
	bytes int
	first uint64        // the number of lines[0]: every line gets the next one
	from  uint64        // every stored event from this sequence to next is in lines
	next  uint64        // the sequence after the newest
	lives uint64        // events that are not stored, so far
	grown chan struct{} // closed when lines or next change; nil while nobody listens
}

// join starts collecting with the first listener. What is stored or offered after it returns
// comes through the window.
func (t *tail) join() {
	t.life.Lock()
	defer t.life.Unlock()
	if t.users++; t.users > 1 {
		return
	}
	t.mu.Lock()
	t.next, t.grown = 0, make(chan struct{})
	t.mu.Unlock()
	last, stop := t.tap(t.take)
	t.stop = stop
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next == 0 { // no event has come yet
		t.from, t.next = last+1, last+1
	}
}

// leave stops collecting with the last listener.
func (t *tail) leave() {
	t.life.Lock()
	defer t.life.Unlock()
	if t.users--; t.users > 0 {
		return
	}
	t.stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.empty()
	t.grown = nil
}

// take adds stored events to the window. One without a body means that events were stored that
// must be read from the journal: the window begins again after it.
func (t *tail) take(batch []journal.Text) {
	lines := make([]line, len(batch))
	var heads event.Heads
	var texts arena
	for _, e := range batch {
		texts.left += len(e.Body) + t.added()
	}
	for i, e := range batch {
		if e.Body == nil {
			continue
		}
		var err error
		if lines[i], err = t.lineOf(e, &heads, &texts); err != nil {
			t.throttle.Log(t.log, slog.LevelError, "unreadable", 1, "unreadable event in a journal skipped", "master", t.master, "seq", e.Seq, "err", err)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, e := range batch {
		if t.next == 0 {
			t.from = e.Seq
		}
		switch {
		case lines[i].text != nil:
			t.add(lines[i])
		case e.Body == nil:
			t.empty()
			t.first++ // counts as a line that has left: a listener that has seen all others is behind, too
			t.from = e.Seq + 1
		}
		t.next = e.Seq + 1
	}
	t.bound()
	t.wake()
}

// offer adds events that are not stored. While nobody listens they are dropped.
func (t *tail) offer(batch []line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.grown == nil {
		return
	}
	for _, l := range batch {
		t.lives++
		l.live, l.seq = t.lives, max(t.next, 1)-1
		t.add(l)
	}
	t.bound()
	t.wake()
}

func (t *tail) add(l line) {
	t.lines = append(t.lines, l)
	t.bytes += len(l.text)
}

// empty removes all lines from the window.
func (t *tail) empty() {
	t.first += uint64(len(t.lines))
	t.lines, t.bytes = nil, 0
}

// bound removes the oldest lines from a window that is too large.
func (t *tail) bound() {
	drop := 0
	for len(t.lines)-drop > windowLines || t.bytes > windowBytes && len(t.lines)-drop > 1 {
		l := t.lines[drop]
		t.bytes -= len(l.text)
		if l.live == 0 {
			t.from = l.seq + 1
		}
		t.lines[drop] = line{} // no reader shares this slice: after copies
		drop++
	}
	t.lines = t.lines[drop:]
	t.first += uint64(drop)
}

func (t *tail) wake() {
	close(t.grown)
	t.grown = make(chan struct{})
}

// added is how many bytes a line has beside the stored text, at most.
func (t *tail) added() int {
	if t.master == "" {
		return seqBytes
	}
	return seqBytes + len(t.master) + masterBytes
}

// lineOf returns the line for an event. The text of another master is not believed to be one.
func (t *tail) lineOf(e journal.Text, heads *event.Heads, texts *arena) (line, error) {
	if t.master != "" {
		if err := event.CheckText(e.Body); err != nil {
			return line{}, err
		}
	}
	head, err := heads.Of(e.Body)
	if err != nil {
		return line{}, err
	}
	text := texts.next(len(e.Body) + t.added())
	if t.master == "" {
		text = event.AppendStored(text, e.Body, e.Seq)
	} else {
		text = event.AppendMirrored(text, e.Body, t.master, e.Seq)
	}
	return line{seq: e.Seq, head: head, text: texts.keep(append(text, '\n')), body: len(e.Body) - 1}, nil
}

// locate returns the number of the first line from the sequence next on, and how many events that
// are not stored came before it. ok is false if stored events from there on have left the
// window already.
func (t *tail) locate(next uint64) (at, lives uint64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if next < t.from {
		return 0, 0, false
	}
	i := sort.Search(len(t.lines), func(i int) bool { return t.lines[i].seq >= next })
	lives = t.lives
	for _, l := range t.lines[i:] {
		if l.live > 0 {
			lives = l.live - 1
			break
		}
	}
	return t.first + uint64(i), lives, true
}

// after appends to buf the lines from the number at on, as many as fit into buf and into one
// message to a listener, so a waiting listener keeps no more in memory. ok is false if some of
// them have left the window already. grown is closed when there is more.
func (t *tail) after(at uint64, buf []line) (lines []line, grown <-chan struct{}, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at < t.first {
		return buf, nil, false
	}
	i := min(int(at-t.first), len(t.lines))
	for bytes := 0; i < len(t.lines) && len(buf) < cap(buf) && bytes < batchBytes; i++ {
		buf = append(buf, t.lines[i])
		bytes += len(t.lines[i].text)
	}
	return buf, t.grown, true
}

// span returns the sequences that are in the window.
func (t *tail) span() (from, next uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.from, t.next
}
