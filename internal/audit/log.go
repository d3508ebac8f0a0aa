package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/salt"
)

// Options configures a Log.
type Options struct {
	Queue    *journal.Queue // holds only the chain
	Position *journal.Table // stores how far File was written
	HeadFile string         // the end of the chain
	KeyFile  string         // the key for digests
	File     string         // gets a copy of each entry as one line; "" for none
	Values   bool           // record arguments, not only their digest
	MaxAge   time.Duration  // older entries are pruned; 0 keeps them
	MaxBytes int64          // the oldest entries are pruned above it; 0 means no limit
	// Announce sends a stored entry with its hash to listeners; it may be nil. It does not block.
	Announce func(tag string, data json.RawMessage)
	// Flush returns when the stored entries are on disk; nil if the store has none.
	Flush func() error
	// Spool has what is decided while nothing can be stored, until it is; its events go into Journal.
	// Without it there is none.
	Spool   *Spool
	Journal *journal.Journal
	// Name is the one of this member of a cluster, "" for a single master, and Members are the others, nil for one.
	Name    string
	Members Members
	// SeenFile has the ends of the audit logs of others, as they were seen here; "" for none, and then nothing of
	// them is pruned here.
	SeenFile string
	Log      *slog.Logger
}

// Log is an open audit log. Its methods may be called concurrently; entries get one order.
type Log struct {
	opts   Options
	digest digester
	head   *head
	copy   *copier

	mu        sync.Mutex // held while Begin starts an entry
	last      position   // the last entry that was started
	seq       uint64     // its sequence in the queue
	closed    bool
	damage    []*damaged  // nothing is written while this is not empty
	unwritten int         // entries refused because of it
	hurt      atomic.Bool // damage is not empty
	broken    atomic.Bool // an entry was not stored: the next one finds out what is in the store
	flying    sync.WaitGroup
	removed   pruned

	allowances, refusals atomic.Uint64 // decisions since the start

	under chan *Pending // in the order of the chain

	flood  flood
	stop   chan struct{}
	life   context.Context // ends when Close stops waiting
	giveUp context.CancelFunc
	wg     sync.WaitGroup
}

// ackTime limits the wait for the store. closeTime limits the wait for pending entries at Close: a
// broken store must not block the end of a daemon.
const (
	ackTime   = 30 * time.Second
	closeTime = 5 * time.Second
)

// ErrUnwritten is wrapped by the errors of entries that are not in the audit log. Their decision
// must not take effect.
var ErrUnwritten error = salt.Unwritten("the audit log")

// Open opens the audit log and compares its end with the head: missing entries are logged and get
// an entry themselves. It is an error if the file for copies cannot be written.
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
	if o.Spool != nil {
		if err := o.Spool.lower(spoolMark{Audit: l.seq, Journal: o.Journal.Stored()}); err != nil {
			o.Log.Error("what was done while it could not be stored may be stored twice", "err", err)
		}
	}
	l.wg.Go(l.finish)
	l.wg.Go(l.keep)
	if o.Spool != nil {
		l.wg.Go(l.keepSpool)
	}
	if o.SeenFile != "" {
		l.wg.Go(func() { keepOthers(l) })
	}
	return l, nil
}

