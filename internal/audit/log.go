package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
)

// Options are what a Log needs.
type Options struct {
	Queue    *journal.Queue // holds the chain, and nothing else
	Position *journal.Table // remembers how far File was written
	HeadFile string         // the end of the chain
	KeyFile  string         // the key of digests
	File     string         // gets a copy, a line for each entry; "" for none
	Values   bool           // arguments are written down, not only their digest
	MaxAge   time.Duration  // older entries are pruned; 0 keeps them
	MaxBytes int64          // the oldest are pruned beyond it; 0 is no limit
	// Announce tells listeners of an entry that is stored, with its hash; nil tells
	// nobody. It does not wait.
	Announce func(tag string, data json.RawMessage)
	// Flush returns when the entries that are stored are on the disk; nil is for a store
	// without one.
	Flush func() error
	Log   *slog.Logger
}

// Log is an open audit log. Its methods may be called concurrently: entries come
// into one order.
type Log struct {
	opts   Options
	digest digester
	head   *head
	copy   *copier

	mu        sync.Mutex // held while an entry is begun
	last      position   // the entry that was begun last
	seq       uint64     // its sequence in the queue
	closed    bool
	damage    []*damaged  // nothing is written while there is any
	unwritten int         // entries that were refused for it
	hurt      atomic.Bool // there is some
	broken    atomic.Bool // an entry was not stored: the next one finds out what was
	flying    sync.WaitGroup

	allowances, refusals atomic.Uint64 // decisions since the start

	under chan *Pending // in the order of the chain

	flood  flood
	stop   chan struct{}
	life   context.Context // ends when nothing is waited for any more
	giveUp context.CancelFunc
	wg     sync.WaitGroup
}

// ackTime bounds the wait for the store, closeTime that for what is under way when the
// log is closed: a store that is broken must not keep a daemon from its end.
const (
	ackTime   = 30 * time.Second
	closeTime = 5 * time.Second
)

// ErrUnwritten is wrapped by the errors of entries that are not in the audit log.
// What was decided must not take effect.
var ErrUnwritten = errors.New("the audit log cannot be written")

// Open opens the audit log and looks whether its end is where it should be: what is
// missing is told to the log and is itself an entry. A file for copies that can
// not be written is an error.
func Open(ctx context.Context, o Options) (*Log, error) {
	l := &Log{opts: o, under: make(chan *Pending, 8<<10), stop: make(chan struct{})}
	l.life, l.giveUp = context.WithCancel(context.WithoutCancel(ctx))
	l.flood.init()
	var err error
	if l.digest, err = openDigester(o.KeyFile); err != nil && !l.spoiled(err) {
		return nil, err
	}
	created := false
	if l.head, created, err = openHead(o.HeadFile); err != nil {
		return nil, err
	}
	if err := l.begin(ctx, created); err != nil {
		l.head.close()
		return nil, err
	}
	l.wg.Go(l.finish)
	l.wg.Go(l.keep)
	return l, nil
}

// begin finds the end of the chain and opens the file for copies. Created says that there
// was no head.
func (l *Log) begin(ctx context.Context, created bool) error {
	if err := l.checkHead(ctx); err != nil {
		return err
	}
	missing, err := l.resume(ctx)
	if err != nil {
		return err
	}
	if created && l.last.n > 0 {
		missing = fmt.Sprintf("its head %s was missing", l.opts.HeadFile)
	}
	if l.opts.File != "" {
		if l.copy, err = newCopier(ctx, l.opts); err != nil {
			return err
		}
	}
	if missing != "" {
		l.opts.Log.Error("the audit log is not what it was", "reason", missing)
	}
	if missing != "" && !l.Damaged() {
		_, err = l.Begin(Entry{Kind: OfLog, Verdict: Noted, Fun: "audit.start", Reason: missing})
	}
	return err
}

// checkHead notes that the head is damaged. An empty one is none where there is no chain
// yet.
func (l *Log) checkHead(ctx context.Context) error {
	_, err := l.head.read()
	if err == nil {
		return nil
	}
	if info, errStat := l.head.file.Stat(); errStat == nil && info.Size() == 0 {
		if end, _, errEnd := l.end(ctx); errEnd == nil && end.n == 0 {
			return l.head.write(origin)
		}
	}
	if l.spoiled(err) {
		return nil
	}
	return err
}

// find sets the position at which the chain goes on, and says what is wrong with
// its end.
func (l *Log) find(ctx context.Context, known position) (missing string, err error) {
	end, seq, err := l.end(ctx)
	if err != nil {
		return "", err
	}
	l.last, l.seq = end, seq
	switch {
	case end.n < known.n:
		missing = fmt.Sprintf("entries %d to %d are missing at the end", end.n+1, known.n)
	case end.n == known.n && end.hash != known.hash:
		missing = fmt.Sprintf("entry %d is not the one that was written", end.n)
	default:
		return "", nil
	}
	l.last = known // so that the chain shows it for good
	return missing, nil
}

// end returns the last entry that is stored, and the last position of the queue,
// which may be behind it.
func (l *Log) end(ctx context.Context) (position, uint64, error) {
	span, err := l.opts.Queue.Span(ctx)
	if err != nil {
		return position{}, 0, err
	}
	newest, any, err := l.opts.Queue.Newest(ctx)
	if err != nil || !any {
		return origin, span.Last, err
	}
	e, err := parse(newest.Body)
	return position{e.N, Hash(newest.Body)}, span.Last, err
}

