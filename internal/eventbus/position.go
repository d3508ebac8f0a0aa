package eventbus

import (
	"context"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
)

// daemonOwner owns the positions and dead letters of the daemon's own handlers: of its reactor.
const daemonOwner = "reactor"

// Position is how far a handler of the daemon itself has come. Its methods may be
// called concurrently.
type Position struct {
	events *Bus
	key    string
	table  *journal.Table
	next   uint64
	lost   uint64

	release func()
	wake    chan struct{}
	stop    context.CancelFunc
	ended   sync.WaitGroup

	mu   sync.Mutex
	want uint64
	have uint64
}

// storePause is how long positions are collected for one write.
const storePause = 100 * time.Millisecond

// Keep takes the position of the daemon's handler of that name; a new one begins after the
// newest event. It is held until Close.
func (r *Bus) Keep(ctx context.Context, name string) (*Position, error) {
	release, err := r.positions.take(ctx, daemonOwner, name, "")
	if err != nil {
		return nil, err
	}
	p := &Position{events: r, key: positionKey(daemonOwner, name), release: release, wake: make(chan struct{}, 1)}
	if err := p.open(ctx); err != nil {
		release()
		return nil, err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.stop = stop
	p.ended.Go(func() { p.run(run) })
	return p, nil
}

func (p *Position) open(ctx context.Context) error {
	extent, err := p.events.journal.Extent(ctx)
	if err != nil {
		return err
	}
	if p.table, err = p.events.tables.get(ctx, "positions"); err != nil {
		return err
	}
	stored, err := getPosition(ctx, p.table, p.key)
	if err != nil {
		return err
	}
	switch {
	case stored == nil:
		p.next = extent.Last + 1
		return p.put(ctx, extent.Last)
	case stored.Seq > extent.Last: // this is not the journal of the position
		p.events.log.Warn("a position is beyond the end of the journal: all events are handled from the start of the journal", "name", p.key, "seq", stored.Seq, "last", extent.Last)
		p.next = extent.First
	case stored.Seq+1 < extent.First:
		p.next, p.lost = extent.First, extent.First-stored.Seq-1
	default:
		p.next = stored.Seq + 1
	}
	p.want, p.have = p.next-1, p.next-1
	return nil
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

// run stores the position every storePause, if it has changed.
func (p *Position) run(ctx context.Context) {
	for {
		select {
		case <-p.wake:
		case <-ctx.Done():
			return
		}
		if err := p.flush(ctx); err != nil && ctx.Err() == nil {
			p.events.log.Error("position not stored", "name", p.key, "err", err)
			p.Done(0)
		}
		if !backoff.Sleep(ctx, storePause) {
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
	if err := putPosition(ctx, p.table, p.key, stored{Seq: seq, User: daemonOwner, Time: time.Now().UTC()}); err != nil {
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
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := p.flush(ctx); err != nil {
		p.events.log.Error("position not stored, events may be handled again", "name", p.key, "err", err)
	}
	p.release()
}

// Hand calls f for each event from the position on that match accepts, and passed with the
// sequence of each other one, until f fails or ctx ends, whose cause it returns.
func (r *Bus) Hand(ctx context.Context, from uint64, match func(event.Head) bool, f func(line []byte) error, passed func(seq uint64)) error {
	return r.journal.Follow(ctx, from, func(t journal.Text) error {
		head, err := event.HeadOf(t.Body)
		if err != nil {
			r.log.Error("unreadable event in the journal skipped", "seq", t.Seq, "err", err)
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
func (r *Bus) Again(ctx context.Context, seq uint64) (line []byte, there bool, err error) {
	err = r.journal.Replay(ctx, seq, seq, func(t journal.Text) error {
		line, there = event.AppendStored(nil, t.Body, t.Seq), true
		return nil
	})
	return line, there, err
}