// begin finds the end of the chain and opens the file for copies. created means that there was no
// head.
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
		if l.copy, err = newCopier(ctx, l.opts, l.last); err != nil {
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

// checkHead records that the head is damaged. An empty head is not damaged if there is no chain
// yet.
func (l *Log) checkHead(ctx context.Context) error {
	_, err := l.head.read()
	if err == nil {
		return nil
	}
	if info, errStat := l.head.file.Stat(); errStat == nil && info.Size() == 0 {
		if end, _, lost, errEnd := endOf(ctx, l.opts.Queue); errEnd == nil && end.n == 0 && lost == 0 {
			return l.head.write(origin)
		}
	}
	if l.spoiled(err) {
		return nil
	}
	return err
}

// find sets the position where the chain continues, and returns what is wrong with its end.
func (l *Log) find(ctx context.Context, known position) (missing string, err error) {
	end, seq, lost, err := endOf(ctx, l.opts.Queue)
	if err != nil {
		return "", err
	}
	l.last, l.seq = end, seq
	if lost > 0 {
		missing = fmt.Sprintf("%s behind entry %d", unreadable(lost), end.n)
	}
	switch {
	case end.n < known.n:
		missing = fmt.Sprintf("entries %d to %d are missing at the end", end.n+1, known.n)
	case end.n == known.n && end.hash != known.hash:
		missing = fmt.Sprintf("entry %d is not the one that was written", end.n)
	case end.n > known.n && known.n > 0:
		// As after a crash. The entries behind the head must follow the one that was written, since anybody can add
		// some to others.
		hash, seq, err := find(ctx, l.opts.Queue, known.n)
		if err != nil || seq == 0 || hash == known.hash {
			return missing, err
		}
		missing = fmt.Sprintf("entry %d is not the one that was written", known.n)
		known.n = end.n
	default:
		return missing, nil
	}
	l.last = known // the gap, or the break, stays visible in the chain
	return missing, nil
}

// endOf returns the position of the last stored entry, and the last sequence of the queue, which may
// be higher. lost is how many messages behind that entry are none: the chain continues without them.
func endOf(ctx context.Context, q *journal.Queue) (at position, seq uint64, lost int, err error) {
	span, err := q.Span(ctx)
	if err != nil {
		return position{}, 0, 0, err
	}
	newest, any, err := q.Newest(ctx)
	if err != nil || !any {
		return origin, span.Last, 0, err
	}
	e, bad := parse(newest.Body)
	for before := newest.Seq; bad != nil; {
		lost++
		if newest, before, err = entryBefore(ctx, q, before, span.First); err != nil {
			return position{}, 0, 0, err
		}
		if before == 0 {
			return origin, span.Last, lost, nil
		}
		e, bad = parse(newest.Body)
	}
	return position{e.N, Hash(newest.Body)}, span.Last, lost, nil
}

// entryBefore returns the message of the queue before a sequence, and its sequence; 0 if there is none.
func entryBefore(ctx context.Context, q *journal.Queue, seq, first uint64) (journal.Entry, uint64, error) {
	for seq--; seq >= max(first, 1); seq-- {
		list, err := q.Read(ctx, seq, 1, 1)
		if err != nil {
			return journal.Entry{}, 0, err
		}
		if len(list) > 0 && list[0].Seq == seq {
			return list[0], seq, nil
		}
	}
	return journal.Entry{}, 0, nil
}

func unreadable(n int) string {
	if n == 1 {
		return "one message is not an entry"
	}
	return fmt.Sprintf("%d messages are not entries", n)
}

// Pending is an entry that is being written.
type Pending struct {
	entry Entry
	line  []byte
	at    position
	ack   *journal.Pending
	err   error
	done  chan struct{}
}

// Wait returns when the entry is stored. After an error, which wraps ErrUnwritten or the cause of
// ctx, the entry may or may not be stored.
func (p *Pending) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Begin starts to write an entry without waiting; entries are in the order of the calls. The
// decision may take effect after Wait has returned.
func (l *Log) Begin(e Entry) (*Pending, error) {
	if e.Verdict == Allowed {
		l.allowances.Add(1)
	}
	e.Time = time.Now().UTC()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return nil, err
	}
	return l.put(e)
}

// usable returns why no entry can be written. The caller holds mu, as for put.
func (l *Log) usable() error {
	if l.closed {
		return fmt.Errorf("%w: it is closed", ErrUnwritten)
	}
	if len(l.damage) > 0 {
		l.unwritten++
		return l.refusal()
	}
	if l.broken.Load() {
		if err := l.reconcile(); err != nil {
			return fmt.Errorf("%w: %w", ErrUnwritten, err)
		}
	}
	return nil
}

// put is Begin for an entry with its time.
func (l *Log) put(e Entry) (*Pending, error) {
	line, at, err := e.encode(l.digest, l.opts.Values, l.last)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnwritten, err)
	}
	// The store makes sure that it directly follows the previous entry: if that one fails, this one
	// fails too.
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

