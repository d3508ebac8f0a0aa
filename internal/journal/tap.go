package journal

import (
	"errors"
	"sync"

	"github.com/nats-io/nats.go"
)

// Tap calls f with the events that are stored after it returns, in order and those
// that were stored together at once, until stop. from is the sequence behind which that
// begins. A Text without a body says that what lies up to its sequence, and was not told
// of, is to be read from the journal. f is quick; stop returns when it runs no more.
// One tap can be open at a time.
func (j *Journal) Tap(f func([]Text)) (from uint64, stop func()) {
	t, mu := &j.writer.tap, &j.writer.mu
	t.calling.Lock()
	defer t.calling.Unlock()
	mu.Lock()
	defer mu.Unlock()
	t.f = f
	clear(t.join)
	return t.seq, func() {
		t.calling.Lock()
		defer t.calling.Unlock()
		mu.Lock()
		defer mu.Unlock()
		t.f = nil
	}
}

// tap tells what is stored without reading it back: nobody else stores events, so
// messages that were sent one behind the other have sequences one behind the other,
// unless one was refused, or of a queue a repetition, which the count shows.
type tap struct {
	calling sync.Mutex // held while f is called
	join    joiner     // guarded by calling

	f      func([]Text) // guarded, as what follows, by the writer
	flight []*nats.Msg
	n, seq uint64 // number and sequence of the latest message that is known to be stored
	lost   bool   // what was sent behind it may be stored or not
}

func (t *tap) begin(last uint64) { t.seq = last }

func (t *tap) sent(m *nats.Msg) { t.flight = append(t.flight, m) }

// forget gives up all messages up to the number n.
func (t *tap) forget(n uint64) { t.flight, t.n, t.lost = nil, n, true }

// errRefused says that of several messages not all are stored.
var errRefused = errors.New("the store has refused a part")

// stored is told of the acknowledgement of the message n; the error is that of any
// message since the one before it. Its caller is one goroutine and holds nothing.
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

// take takes the messages up to n from those under way. inRow says that they are at
// the sequences from first on; otherwise none of batch is new, or their sequences are unknown.
func (t *tap) take(n, seq uint64, err error) (first uint64, batch []*nats.Msg, inRow bool) {
	if n <= t.n {
		return 0, nil, false
	}
	count := n - t.n
	batch, t.flight, t.n = t.flight[:count], t.flight[count:], n
	switch {
	case err != nil:
		t.lost = true
		return 0, nil, false
	case seq <= t.seq: // a repetition, and so is what was sent with it
		return 0, nil, false
	}
	first, inRow = t.seq+1, !t.lost && seq == t.seq+count
	t.seq, t.lost = seq, false
	return first, batch, inRow
}

// tell puts together what the messages of batch, from the sequence first on, hold.
func (t *tap) tell(first uint64, batch []*nats.Msg) []Text {
	texts := make([]Text, 0, len(batch))
	for i, m := range batch {
		seq := first + uint64(i)
		part, text := piece(m.Header, m.Data)
		if part == "" { // as nearly all
			texts = append(texts, Text{Seq: seq, Body: m.Data, Pieces: 1})
			continue
		}
		body, whole := t.join.join(part, text)
		_, n, count, _ := splitPart(part)
		switch {
		case whole:
			texts = append(texts, Text{Seq: seq, Body: body, Pieces: count})
		case n == count-1: // its beginning was before the tap
			texts = append(texts, Text{Seq: seq})
		}
	}
	return texts
}
