package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/brinebus/brine/internal/salt"
)

// fence lets a writer know exactly what is stored, if its stream has copies on several members.
// There may be an election between the writer and the stream: messages sent before it are lost,
// or are stored without an answer, while later ones are stored.
//
// Only this writer writes to the stream. So each message names the sequence that it must
// follow, and the server stores it there or refuses it: what is stored is always the beginning
// of what was sent. A message that gets no answer is sent again with the same sequence, as
// often as needed: one of the copies is stored, the others are refused. The leader's last
// sequence shows which messages are stored.
type fence struct {
	turn  *Turn                                                           // nil where only this process opens the stream
	last  func(context.Context) (end uint64, prefix string, err error)    // asks the leader
	begin func(context.Context) (prefix string, mark uint64, err error)   // begins a term after one that was ended
	mark  func(ctx context.Context, prefix string) (at uint64, err error) // stores a mark of the current term
	read  func(context.Context, uint64) (*jetstream.RawStreamMsg, error)
	doubt chan struct{} // signals a refusal

	line       sync.Mutex // held while a message gets its number and is sent, or all are sent again
	generation int        // how often they were sent again; guarded by line and the writer
	settling   sync.Mutex // held while messages are reported as stored

	// Guarded by the writer.
	prefix string    // of the subjects in this term, instead of plainPrefix; "" for a stream without terms
	term   uint64    // its number, from 1
	window []flying  // under way: the first one has the number tap.n+1
	moved  time.Time // when one was last stored, or the window was last empty
	asked  time.Time // when they were last sent again
	// strange is since when the leader has had the settings of another term behind messages of this
	// process; zero if it has not. Only with a turn.
	strange time.Time
	missing missing
}

// missing is a message that newest does not find, and since when; the zero value is none.
type missing struct {
	seq   uint64
	since time.Time
}

// flying is a message under way.
type flying struct {
	*nats.Msg
	subject string   // without the prefix
	p       *Pending // that it is a part of
}

// Timeouts of a fence.
const (
	guardEvery = 100 * time.Millisecond
	// lateTime is how long a message may have no answer until it is sent again.
	lateTime = time.Second
	// againTime is the shortest time between two repetitions.
	againTime = 250 * time.Millisecond
	// lastTime is how long the leader may take to answer.
	lastTime = 2 * time.Second
	// electionTime is how long nothing may be stored until writers get an error: twice what
	// the members take at most to elect a leader after a kill.
	electionTime = 22 * time.Second
)

// plainPrefix begins all subjects of the journal.
const plainPrefix = "salt."

var errElection = salt.WithHint(salt.Unanswered("the members of the cluster have stored nothing for too long: they have no leader, or it is not reached"), "salt-run cluster.status shows which members are reached")

// Unanswered reports whether an error says that nobody who stores the journal answers now, which passes: the
// members have no leader, say.
func Unanswered(err error) bool {
	var u salt.Unanswered
	return errors.As(err, &u)
}

// Closed reports whether an error says that the own connection to the store was closed: the daemon stops.
func Closed(err error) bool { return errors.Is(err, nats.ErrConnectionClosed) }

// beginFence prepares f for the first message: the stream ends with the sequence last.
func (w *writer) beginFence(f *fence, last uint64) {
	f.doubt, f.moved, f.term = make(chan struct{}, 1), time.Now(), 1
	w.fence = f
	w.tap.begin(last)
	w.patient = newPatient(w.store)
	w.store = w.patient
	w.failed = w.store.Failed()
	go w.guard() // ends with the connection
}

// fenced gives a message the sequence that it must follow; the caller holds the writer and
// line.
func (f *fence) fenced(m *nats.Msg, p *Pending, after uint64) *nats.Msg {
	if m.Header.Get(partHeader) != "" {
		m.Data = bytes.Clone(m.Data) // the buffer is used again for the next piece
	}
	if m.Header == nil {
		m.Header = nats.Header{}
	}
	m.Header[jetstream.ExpectedLastSeqHeader] = []string{strconv.FormatUint(after, 10)}
	if f.turn != nil {
		m.Header[writerHeader] = []string{f.turn.id}
	}
	one := flying{m, m.Subject, p}
	m.Subject = f.subject(one)
	if len(f.window) == 0 {
		f.moved = time.Now()
	}
	f.window = append(f.window, one)
	return m
}

// subject returns the subject in the current term.
func (f *fence) subject(m flying) string {
	if f.prefix == "" {
		return m.subject
	}
	return f.prefix + strings.TrimPrefix(m.subject, plainPrefix)
}

