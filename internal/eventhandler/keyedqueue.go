package eventhandler

import (
	"context"
	"sync"
)

// keyedQueue passes events to workers: those of one sender one after the other, those of
// different senders in parallel, as many at once as there are slots.
type keyedQueue struct {
	work  func(ctx context.Context, slots chan struct{}, i Item)
	again func(ctx context.Context, seq uint64) (Item, bool, error) // see Handler.Again
	gone  func(journal string, seq uint64, err error)               // such an event no longer exists, or cannot be read
	slots chan struct{}

	mu      sync.Mutex
	drained *sync.Cond
	queues  map[string]*queue // by speaker, see event.Head; each has a goroutine
	count   int
	bytes   int
	left    int // events kept by their sequence only
	wg      sync.WaitGroup
}

// queue holds the waiting events of one sender. Those beyond the sender's share of the memory
// are kept by their sequence, and read again when it is their turn.
type queue struct {
	items []Item
	count int      // events in memory: those in items, and the one being handled
	bytes int      // of those
	rest  []uint64 // after items
	// journal is that of rest: they are of one journal.
	journal string
}

// Limits of what waits in memory; the daemon keeps what is beyond them.
const (
	maxWaiting      = 512
	maxWaitingBytes = 32 << 20
	// If events can be read again, one sender has an eighth of it: events of others do not wait
	// behind more than that.
	senderWaiting = maxWaiting / 8
	senderBytes   = maxWaitingBytes / 8
	maxLeft       = 200_000 // sequences of all senders; some ten bytes each
)

func newKeyedQueue(parallel int, work func(context.Context, chan struct{}, Item)) *keyedQueue {
	l := &keyedQueue{work: work, slots: make(chan struct{}, parallel), queues: map[string]*queue{}}
	l.drained = sync.NewCond(&l.mu)
	return l
}

// put adds an event, and waits while too many are under way. It returns false when ctx has
// ended.
func (l *keyedQueue) put(ctx context.Context, i Item) bool {
	stop := context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.drained.Broadcast()
	})
	defer stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	speaker := i.head().Speaker()
	for ctx.Err() == nil && !l.takes(l.queues[speaker], i) {
		l.drained.Wait()
	}
	if ctx.Err() != nil {
		return false
	}
	q := l.queues[speaker]
	if q == nil {
		q = &queue{}
		l.queues[speaker] = q
		l.wg.Go(func() { l.run(ctx, speaker, q) })
	}
	if l.again != nil && q.full(i) {
		q.rest, q.journal = append(q.rest, i.Event.Seq), i.Journal
		l.left++
		return true
	}
	q.items = append(q.items, i)
	q.count++
	q.bytes += len(i.Line)
	l.count++
	l.bytes += len(i.Line)
	return true
}

// takes reports whether an event of the sender with that queue fits.
func (l *keyedQueue) takes(q *queue, i Item) bool {
	if l.again != nil && q.full(i) {
		return l.left < maxLeft
	}
	return l.count < maxWaiting && (l.count == 0 || l.bytes+len(i.Line) <= maxWaitingBytes)
}

// full reports whether the sender has used up its share. To keep the order, events after a
// sequence are also kept by their sequence.
func (q *queue) full(i Item) bool {
	return q != nil && (len(q.rest) > 0 || q.count >= senderWaiting || q.count > 0 && q.bytes+len(i.Line) > senderBytes)
}

// run handles the events of one sender until none is left.
func (l *keyedQueue) run(ctx context.Context, from string, q *queue) {
	for {
		i, seq, some := l.next(ctx, from, q)
		if !some {
			return
		}
		if seq == 0 {
			l.work(ctx, l.slots, i)
			l.release(q, len(i.Line))
			continue
		}
		i, there, err := l.again(ctx, seq)
		if err == nil && there {
			l.work(ctx, l.slots, i)
		} else if ctx.Err() == nil {
			l.gone(q.journal, seq, err)
		}
	}
}

// next returns the next event of a sender, or its sequence; after the last one it removes the
// queue.
func (l *keyedQueue) next(ctx context.Context, from string, q *queue) (i Item, seq uint64, some bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case len(q.items) > 0:
		i, q.items = q.items[0], q.items[1:]
		return i, 0, true
	case len(q.rest) > 0:
		seq, q.rest = q.rest[0], q.rest[1:]
		l.left--
		l.drained.Broadcast()
		return i, seq, true
	}
	delete(l.queues, from)
	return i, 0, false
}

// release frees the space of a handled event.
func (l *keyedQueue) release(q *queue, size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q.count--
	q.bytes -= size
	l.count--
	l.bytes -= size
	l.drained.Broadcast()
}

// wait waits for everything that was added, or that is under way when ctx ends.
func (l *keyedQueue) wait() { l.wg.Wait() }
