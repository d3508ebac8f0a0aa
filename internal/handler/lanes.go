package handler

import (
	"context"
	"sync"
)

// lanes hands events to workers: those of one sender one after the other, those
// of different senders side by side, as many at once as there are slots.
type lanes struct {
	work  func(ctx context.Context, slots chan struct{}, i Item)
	slots chan struct{}

	mu     sync.Mutex
	room   *sync.Cond
	queues map[string][]Item // by speaker, see event.Head; one that exists has a goroutine
	count  int
	bytes  int
	wg     sync.WaitGroup
}

// Bounds of what waits in memory; beyond them the daemon keeps it.
const (
	maxWaiting      = 512
	maxWaitingBytes = 32 << 20
)

func newLanes(parallel int, work func(context.Context, chan struct{}, Item)) *lanes {
	l := &lanes{work: work, slots: make(chan struct{}, parallel), queues: map[string][]Item{}}
	l.room = sync.NewCond(&l.mu)
	return l
}

// put hands an event over, waiting while too many are under way. It returns false
// when ctx has ended.
func (l *lanes) put(ctx context.Context, i Item) bool {
	stop := context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.room.Broadcast()
	})
	defer stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for ctx.Err() == nil && (l.count >= maxWaiting || l.count > 0 && l.bytes+len(i.Line) > maxWaitingBytes) {
		l.room.Wait()
	}
	if ctx.Err() != nil {
		return false
	}
	l.count++
	l.bytes += len(i.Line)
	speaker := i.head().Speaker()
	queue, running := l.queues[speaker]
	l.queues[speaker] = append(queue, i)
	if !running {
		l.wg.Go(func() { l.run(ctx, speaker) })
	}
	return true
}

// run works off what one sender has sent, until nothing of it is left.
func (l *lanes) run(ctx context.Context, from string) {
	for {
		l.mu.Lock()
		queue := l.queues[from]
		if len(queue) == 0 || ctx.Err() != nil {
			delete(l.queues, from)
			l.mu.Unlock()
			return
		}
		i := queue[0]
		l.queues[from] = queue[1:]
		l.mu.Unlock()
		l.work(ctx, l.slots, i)
		l.mu.Lock()
		l.count--
		l.bytes -= len(i.Line)
		l.room.Broadcast()
		l.mu.Unlock()
	}
}

// wait waits for everything that was handed over, or that is under way when ctx
// ends.
func (l *lanes) wait() { l.wg.Wait() }