// sendFenced sends a message for a writer with a fence.
func (w *writer) sendFenced(m *nats.Msg, in inFlight, p *Pending, last bool) error {
	w.fence.line.Lock()
	defer w.fence.line.Unlock()
	w.mu.Lock()
	if p.term != 0 && p.term != w.fence.term {
		w.mu.Unlock()
		return errTerm
	}
	w.count(m, in, p, last)
	m = w.fence.fenced(m, p, w.tap.seq+w.sent.n-1-w.tap.n)
	w.mu.Unlock()
	err := w.nc.PublishMsg(m)
	if errors.Is(err, nats.ErrReconnectBufExceeded) {
		return nil // there is no connection: guard sends it again
	}
	return err
}

// reply is the subject for the answer to message n.
func (w *writer) reply(n uint64) string {
	text := w.inbox + strconv.FormatUint(n, 36)
	if w.fence != nil {
		text += "-" + strconv.Itoa(w.fence.generation)
	}
	return text
}

// numberIn parses such a subject.
func (w *writer) numberIn(subject string) (n uint64, generation int, err error) {
	text, behind, fenced := strings.Cut(strings.TrimPrefix(subject, w.inbox), "-")
	if fenced {
		if generation, err = strconv.Atoi(behind); err != nil {
			return 0, 0, err
		}
	}
	n, err = strconv.ParseUint(text, 36, 64)
	return n, generation, err
}

// answerFenced handles an acknowledgement or a refusal. A refusal only shows that the messages
// under way must be checked.
func (w *writer) answerFenced(m *nats.Msg) {
	n, generation, err := w.numberIn(m.Subject)
	if err != nil {
		return
	}
	seq, err := acknowledged(m)
	f := w.fence
	w.mu.Lock()
	old := n <= w.tap.n
	wanted := w.tap.seq + n - w.tap.n
	current := generation == f.generation
	w.mu.Unlock()
	if err != nil && current && !old {
		w.patient.refused(err)
	}
	switch {
	case old:
	case err == nil && seq == wanted:
		w.confirm(n, seq)
	case current:
		select {
		case f.doubt <- struct{}{}:
		default:
		}
	}
}

