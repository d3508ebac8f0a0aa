package eventbus

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
)

// daemonOwner owns the positions and dead letters of the daemon's own handlers: of its reactor.
const daemonOwner = "reactor"

// Handled is a journal whose events this daemon handles: its own, or that of another member of a
// cluster.
type Handled struct {
	events *Bus
	member *Member // nil for a single master
	name   string  // of the journal, in a cluster
	from   readable
}

// readable is a journal, or that of another member.
type readable interface {
	Extent(ctx context.Context) (event.Extent, error)
	Follow(ctx context.Context, from uint64, f func(journal.Text) error) error
	Replay(ctx context.Context, from, to uint64, f func(journal.Text) error) error
}

// Name returns the name of the journal in a cluster, "" for a single master.
func (j *Handled) Name() string { return j.name }

// owner is the owner of the positions in this journal: each handler has one in each journal.
func (j *Handled) owner() string {
	if j.name == "" {
		return daemonOwner
	}
	return daemonOwner + "@" + j.name
}

// Position is how far a handler of the daemon itself has come in one journal. Its methods may be
// called concurrently.
type Position struct {
	journal *Handled
	key     string
	table   positionTable
	claim   *claim // nil for a single master
	next    uint64
	lost    uint64

	release func()
	wake    chan struct{}
	stop    context.CancelFunc
	ended   sync.WaitGroup

	mu   sync.Mutex
	want uint64
	have uint64
}

const (
	// storePause is how long positions are collected for one write.
	storePause = 100 * time.Millisecond
	// storeAgain is the longest pause after attempts that have failed.
	storeAgain = 5 * time.Second
	// passedEvery is how often those of events that no handler wants are stored.
	passedEvery = 5 * time.Second
)

// Create makes the position of the daemon's handler of that name, after the newest event, if it has
// none in this journal: then it gets all later events, whenever it begins.
func (j *Handled) Create(ctx context.Context, name string) error {
	extent, err := j.from.Extent(ctx)
	if err != nil {
		return err
	}
	t, err := j.events.tables.get(ctx, "positions")
	if err != nil {
		return err
	}
	b, err := json.Marshal(stored{Seq: extent.Last, User: daemonOwner, Time: time.Now().UTC()})
	if err != nil {
		return err
	}
	if _, err = t.Create(ctx, positionKey(j.owner(), name), b); errors.Is(err, journal.ErrChanged) {
		return nil
	}
	return err
}

