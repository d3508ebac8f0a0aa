package eventbus

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// daemonOwner has the positions and dead letters of the daemon's own handlers: its
// reactor.
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

// storePause gathers what is done into one write.
const storePause = 100 * time.Millisecond

// Keep takes the position of the daemon's handler of that name; a new one begins
// behind the newest event. It is kept until Close.
func (r *Bus) Keep(ctx context.Context, name string) (*Position, error) {
	release, err := r.take(ctx, daemonOwner, name, "")
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
	if p.table, err = p.events.table(ctx, "positions"); err != nil {
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
	case stored.Seq > extent.Last: // the journal is not the one of the position
		p.next = extent.First
	case stored.Seq+1 < extent.First:
		p.next, p.lost = extent.First, extent.First-stored.Seq-1
	default:
		p.next = stored.Seq + 1
	}
	p.want, p.have = p.next-1, p.next-1
	return nil
}

// Next is the place to begin at, and Lost how many events, at most, were removed
// from the journal before that.
func (p *Position) Next() uint64 { return p.next }

// Lost is how many events were removed before they were handled, at most.
func (p *Position) Lost() uint64 { return p.lost }

// Done says that everything up to seq is done. It is written down soon.
func (p *Position) Done(seq uint64) {
	p.mu.Lock()
	p.want = max(p.want, seq)
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run writes down what is done, now and then.
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
		select {
		case <-time.After(storePause):
		case <-ctx.Done():
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
	if err := putPosition(ctx, p.table, p.key, stored{seq, daemonOwner, time.Now().UTC()}); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.have, p.want = max(p.have, seq), max(p.want, seq)
	return nil
}

// Close writes down the rest and lets go of the position.
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

// Hand calls f for each event from the position on that match says, and passed for
// the place of each other, until ctx ends, whose cause it returns, or f fails.
func (r *Bus) Hand(ctx context.Context, from uint64, match func(event.Head) bool, f func(line []byte) error, passed func(seq uint64)) error {
	return r.journal.Follow(ctx, from, func(t journal.Text) error {
		head, err := event.HeadOf(t.Body)
		if err != nil {
			r.log.Error("unreadable event in the journal passed over", "seq", t.Seq, "err", err)
		}
		if err != nil || !match(head) {
			passed(t.Seq)
			return nil
		}
		return f(event.AppendPlaced(nil, t.Body, t.Seq))
	})
}

// Again reads the event at a place once more, as Hand gave it; false says that it is there
// no more.
func (r *Bus) Again(ctx context.Context, seq uint64) (line []byte, there bool, err error) {
	err = r.journal.Replay(ctx, seq, seq, func(t journal.Text) error {
		line, there = event.AppendPlaced(nil, t.Body, t.Seq), true
		return nil
	})
	return line, there, err
}

// maxOfSender is how many dead letters the events of one sender may leave behind
// with the daemon's handlers: a minion that fires what no handler can do must not
// fill the room of all, where they would stop.
const (
	maxOfSender      = 500
	maxBytesOfSender = 4 << 20 // beyond it the events are kept by their place only
)

// BuryOwn keeps a dead letter of the daemon's own handler. That of a sender who has
// his share takes the place of his oldest, and a return counts as its minion's; the
// daemon's own events have no share.
func (r *Bus) BuryOwn(ctx context.Context, l *protocol.DeadLetter) error {
	r.deadMu.Lock()
	defer r.deadMu.Unlock()
	have, err := r.buried(ctx, daemonOwner)
	if err != nil {
		return err
	}
	speaker := placeOf(daemonOwner, l, 0).speaker
	same := slices.DeleteFunc(slices.Clone(have), func(p letterPlace) bool { return p.speaker != speaker })
	switch {
	case speaker != "" && len(same) >= maxOfSender:
		oldest := same[0]
		r.log.Error("dead letter dropped: its sender has too many", "from", speaker, "handler", oldest.name, "seq", oldest.seq, "limit", maxOfSender)
		if err := r.dropLetter(ctx, daemonOwner, oldest.name, oldest.seq); err != nil {
			return err
		}
	case len(have) >= maxLetters:
		return rpc.Errorf(rpc.Busy, "there are %d dead letters of the reactor: that is the limit", len(have))
	}
	room := r.roomOf(daemonOwner, l)
	if speaker != "" {
		sum := 0
		for _, p := range same {
			sum += p.size
		}
		room = min(room, maxBytesOfSender-sum)
	}
	return r.keepOwn(ctx, l, room)
}

// keepOwn keeps a letter of the daemon: where there is no room at least its place, which is
// little, and bounded by the number of letters.
func (r *Bus) keepOwn(ctx context.Context, l *protocol.DeadLetter, room int) error {
	if err := r.keepLetter(ctx, daemonOwner, l, room, errNoRoom); !errors.Is(err, errNoRoom) {
		return err
	}
	l.Stderr = ""
	return r.keepLetter(ctx, daemonOwner, l, maxWords, errNoRoom)
}

var errNoRoom = errors.New("there is no room for the dead letter")

// OwnLetters returns the dead letters of the daemon's handler of that name: one, or
// with seq 0 all.
func (r *Bus) OwnLetters(ctx context.Context, name string, seq uint64) ([]protocol.DeadLetter, error) {
	list, err := r.letters(ctx, eventacl.Principal{Owner: daemonOwner}, protocol.Dead{Name: name, Seq: seq})
	letters := make([]protocol.DeadLetter, len(list))
	for i, l := range list {
		letters[i] = l.DeadLetter
	}
	return letters, err
}

// DropOwn forgets one of them.
func (r *Bus) DropOwn(ctx context.Context, l protocol.DeadLetter) error {
	return r.dropOne(ctx, daemonOwner, l)
}
