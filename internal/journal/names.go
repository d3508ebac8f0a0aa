package journal

import (
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Limits of the remembered names of batches. JetStream's own duplicate window is bounded by
// time only: a sender of a hundred thousand events a second makes it hold tens of millions.
const (
	// nameWindow is for how long names are remembered: longer than any sender takes to try
	// again.
	nameWindow = 10 * time.Minute
	// maxNames is how many of the latest names of one sender are remembered at least, twice as
	// many at most. A sender has 128 requests under way at a time, or a thousand messages of an
	// outbox.
	maxNames = 8192
	// maxLearned is how many messages a start reads, at most, for names that are not in the
	// file, see nameLog, for example if there is no file. It takes some seconds; learnTime is
	// far more.
	maxLearned = 1 << 20
	learnTime  = 2 * time.Minute
	// maxFresh is how many names may wait to be written to the file; if there are more, all
	// names are written again.
	maxFresh = 1 << 17
)

// names remembers which batches are stored, and how far. Each sender has its own space, so that
// no sender can make the journal forget the names of others.
type names struct {
	mu      sync.Mutex
	flights map[string]flight // batches being stored, by name
	senders map[string]*senderNames
	swept   time.Time // when inactive senders were last forgotten

	// What follows is for the file beside the journal, see nameLog.
	fresh   []named
	spilled bool   // there were more than fresh can hold, or they were not written
	held    bool   // what was stored after hold is being reconciled
	hold    uint64 // see held
}

// flight is a batch being stored.
type flight struct {
	p    *Pending
	n    int    // events of the batch, including those before First
	from uint64 // its first message comes after this sequence
}

// known is what is stored of a batch, or being stored.
type known struct {
	n   int
	end uint64   // the sequence of the last event
	p   *Pending // of a batch being stored; otherwise nil
}

// pending returns the Pending of a duplicate.
func (k known) pending(w *writer) *Pending {
	if k.p != nil {
		return k.p
	}
	return &Pending{writer: w, done: closed, seq: k.end, again: true}
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// key is the hash of a name: it has a fixed size, and two names with the same hash cannot be
// found.
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

// without returns what is left of it if its end is lost: no more than that.
func (r reach) without(lost []Gap) reach {
	for _, g := range lost {
		if g.From <= r.end && r.end <= g.To {
			r.n -= int32(min(r.end-g.From+1, uint64(r.n)))
			r.end = g.From - 1
		}
	}
	return r
}

// senderNames has the names of one sender: recent ones, and older ones, which are dropped when
// there is no more space or their time is over.
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

// stored records that everything p is for is stored.
func (n *names) stored(name string, p *Pending, end uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if f, flying := n.flights[name]; flying && f.p == p { // otherwise a later one reports it
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

// put records that the first count events of a batch are stored. The caller holds mu.
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

// of returns the names of a sender, with space for one more. The caller holds mu.
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

// recall takes a name from the file: it was stored at that time or before. After a start it is remembered for a while in
// any case: the clock may have been set meanwhile.
func (n *names) recall(now, then time.Time, one named) {
	if oldest := now.Add(-nameWindow); then.Before(oldest) {
		then = oldest
	} else if then.After(now) {
		then = now
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.of(one.sender, then).young[one.key] = one.reach
}

// takeFresh returns the names that are not in the file yet, and up to which sequence the file
// is complete once they are written; stored is known to be stored. ok is false if there are
// others, which only all returns.
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

// completeTo returns the sequence up to which the names are complete. The caller holds mu.
func (n *names) completeTo(stored uint64) uint64 {
	if n.held {
		stored = min(stored, n.hold)
	}
	for _, f := range n.flights {
		stored = min(stored, f.from)
	}
	return stored
}

// spill records that the file lacks what takeFresh returned.
func (n *names) spill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fresh, n.spilled = nil, true
}

// sweep forgets senders that were inactive for long.
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

// forget drops the batches being stored, and returns the sequence after which they would be, and
// those that were dropped before and are not found yet.
func (n *names) forget() (from uint64, any bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	from, any = n.hold, n.held
	for _, f := range n.flights {
		if !any || f.from < from {
			from, any = f.from, true
		}
	}
	clear(n.flights)
	n.held, n.hold = any, from
	return from, any
}

// missed records that what was stored after this sequence is not known.
func (n *names) missed(after uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.held || after < n.hold {
		n.hold = after
	}
	n.held = true
}

// found is called when it is known again what was stored of them.
func (n *names) found() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held = false
}

// learn records an event that the journal holds.
func (n *names) learn(seq uint64, name string, number int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.put(name, number+1, seq, time.Now())
}

// known returns what is stored, or being stored, of the batch of that name. The caller holds
// the writer's order.
func (j *Journal) known(name string) (known, error) {
	if name == "" {
		return known{}, nil
	}
	// Other writers wait meanwhile, and no longer than for anything else.
	ctx, cancel := context.WithTimeout(context.Background(), stallWait)
	defer cancel()
	if err := j.reconcile(ctx); err != nil {
		return known{}, err
	}
	return j.names.find(name), nil
}

// Resolve returns when it is decided of everything that was begun before whether it is stored. Others
// wait meanwhile.
func (j *Journal) Resolve(ctx context.Context) error {
	j.writer.order.Lock()
	defer j.writer.order.Unlock()
	ctx, cancel := context.WithTimeout(ctx, stallWait)
	defer cancel()
	j.writer.doubt()
	j.cut = true
	return j.reconcile(ctx)
}

// learn finds out which batches were stored after the sequence from, before the start; from is
// 0 if nothing is known of any.
func (j *Journal) learn(ctx context.Context, from uint64, s jetstream.StreamState) error {
	q, any, err := toLearn(ctx, j.stream, j.delays, from, maxLearned, s)
	if err != nil || !any {
		return err
	}
	q.least = j.writer.stored()
	return j.readNames(ctx, q, j.names.learn)
}

// messages has the messages of a stream by their sequences.
type messages interface {
	GetMsg(ctx context.Context, seq uint64, opts ...jetstream.GetMsgOpt) (*jetstream.RawStreamMsg, error)
}

// toLearn returns what is to be read for learn; that is no more than most messages.
func toLearn(ctx context.Context, stream messages, delays Delays, from, most uint64, s jetstream.StreamState) (q Query, any bool, err error) {
	since := time.Now().Add(-nameWindow)
	switch {
	case s.Msgs == 0 || s.LastSeq <= from || from == 0 && s.LastTime.Before(since):
		return q, false, nil // what the file lacks is read whatever its time is: the clock may have been set since
	case s.LastSeq > most && max(from, s.FirstSeq) < s.LastSeq-most:
		from = s.LastSeq - most // this may be in the middle of a batch, which is then unknown
		// The last message says nothing about the age of the others: a start may have stored it itself.
		var m *jetstream.RawStreamMsg
		err := insist(ctx, delays, "read the names of what is stored", func(ctx context.Context) (err error) {
			m, err = stream.GetMsg(ctx, from)
			return err
		})
		if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			return q, false, err
		}
		if err == nil && m.Time.Before(since) {
			return Query{Since: since}, true, nil
		}
	case from == 0:
		return Query{Since: since}, true, nil
	}
	return Query{FromSeq: from + 1}, true, nil
}

// reconcile finds out what is stored of the batches that were under way when a message was
// refused or not answered, after the server has handled everything that was sent.
func (j *Journal) reconcile(ctx context.Context) error {
	w := j.writer
	if !w.doubted() {
		return nil
	}
	if err := w.drain(ctx, j.name); err != nil {
		return err
	}
	if from, any := j.names.forget(); any {
		// The end is known: the leader that is asked for it may be one no more, and lack the newest messages.
		err := j.Names(ctx, from+1, w.stored(), j.names.learn)
		if errors.Is(err, errLate) { // that message was removed since
			err = j.Names(ctx, from+1, 0, j.names.learn)
		}
		if err != nil {
			return err
		}
	}
	if err := w.synced(ctx); err != nil {
		return err
	}
	j.names.found()
	j.reconciled++
	w.trust()
	return nil
}
