package journal

import (
	"context"
	"crypto/sha256"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Bounds of what is remembered of the names of lots. JetStream's own way has no bound
// but time: who fires a hundred thousand events a second makes it hold tens of millions.
const (
	// nameWindow is for how long names are remembered: longer than any sender takes to
	// try again.
	nameWindow = 10 * time.Minute
	// maxNames is how many of the latest names of one sender are remembered at least,
	// twice as many at most. Of what he asked for 128 requests are under way at a time,
	// or a thousand letters.
	maxNames = 8192
	// maxLearned is how many messages are looked at after a start for the names that
	// were stored before it: some seconds. learnTime is far more.
	maxLearned = 1 << 20
	learnTime  = 2 * time.Minute
)

// names remembers which lots are stored, and how far. Each sender has room of his own,
// so that nobody can make the journal forget the names of others.
type names struct {
	mu      sync.Mutex
	flights map[string]flight // lots that are being stored, by name
	senders map[string]*shelf
	swept   time.Time // when senders of whom nothing was heard were forgotten last
}

// flight is a lot that is being stored.
type flight struct {
	p    *Pending
	n    int    // events of the lot, those before First among them
	from uint64 // its first message comes behind this place
}

// known is what is stored of a lot, or being stored.
type known struct {
	n   int
	end uint64   // the place of the last event
	p   *Pending // of a lot that is being stored; else nil
}

// pending is the Pending of a repetition.
func (k known) pending(w *writer) *Pending {
	if k.p != nil {
		return k.p
	}
	return &Pending{writer: w, done: closed, seq: k.end, again: true}
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// key stands for a name: it needs no memory of its own, and nobody finds a second name
// that has the same one.
type key [16]byte

func keyOf(name string) (k key) {
	sum := sha256.Sum256([]byte(name))
	copy(k[:], sum[:])
	return k
}

// reach is how much of a lot is stored, and the place of its last event.
type reach struct {
	end uint64
	n   int32
}

// shelf has the names of one sender: those of late, and those before them, which go
// when there is no more room or they are old.
type shelf struct {
	young, old map[key]reach
	turned     time.Time
}

func newNames() *names {
	return &names{flights: map[string]flight{}, senders: map[string]*shelf{}, swept: time.Now()}
}

func senderOf(name string) string {
	sender, _, _ := strings.Cut(name, "/")
	return sender
}

func (n *names) begin(name string, f flight) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.flights[name] = f
}

// stored notes that all of what p is for is stored.
func (n *names) stored(name string, p *Pending, end uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if f, flying := n.flights[name]; flying && f.p == p { // else it is told of by what came after it
		delete(n.flights, name)
		n.put(name, f.n, end, time.Now())
	}
}

// find returns what is known of a lot.
func (n *names) find(name string) known {
	n.mu.Lock()
	defer n.mu.Unlock()
	if f, flying := n.flights[name]; flying {
		return known{n: f.n, p: f.p}
	}
	s := n.senders[senderOf(name)]
	if s == nil {
		return known{}
	}
	k := keyOf(name)
	e, here := s.young[k]
	if !here {
		e = s.old[k]
	}
	return known{n: int(e.n), end: e.end}
}

// put notes that the first count events of a lot are stored. Its caller holds mu.
func (n *names) put(name string, count int, end uint64, now time.Time) {
	n.sweep(now)
	sender := senderOf(name)
	s := n.senders[sender]
	if s == nil {
		s = &shelf{young: map[key]reach{}, turned: now}
		n.senders[strings.Clone(sender)] = s
	}
	if len(s.young) >= maxNames || now.Sub(s.turned) > nameWindow {
		s.old, s.young, s.turned = s.young, make(map[key]reach, len(s.young)), now
	}
	s.young[keyOf(name)] = reach{end, int32(count)}
}

// sweep forgets senders of whom nothing was heard for long.
func (n *names) sweep(now time.Time) {
	if now.Sub(n.swept) < nameWindow {
		return
	}
	n.swept = now
	for sender, s := range n.senders {
		if now.Sub(s.turned) > 2*nameWindow {
			delete(n.senders, sender)
		}
	}
}

// forget gives up what is being stored, and returns the place behind which it would be.
func (n *names) forget() (from uint64, any bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range n.flights {
		if !any || f.from < from {
			from, any = f.from, true
		}
	}
	clear(n.flights)
	return from, any
}

// learn is told of what the journal holds.
func (n *names) learn(seq uint64, name string, number int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.put(name, number+1, seq, time.Now())
}

// known returns what is stored, or being stored, of the lot of that name. Its caller
// holds the order of the writer.
func (j *Journal) known(name string) (known, error) {
	if name == "" {
		return known{}, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), learnTime)
	defer cancel()
	if !j.learned {
		if err := j.learn(ctx); err != nil {
			return known{}, err
		}
		j.learned = true
	}
	if err := j.settle(ctx); err != nil {
		return known{}, err
	}
	return j.names.find(name), nil
}

// learn finds out which lots were stored before the start.
func (j *Journal) learn(ctx context.Context) error {
	info, err := j.stream.Info(ctx)
	if err != nil {
		return err
	}
	since := time.Now().Add(-nameWindow)
	if s := info.State; s.Msgs == 0 || s.LastTime.Before(since) {
		return nil
	} else if s.LastSeq > maxLearned && s.FirstSeq < s.LastSeq-maxLearned {
		// It begins in the middle of a lot, of which it then knows nothing.
		return j.learnFrom(ctx, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: s.LastSeq - maxLearned})
	}
	return j.learnFrom(ctx, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &since})
}

func (j *Journal) learnFrom(ctx context.Context, from jetstream.OrderedConsumerConfig) error {
	return j.readNames(ctx, from, j.names.learn)
}

// settle finds out what is stored of the lots that were under way when a message was
// refused or not answered: once the server has taken all that was sent.
func (j *Journal) settle(ctx context.Context) error {
	w := j.writer
	if !w.doubted() {
		return nil
	}
	if err := w.drain(ctx, stream); err != nil {
		return err
	}
	if from, any := j.names.forget(); any {
		if err := j.learnFrom(ctx, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from + 1}); err != nil {
			return err
		}
	}
	w.trust()
	return nil
}