// Decisions returns the number of decisions since the start, including refusals of which only the
// number is recorded.
func (l *Log) Decisions() (allowed, refused uint64) { return l.allowances.Load(), l.refusals.Load() }

// Stalled returns why what is under way is not stored, in the chain or in the journal: nothing can be, or the members of a
// cluster elect a leader; nil otherwise.
func (l *Log) Stalled() error {
	if err := l.opts.Queue.Stalled(); err != nil || l.opts.Journal == nil {
		return err
	}
	return journal.Stalled(l.opts.Journal)
}

// Record calls Begin and Wait.
func (l *Log) Record(ctx context.Context, e Entry) error {
	p, err := l.Begin(e)
	if err != nil {
		return err
	}
	return p.Wait(ctx)
}

// reconcile finds out which of the pending entries were stored after one failed.
func (l *Log) reconcile() error {
	if err := l.opts.Queue.Err(); err != nil {
		return err // it names the reason at once; questions to the store might get no answer
	}
	l.flying.Wait()
	ctx, cancel := context.WithTimeout(l.life, ackTime)
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

// finish waits for the pending entries, in order.
func (l *Log) finish() {
	defer func() { l.head.close() }() // Repair may have replaced it
	begun, end := 0, position{}       // entries that are stored but not yet in the head
	write := func() {
		l.writeHead(end)
		l.flying.Add(-begun)
		begun, end = 0, position{}
	}
	defer write()
	due := time.NewTimer(headPause)
	defer due.Stop()
	for {
		select {
		case p, more := <-l.under:
			if !more {
				return
			}
			if l.finishOne(p) {
				end = p.at
			}
			if begun++; begun == 1 {
				due.Reset(headPause)
			}
			if begun == headEvery {
				write()
			}
		case <-due.C:
			write()
		}
	}
}

// Several entries share one write of the head: at most this many, or those within headPause of the
// first. By then the decided work is mostly done, so it need not share disk and CPU with two syncs.
const (
	headEvery = 256
	headPause = 5 * time.Millisecond
)

// writeHead writes the head after the entries are on disk: after a power failure it may be behind
// the chain but never ahead of it, which would look as if entries had been removed.
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

// finishOne reports whether the entry is stored.
func (l *Log) finishOne(p *Pending) bool {
	ctx, cancel := context.WithTimeout(l.life, ackTime)
	defer cancel()
	if _, err := p.ack.Wait(ctx); err != nil {
		l.broken.Store(true)
		p.err = fmt.Errorf("%w: %w", ErrUnwritten, err)
		close(p.done)
		l.opts.Log.Error("audit entry not stored by the journal", "kind", p.entry.Kind, "user", p.entry.User, "fun", p.entry.Fun, "err", err)
		return false
	}
	close(p.done)
	l.announce(p)
	return true
}

// announce sends a stored entry to the listeners.
func (l *Log) announce(p *Pending) {
	if l.opts.Announce != nil {
		l.opts.Announce(p.entry.Tag(), withHash(p.line, p.at.hash))
	}
	if l.copy != nil {
		l.copy.wake()
	}
}

// keepEvery is the interval of housekeeping: repeated refusals and pruning.
const keepEvery = time.Minute

// keep does the housekeeping until Close.
func (l *Log) keep() {
	if l.copy != nil {
		l.wg.Go(func() { l.copy.run(l.life, l.stop) })
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
	if err := pruneAll(l, l.opts.limits(time.Now())); err != nil {
		l.opts.Log.Error("audit log not pruned", "err", err)
	}
}

// Close writes pending entries and stops. The queue must stay open until Close returns.
func (l *Log) Close() {
	defer time.AfterFunc(closeTime, l.giveUp).Stop()
	l.tellRepeated(time.Now().Add(floodTime))
	l.mu.Lock()
	closed := l.closed
	l.closed = true
	l.mu.Unlock()
	if closed {
		return
	}
	defer l.giveUp()
	l.flying.Wait()
	close(l.stop)
	close(l.under)
	l.wg.Wait()
}