// Pending is an entry on its way into the audit log.
type Pending struct {
	entry Entry
	line  []byte
	at    position
	ack   *journal.Pending
	err   error
	done  chan struct{}
}

// Wait returns when the entry is stored. After an error, which wraps
// ErrUnwritten or the cause of ctx, it may be or not.
func (p *Pending) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Begin starts to write an entry without waiting; entries come in the order of
// the calls. What was decided may take effect when Wait has returned.
func (l *Log) Begin(e Entry) (*Pending, error) {
	if e.Verdict == Allowed {
		l.allowances.Add(1)
	}
	e.Time = time.Now().UTC()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, fmt.Errorf("%w: it is closed", ErrUnwritten)
	}
	if len(l.damage) > 0 {
		l.unwritten++
		return nil, l.refusal()
	}
	if l.broken.Load() {
		if err := l.reconcile(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnwritten, err)
		}
	}
	line, at, err := e.encode(l.digest, l.opts.Values, l.last)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnwritten, err)
	}
	// That it comes directly behind the one before is for the store to see to: if
	// that fails, this does too.
	ack, err := l.opts.Queue.BeginAfter(line, l.seq)
	if err != nil {
		l.broken.Store(true)
		return nil, fmt.Errorf("%w: %w", ErrUnwritten, err)
	}
	l.last, l.seq = at, l.seq+1
	p := &Pending{entry: e, line: line, at: at, ack: ack, done: make(chan struct{})}
	l.flying.Add(1)
	l.under <- p
	return p, nil
}

// Decisions is how many were noted since the start; of refusals those too of which only the
// number is written down.
func (l *Log) Decisions() (allowed, refused uint64) { return l.allowances.Load(), l.refusals.Load() }

// Record is Begin and Wait.
func (l *Log) Record(ctx context.Context, e Entry) error {
	p, err := l.Begin(e)
	if err != nil {
		return err
	}
	return p.Wait(ctx)
}

// reconcile finds out what became of the entries that were under way when one
// failed.
func (l *Log) reconcile() error {
	l.flying.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), ackTime)
	defer cancel()
	if _, err := l.head.read(); err != nil && l.spoiled(err) {
		return salt.WithHint(err, repairHint)
	}
	missing, err := l.resume(ctx)
	if err != nil {
		return err
	}
	if missing != "" {
		l.opts.Log.Error("the audit log is not what it was", "reason", missing)
	}
	l.broken.Store(false)
	return nil
}

// finish follows the entries under way, in their order.
func (l *Log) finish() {
	begun, end := 0, position{} // entries that are stored and for which the head is not written
	for p := range l.under {
		if l.finishOne(p) {
			end = p.at
		}
		if begun++; begun < headEvery && len(l.under) > 0 {
			continue
		}
		l.writeHead(end)
		l.flying.Add(-begun)
		begun, end = 0, position{}
	}
	l.head.close()
}

// headEvery is how many entries, at most, share one write of the head.
const headEvery = 256

// writeHead writes the head down once the entries are on the disk: after the loss of power
// it is behind the chain, perhaps, and never ahead of it, which would look as if entries
// had been taken out.
func (l *Log) writeHead(at position) {
	if at.n == 0 {
		return
	}
	err := error(nil)
	if l.opts.Flush != nil {
		err = l.opts.Flush()
	}
	if err == nil {
		err = l.head.write(at)
	}
	if err != nil {
		l.opts.Log.Error("head of the audit log not written", "err", err)
	}
}

// finishOne says whether the entry is stored.
func (l *Log) finishOne(p *Pending) bool {
	ctx, cancel := context.WithTimeout(l.life, ackTime)
	defer cancel()
	if _, err := p.ack.Wait(ctx); err != nil {
		l.broken.Store(true)
		p.err = fmt.Errorf("%w: %w", ErrUnwritten, err)
		close(p.done)
		l.opts.Log.Error("audit entry not written", "kind", p.entry.Kind, "user", p.entry.User, "fun", p.entry.Fun, "err", err)
		return false
	}
	close(p.done)
	l.announce(p)
	return true
}

// announce tells those who follow the chain of an entry that is stored.
func (l *Log) announce(p *Pending) {
	if l.opts.Announce != nil {
		l.opts.Announce(p.entry.Tag(), withHash(p.line, p.at.hash))
	}
	if l.copy != nil {
		l.copy.wake()
	}
}

// keepEvery is the pause between two looks at what repeats and what is too old.
const keepEvery = time.Minute

// keep does the housekeeping until Close.
func (l *Log) keep() {
	if l.copy != nil {
		l.wg.Go(func() { l.copy.run(l.stop) })
	}
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	l.housekeep()
	for {
		select {
		case <-tick.C:
			l.housekeep()
		case <-l.stop:
			return
		}
	}
}

func (l *Log) housekeep() {
	l.tellRepeated(time.Now())
	ctx, cancel := context.WithTimeout(context.Background(), ackTime)
	defer cancel()
	if err := l.prune(ctx, l.opts.limits(time.Now())); err != nil {
		l.opts.Log.Error("audit log not pruned", "err", err)
	}
}

// Close writes what is still to be told and ends. The queue must be open until
// it returns.
func (l *Log) Close() {
	l.tellRepeated(time.Now().Add(floodTime))
	l.mu.Lock()
	closed := l.closed
	l.closed = true
	l.mu.Unlock()
	if closed {
		return
	}
	defer time.AfterFunc(closeTime, l.giveUp).Stop()
	defer l.giveUp()
	l.flying.Wait()
	close(l.stop)
	close(l.under)
	l.wg.Wait()
}