// confirm reports that message n, with the sequence seq, and all messages before it are stored.
func (w *writer) confirm(n, seq uint64) {
	f := w.fence
	f.settling.Lock()
	defer f.settling.Unlock()
	w.mu.Lock()
	if n <= w.tap.n {
		w.mu.Unlock()
		return
	}
	var done []question
	for len(w.asked) > 0 && w.asked[0].n <= n {
		done = append(done, w.asked[0])
		w.asked = w.asked[1:]
	}
	gone := n - w.tap.n
	for _, m := range f.window[:gone] {
		w.done.n++
		w.done.bytes += uint64(len(m.Data))
	}
	clear(f.window[:gone])
	f.window, f.moved = f.window[gone:], time.Now()
	f.strange, f.missing = time.Time{}, missing{} // what seemed so was told by a server that led before
	w.mu.Unlock()
	for _, q := range done {
		_ = w.tap.stored(&w.mu, q.n, seq-(n-q.n), nil)
	}
	_ = w.tap.stored(&w.mu, n, seq, nil)
	w.patient.moved()
	signal(w.acked)
	for _, q := range done {
		if q.p != nil && q.last {
			q.p.end(q.n, seq-(n-q.n), false)
		}
	}
	signal(w.grown)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// guard checks for messages without an answer.
func (w *writer) guard() {
	tick := time.NewTicker(guardEvery)
	defer tick.Stop()
	for {
		refused := false
		select {
		case <-w.closed:
			return
		case <-w.fence.doubt:
			refused = true
		case <-tick.C:
		}
		waited, due := w.overdue(refused)
		w.patient.look(waited)
		if due {
			w.resend()
		}
	}
}

// overdue returns for how long nothing of what is under way was stored, and whether to send it
// again.
func (w *writer) overdue(refused bool) (waited time.Duration, due bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.fence
	if len(f.window) == 0 {
		return 0, false
	}
	waited = time.Since(f.moved)
	since := time.Since(f.asked)
	return waited, refused && since > againTime || waited > lateTime && since > lateTime
}

// stalled returns why what is under way is not stored: nothing can be, or nothing was for longer than an answer takes, as in
// an election; nil otherwise.
func (w *writer) stalled() error {
	if err := w.store.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	if w.fence == nil {
		return nil
	}
	if waited, _ := w.overdue(false); waited > 2*lateTime {
		return fmt.Errorf("%w: %w", ErrStore, w.patient.stall(waited))
	}
	return nil
}

// stall is overdue for whoever does not hold the lock.
func (p *patient) stall(waited time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.overdue(waited)
}

// resend finds out what is stored, and sends the rest again.
func (w *writer) resend() {
	f := w.fence
	ctx, cancel := context.WithTimeout(context.Background(), lastTime)
	defer cancel()
	f.line.Lock()
	defer f.line.Unlock()
	w.mu.Lock()
	f.asked = time.Now()
	w.mu.Unlock()
	prefix, err := w.lookUp(ctx)
	if err != nil {
		return // there is no leader yet
	}
	f.settling.Lock() // nothing is reported while the messages are renumbered
	defer f.settling.Unlock()
	w.mu.Lock()
	if prefix != f.prefix {
		w.enter(prefix)
	}
	again := w.renumber()
	w.mu.Unlock()
	for _, m := range again {
		if w.nc.PublishMsg(m) != nil {
			return
		}
	}
}

// lookUp treats everything as stored that is, and returns the prefix of the current term: a new
// one if another member has ended the one before. If another process has begun one, the turn is over.
func (w *writer) lookUp(ctx context.Context) (prefix string, err error) {
	f := w.fence
	last, prefix, err := f.last(ctx)
	if err == nil && f.turn != nil {
		var taken bool
		if taken, err = w.taken(ctx, f.prefix, prefix, last); taken {
			err = f.turn.lose()
			w.patient.end(err)
		}
	}
	ended := hasEnded(prefix)
	if err == nil && prefix == f.prefix {
		if ended, err = f.behind(ctx, prefix, last); ended && f.turn != nil {
			err = errNoLeader // it is seen in its settings soon whose turn it is
		}
	}
	if err == nil && ended {
		prefix, last, err = f.begin(ctx)
	}
	if err == nil {
		err = w.catchUp(ctx, last)
	}
	return prefix, err
}

// renumber returns what is under way with the sequences that it must follow now. The caller holds
// line and the writer.
func (w *writer) renumber() []*nats.Msg {
	f := w.fence
	f.generation++
	f.asked = time.Now()
	again := make([]*nats.Msg, len(f.window))
	for i, m := range f.window {
		c := *m.Msg // the connection may still be writing the previous one
		c.Subject = f.subject(m)
		c.Header = nats.Header{}
		for key, value := range m.Header {
			c.Header[key] = value
		}
		n := w.tap.n + uint64(i) + 1
		c.Header[jetstream.ExpectedLastSeqHeader] = []string{strconv.FormatUint(w.tap.seq+uint64(i), 10)}
		if c.Reply != "" || i == len(f.window)-1 {
			c.Reply = w.reply(n)
		}
		f.window[i].Msg, again[i] = &c, &c
	}
	return again
}

// catchUp treats everything as stored that the leader has: the stream ends with the sequence
// last.
func (w *writer) catchUp(ctx context.Context, last uint64) error {
	f := w.fence
	w.mu.Lock()
	seq, n := w.tap.seq, w.tap.n
	if last <= seq || len(f.window) == 0 {
		w.mu.Unlock()
		return nil
	}
	w.mu.Unlock()
	end, there, err := w.beforeMarks(ctx, seq, last)
	if err != nil {
		return err
	}
	w.mu.Lock()
	if w.tap.n != n { // an answer came meanwhile
		w.mu.Unlock()
		return nil
	}
	k := min(end-seq, uint64(len(f.window)))
	mine := f.window[max(k, 1)-1]
	w.mu.Unlock()
	if k < end-seq {
		if there, err = w.newest(ctx, seq+k); err != nil {
			return err
		}
	}
	marks := end == seq // what was stored is only marks
	if k > 0 && there != nil && bytes.Equal(there.Data, mine.Data) && f.turn.wrote(there.Header) {
		w.confirm(n+k, seq+k)
		if n, marks = n+k, k == end-seq; !marks || end == last {
			return nil
		}
	}
	if !marks && f.turn != nil {
		w.patient.end(f.turn.lose())
		return ErrTaken
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tap.n != n {
		return nil
	}
	w.tap.seq = last
	if marks {
		return nil
	}
	// Another process has written, or this one before it was killed: its last messages were
	// stored after the stream was opened. Readers and the names of batches lack them.
	w.tap.lost, w.doubts = true, true
	if w.missed != nil {
		w.missed(seq)
	}
	return nil
}

// beforeMarks returns the last sequence after seq that is no mark of a term, or seq, and the message
// there. Behind the first mark there are only marks: this writer has noticed none yet.
func (w *writer) beforeMarks(ctx context.Context, seq, last uint64) (end uint64, there *jetstream.RawStreamMsg, err error) {
	end = seq
	f := w.fence
	sort.Search(int(last-seq), func(i int) bool {
		if err != nil {
			return true
		}
		at := last - uint64(i)
		m, bad := w.newest(ctx, at)
		if err = bad; err != nil {
			return true
		}
		mark := m != nil && isMark(m.Header)
		if mark && m.Header.Get(writerHeader) != "" { // in a queue, of a process in its turn
			mark = f.turn.wrote(m.Header)
		}
		if !mark && at > end {
			end, there = at, m
		}
		return !mark
	})
	return end, there, err
}

// newest reads a message behind all that were known to be stored. If it is missing, the answer is most
// likely that of a server that led before, and does not know that it does so no more: the error is
// errNoLeader. After electionTime it is believed, and the result nil: the message was removed since.
func (w *writer) newest(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	f := w.fence
	m, err := f.readAt(ctx, seq)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case m != nil:
		if f.missing.seq == seq {
			f.missing = missing{}
		}
		return m, nil
	case f.missing.seq != seq:
		f.missing = missing{seq, time.Now()}
	case time.Since(f.missing.since) > electionTime:
		return nil, nil
	}
	return nil, errNoLeader
}

// readAt reads a message, nil if there is none.
func (f *fence) readAt(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	m, err := f.read(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	return m, err
}

// settled waits until everything that was sent is stored.
func (w *writer) settled(ctx context.Context) error {
	tick := time.NewTicker(guardEvery / 10)
	defer tick.Stop()
	for {
		w.mu.Lock()
		left := len(w.fence.window)
		w.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-w.closed:
			return nats.ErrConnectionClosed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// patient is the Store of a writer with a fence: it also fails if nothing is stored for too
// long.
type patient struct {
	Store
	mu     sync.Mutex
	cause  error
	failed chan struct{}
	logged bool
	over   error // it is for good
	reason error // the last refusal of the servers
	// lost is when the store below failed last: nothing could be stored until then, and no election has begun.
	lost time.Time
}

func newPatient(s Store) *patient {
	p := &patient{Store: s, failed: make(chan struct{})}
	p.look(0)
	return p
}

// Clustered implements Clustered.
func (p *patient) Clustered() bool { return clustered(p.Store) }

// Failed implements Store.
func (p *patient) Failed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.Store.Err(); p.over == nil && (err != nil || !p.isOverdue()) {
		p.fail(err)
	}
	return p.failed
}

// Err implements Store.
func (p *patient) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cause
}

// look records for how long nothing was stored.
func (p *patient) look(waited time.Duration) {
	err := p.Store.Err()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over != nil {
		return
	}
	if !p.lost.IsZero() {
		waited = min(waited, time.Since(p.lost))
	}
	switch {
	case err != nil:
		p.lost = time.Now()
	case waited > 0 && p.isOverdue():
		err = p.cause
	case waited > electionTime:
		err = p.overdue(waited)
	}
	p.fail(err)
	if late := waited > 2*lateTime; late && !p.logged {
		p.logged = true
		p.Store.Late("store messages: there is no leader now, what is written waits", waited)
	}
}

// isOverdue reports whether the cause is that nothing was stored for too long. The caller holds the lock.
func (p *patient) isOverdue() bool {
	return errors.Is(p.cause, errElection) || errors.Is(p.cause, ErrAway)
}

// overdue is the error when nothing was stored for that long. The caller holds the lock.
func (p *patient) overdue(waited time.Duration) error {
	err := fmt.Errorf("%w (%s)", errElection, waited.Round(time.Second))
	if _, remote := p.Store.(Remote); remote {
		err = fmt.Errorf("%w (%s)", ErrAway, waited.Round(time.Second))
	}
	if p.reason != nil {
		err = fmt.Errorf("%w: %w", err, p.reason)
	}
	return err
}

// moved records that something was stored.
func (p *patient) moved() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.logged, p.reason = false, nil
}

// refused records why the servers have not stored something. That it has a wrong sequence is no
// reason: it follows from another one.
func (p *patient) refused(err error) {
	if isSequence(err) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reason = err
}

// end makes the store fail for good.
func (p *patient) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail(err)
	p.over, p.cause = err, err
}

// fail sets the cause, also in the place of another one; nil clears it. The caller holds the lock.
func (p *patient) fail(err error) {
	switch {
	case err != nil:
		if p.cause == nil {
			close(p.failed)
		}
		p.cause = err
	case err == nil && p.cause != nil:
		p.cause, p.failed = nil, make(chan struct{})
	}
}