// Keep takes the position of the daemon's handler of that name; a new one begins after the
// newest event. It is held until Close.
func (j *Handled) Keep(ctx context.Context, name string) (*Position, error) {
	release, err := j.events.positions.take(ctx, j.owner(), name, "")
	if err != nil {
		return nil, err
	}
	p := &Position{journal: j, key: positionKey(j.owner(), name), release: release, wake: make(chan struct{}, 1)}
	if err := p.open(ctx); err != nil {
		p.giveBack(func(ctx context.Context) error { return p.claim.release(ctx, p.table, p.key) })
		release()
		return nil, err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.stop = stop
	p.ended.Go(func() { p.run(run) })
	return p, nil
}

// open reads the position before the end of the journal: whoever had the position before may have moved it
// meanwhile.
func (p *Position) open(ctx context.Context) (err error) {
	events := p.journal.events
	t, err := events.tables.get(ctx, "positions")
	if err != nil {
		return err
	}
	p.table = t
	have, err := p.read(ctx)
	if err != nil {
		return err
	}
	extent, err := p.extent(ctx, have)
	if err != nil {
		return err
	}
	switch {
	case have == nil:
		p.next = extent.Last + 1
		return p.put(ctx, extent.Last)
	case have.Seq > extent.Last: // this is not the journal of the position
		events.log.Warn("a position is beyond the end of the journal: all events are handled from the start of the journal", "name", p.key, "seq", have.Seq, "last", extent.Last)
		p.next = extent.First
	case have.Seq+1 < extent.First:
		p.next, p.lost = extent.First, extent.First-have.Seq-1
	default:
		p.next = have.Seq + 1
	}
	p.want, p.have = p.next-1, p.next-1
	return nil
}

// extent is that of the journal. In a cluster the first answer may lack the newest events, those of the
// position too, and all events would be handled again.
func (p *Position) extent(ctx context.Context, have *stored) (event.Extent, error) {
	if have == nil || p.journal.member == nil {
		return p.journal.from.Extent(ctx)
	}
	return extentWith(ctx, have.Seq, p.journal.from.Extent)
}

// read reads the position. In a cluster it takes it at once, so that whoever had it before can no
// longer move it.
func (p *Position) read(ctx context.Context) (*stored, error) {
	if p.journal.member == nil {
		return getPosition(ctx, p.table, p.key)
	}
	have, c, err := p.journal.member.claim(ctx, p.table, p.key)
	p.claim = c
	return have, err
}

// giveBack lets other members take a position, which release does. Without a claim no other member can want it.
func (p *Position) giveBack(release func(ctx context.Context) error) {
	if p.claim != nil {
		p.journal.member.giveBack(p.claim.term, p.key, release)
	}
}

// Next is the sequence to begin at.
func (p *Position) Next() uint64 { return p.next }

// Lost is how many events, at most, were removed from the journal before they were handled.
func (p *Position) Lost() uint64 { return p.lost }

// Done records, soon, that everything up to seq is handled.
func (p *Position) Done(seq uint64) {
	p.mu.Lock()
	p.want = max(p.want, seq)
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Passed records that there was nothing to handle up to seq, so that this is not read again. That
// need not be stored soon: each event would be a write for each handler, in a cluster with copies.
// After a kill those events are read once more, and passed over again.
func (p *Position) Passed(seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.want = max(p.want, seq)
}

// run stores the position every storePause, if it has changed. While that fails, it tries less often: on a full disk
// each handler would fill the log.
func (p *Position) run(ctx context.Context) {
	tick := time.NewTicker(passedEvery)
	defer tick.Stop()
	var pauses backoff.Pauses
	for {
		select {
		case <-p.wake:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := p.flush(ctx); err != nil && ctx.Err() == nil {
			p.journal.events.throttle.Log(p.journal.events.log, slog.LevelError, p.key, 1, "position not stored", "name", p.key, "err", err)
			p.Done(0)
		} else {
			pauses.Reset()
		}
		if !backoff.Sleep(ctx, pauses.Next(storePause, storeAgain)) {
			return
		}
	}
}

func (p *Position) flush(ctx context.Context) error {
	p.mu.Lock()
	want, have := p.want, p.have
	p.mu.Unlock()
	if want <= have {
		return nil
	}
	return p.put(ctx, want)
}

func (p *Position) put(ctx context.Context, seq uint64) error {
	if err := p.claim.put(ctx, p.table, p.key, stored{Seq: seq, User: daemonOwner, Time: time.Now().UTC()}); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.have, p.want = max(p.have, seq), max(p.want, seq)
	return nil
}

// Close stores the position and releases it.
func (p *Position) Close() {
	p.stop()
	p.ended.Wait()
	err := p.last()
	if err != nil {
		p.journal.events.log.Error("position not stored, events may be handled again", "name", p.key, "err", err)
	}
	p.release()
}

// last stores the position, and then gives it back, so that who takes it next begins there.
func (p *Position) last() (err error) {
	store := func(ctx context.Context) error {
		if err = p.flush(ctx); err != nil && !errors.Is(err, errMoved) {
			return err
		}
		return p.claim.release(ctx, p.table, p.key)
	}
	if p.claim != nil {
		err = errLeaseEnded // if there is no attempt
		if p.giveBack(store); err == nil || p.claim.term.Err() == nil {
			return err
		}
	} // where the lease has ended, the position may be nobody's yet
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	return store(ctx)
}

// Hand calls f for each event from the position on that match accepts, and passed with the
// sequence of each other one, until f fails or ctx ends, whose cause it returns.
func (j *Handled) Hand(ctx context.Context, from uint64, match func(event.Head) bool, f func(line []byte) error, passed func(seq uint64)) error {
	return j.from.Follow(ctx, from, func(t journal.Text) error {
		head, err := event.HeadOf(t.Body)
		if err != nil {
			j.events.log.Error("unreadable event in the journal skipped", "seq", t.Seq, "err", err)
		}
		if err != nil || !match(head) {
			passed(t.Seq)
			return nil
		}
		return f(event.AppendStored(nil, t.Body, t.Seq))
	})
}

// Again reads the event at a sequence once more, as Hand gave it; there is false if it no
// longer exists.
func (j *Handled) Again(ctx context.Context, seq uint64) (line []byte, there bool, err error) {
	err = j.from.Replay(ctx, seq, seq, func(t journal.Text) error {
		line, there = event.AppendStored(nil, t.Body, t.Seq), true
		return nil
	})
	return line, there, err
}
