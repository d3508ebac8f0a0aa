package journal

import (
	"context"
	"crypto/sha256"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Bounds of what is remembered of the names of batches. JetStream's own way has no bound
// but time: who fires a hundred thousand events a second makes it hold tens of millions.
const (
	// nameWindow is for how long names are remembered: longer than any sender takes to
	// try again.
	nameWindow = 10 * time.Minute
	// maxNames is how many of the latest names of one sender are remembered at least,
	// twice as many at most. Of what it asked for 128 requests are under way at a time,
	// or a thousand letters.
	maxNames = 8192
	// maxLearned is how many messages are looked at at a start, at most, for names that
	// are not in the file that is written along, see nameLog: where there is none. Some
	// seconds; learnTime is far more.
	maxLearned = 1 << 20
	learnTime  = 2 * time.Minute
	// maxFresh is how many names may wait to be written to it; if there are more, all
	// that is known is written anew.
	maxFresh = 1 << 17
)

// names remembers which batches are stored, and how far. Each sender has room of its own,
// so that nobody can make the journal forget the names of others.
type names struct {
	mu      sync.Mutex
	flights map[string]flight // batches that are being stored, by name
	senders map[string]*senderNames
	swept   time.Time // when senders of whom nothing was heard were forgotten last

	// What follows is for the file beside the journal, see nameLog.
	fresh   []named
	spilled bool   // there were more than fresh could hold, or they were not written
	held    bool   // what was stored behind hold is being found out
	hold    uint64 // see held
}

// flight is a batch that is being stored.
type flight struct {
	p    *Pending
	n    int    // events of the batch, those before First among them
	from uint64 // its first message comes behind this sequence
}

// known is what is stored of a batch, or being stored.
type known struct {
	n   int
	end uint64   // the sequence of the last event
	p   *Pending // of a batch that is being stored; else nil
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

// reach is how much of a batch is stored, and the sequence of its last event.
type reach struct {
	end uint64
	n   int32
}

// without is what is left of it where its end is lost: no more than that.
func (r reach) without(lost []Gap) reach {
	for _, g := range lost {
		if g.From <= r.end && r.end <= g.To {
			r.n -= int32(min(r.end-g.From+1, uint64(r.n)))
			r.end = g.From - 1
		}
	}
	return r
}

// senderNames has the names of one sender: those of late, and those before them, which go
// when there is no more room or they are old.
type senderNames struct {
	sender     string
	young, old map[key]reach
	turned     time.Time
}

func newNames() *names {
	return &names{flights: map[string]flight{}, senders: map[string]*senderNames{}, swept: time.Now()}
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

// find returns what is known of a batch.
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

// put notes that the first count events of a batch are stored. Its caller holds mu.
func (n *names) put(name string, count int, end uint64, now time.Time) {
	n.sweep(now)
	s := n.of(senderOf(name), now)
	k, r := keyOf(name), reach{end, int32(count)}
	s.young[k] = r
	switch {
	case n.spilled:
	case len(n.fresh) >= maxFresh:
		n.fresh, n.spilled = nil, true
	default:
		n.fresh = append(n.fresh, named{s.sender, k, r})
	}
}

// of returns the one of a sender, with room for one more name. Its caller holds mu.
func (n *names) of(sender string, now time.Time) *senderNames {
	s := n.senders[sender]
	if s == nil {
		sender = strings.Clone(sender)
		s = &senderNames{sender: sender, young: map[key]reach{}, turned: now}
		n.senders[sender] = s
	}
	if len(s.young) >= maxNames || now.Sub(s.turned) > nameWindow {
		s.old, s.young, s.turned = s.young, make(map[key]reach, len(s.young)), now
	}
	return s
}

// recall takes a name from the file: it was stored then, at the latest.
func (n *names) recall(now, then time.Time, one named) {
	if now.Sub(then) > 2*nameWindow {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.of(one.sender, then).young[one.key] = one.reach
}

// takeFresh returns the names that were not written to the file yet, and up to which
// sequence all that is stored is then written; stored is known to be. It is false if there
// are others, which are only in all.
func (n *names) takeFresh(stored uint64) (upto uint64, list []named, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	list, n.fresh = n.fresh, nil
	return n.completeTo(stored), list, !n.spilled
}

// all returns all names.
func (n *names) all(stored uint64) (upto uint64, all []shelved) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fresh, n.spilled = nil, false
	young := shelved{time: time.Now()}
	for _, s := range n.senders {
		if len(s.old) > 0 {
			all = append(all, shelved{s.turned, appendNamed(nil, s.sender, s.old)})
		}
		young.list = appendNamed(young.list, s.sender, s.young)
	}
	return n.completeTo(stored), append(all, young)
}

func appendNamed(list []named, sender string, names map[key]reach) []named {
	for k, r := range names {
		list = append(list, named{sender, k, r})
	}
	return list
}

// completeTo is up to where all that is stored is among the names. Its caller holds mu.
func (n *names) completeTo(stored uint64) uint64 {
	if n.held {
		stored = min(stored, n.hold)
	}
	for _, f := range n.flights {
		stored = min(stored, f.from)
	}
	return stored
}

// spill says that the file lacks what was taken.
func (n *names) spill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fresh, n.spilled = nil, true
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

// forget gives up what is being stored, and returns the sequence behind which it would be.
func (n *names) forget() (from uint64, any bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range n.flights {
		if !any || f.from < from {
			from, any = f.from, true
		}
	}
	clear(n.flights)
	n.held, n.hold = any, from
	return from, any
}

// found is called when what was forgotten is known again.
func (n *names) found() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held = false
}

// learn is told of what the journal holds.
func (n *names) learn(seq uint64, name string, number int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.put(name, number+1, seq, time.Now())
}

// known returns what is stored, or being stored, of the batch of that name. Its caller
// holds the order of the writer.
func (j *Journal) known(name string) (known, error) {
	if name == "" {
		return known{}, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), learnTime)
	defer cancel()
	if err := j.reconcile(ctx); err != nil {
		return known{}, err
	}
	return j.names.find(name), nil
}

// learn finds out which batches were stored behind the sequence from, before the start; 0 is
// where nothing is known of any.
func (j *Journal) learn(ctx context.Context, from uint64, s jetstream.StreamState) error {
	since := time.Now().Add(-nameWindow)
	switch {
	case s.Msgs == 0 || s.LastSeq <= from || s.LastTime.Before(since):
		return nil
	case s.LastSeq > maxLearned && max(from, s.FirstSeq) < s.LastSeq-maxLearned:
		from = s.LastSeq - maxLearned // in the middle of a batch, perhaps, of which it then knows nothing
	case from == 0:
		return j.learnFrom(ctx, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &since})
	}
	return j.learnFrom(ctx, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from + 1})
}

func (j *Journal) learnFrom(ctx context.Context, from jetstream.OrderedConsumerConfig) error {
	return j.readNames(ctx, from, j.names.learn)
}

// reconcile finds out what is stored of the batches that were under way when a message was
// refused or not answered: once the server has taken all that was sent.
func (j *Journal) reconcile(ctx context.Context) error {
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
	j.names.found()
	j.reconciled++
	w.trust()
	return nil
}
