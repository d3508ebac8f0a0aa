package journal

import (
	"errors"
	"sync"
)

// Tap calls f with the events that are stored after Tap returns, in order; events that are
// stored together come in one call. It ends with stop. from is the sequence after which the
// events begin. A Text without a body means that f did not get some events up to its sequence,
// and the caller must read them from the journal. f must be quick; when stop returns, f is no
// longer running. Only one tap can be open at a time.
func (j *Journal) Tap(f func([]Text)) (from uint64, stop func()) {
	t, mu := &j.writer.tap, &j.writer.mu
	t.calling.Lock()
	defer t.calling.Unlock()
	mu.Lock()
	defer mu.Unlock()
	t.f = f
	clear(t.begun)
	return t.seq, func() {
		t.calling.Lock()
		defer t.calling.Unlock()
		mu.Lock()
		defer mu.Unlock()
		t.f = nil
	}
}

// tap returns what is stored without reading it back. Only the journal stores events, so
// messages that were sent in a row have consecutive sequences, unless one was refused, or was a
// duplicate in a queue, which the count shows.
type tap struct {
	calling sync.Mutex // held while f is called
	begun   partial    // guarded by calling

	f      func([]Text) // guarded by the writer, as are the next fields
	flight []inFlight
	n, seq uint64 // number and sequence of the latest message known to be stored
	lost   bool   // it is unknown whether messages after it are stored
}

func (t *tap) begin(last uint64) { t.seq = last }

// inFlight is a message under way.
type inFlight struct {
	part string // the label of a piece of a long event; "" for all else
	text []byte // of the event; with pieces, the whole text with the last one
}

// partial are the long events of which some pieces were seen, and how many.
type partial map[string]int

// whole reports whether a piece is the last of an event all of whose pieces were seen.
func (p partial) whole(id string, n, count int) bool {
	if n == 0 && len(p) >= maxOpen {
		clear(p)
	}
	if p[id] != n && n > 0 { // the beginning is missing
		delete(p, id)
		return false
	}
	if p[id] = n + 1; n < count-1 {
		return false
	}
	delete(p, id)
	return true
}

func (t *tap) sent(m inFlight) { t.flight = append(t.flight, m) }

// forget drops all messages up to the number n.
func (t *tap) forget(n uint64) { t.flight, t.n, t.lost = nil, n, true }

// errRefused means that not all of several messages are stored.
var errRefused = errors.New("the store has refused a part")

// stored is called for the acknowledgement of message n; err is the error of any message since
// the previous acknowledgement. It is called by one goroutine that holds no lock.
func (t *tap) stored(mu *sync.Mutex, n, seq uint64, err error) error {
	t.calling.Lock()
	defer t.calling.Unlock()
	mu.Lock()
	before, sure := t.seq, !t.lost
	first, batch, inRow := t.take(n, seq, err)
	f := t.f
	mu.Unlock()
	if err == nil && sure && seq < before+uint64(len(batch)) {
		err = errRefused
	}
	switch {
	case f == nil || len(batch) == 0:
	case !inRow:
		f([]Text{{Seq: seq}})
	default:
		if texts := t.tell(first, batch); len(texts) > 0 {
			f(texts)
		}
	}
	return err
}

// take removes the messages up to n from those under way. inRow means that they have
// consecutive sequences from first on; otherwise none of batch is new, or their sequences are
// unknown.
func (t *tap) take(n, seq uint64, err error) (first uint64, batch []inFlight, inRow bool) {
	if n <= t.n {
		return 0, nil, false
	}
	count := n - t.n
	batch, t.flight, t.n = t.flight[:count], t.flight[count:], n
	switch {
	case err != nil:
		t.lost = true
		return 0, nil, false
	case seq <= t.seq: // a duplicate, and so is what was sent with it
		return 0, nil, false
	}
	first, inRow = t.seq+1, !t.lost && seq == t.seq+count
	t.seq, t.lost = seq, false
	return first, batch, inRow
}

// tell assembles the events in the messages of batch, from the sequence first on.
func (t *tap) tell(first uint64, batch []inFlight) []Text {
	texts := make([]Text, 0, len(batch))
	for i, m := range batch {
		seq := first + uint64(i)
		id, n, count, ok := splitPart(m.part)
		switch {
		case !ok: // nearly always
			texts = append(texts, Text{Seq: seq, Body: m.text, Pieces: 1})
		case t.begun.whole(id, n, count):
			texts = append(texts, Text{Seq: seq, Body: m.text, Pieces: count})
		case n == count-1: // its beginning was before the tap
			texts = append(texts, Text{Seq: seq})
		}
	}
	return texts
}
