package rpc

import (
	"sync"
	"time"
)

// Bounds of what one sender makes the daemon compute at the same moment.
const (
	// maxBegun requests of one sender are begun at once; the next is when one of them has
	// ended, or has taken beginTime and so waits for something else, a disk or a minion say.
	// Those of others then wait behind a few of that sender's, not behind a hundred.
	maxBegun  = 8
	beginTime = 5 * time.Millisecond
	// A long request counts for as many as its bytes have of beginSize, up to all of them: it
	// takes the processor for longer than a short one, to be decoded before anything else. It
	// is given beginTime for each beginSize, up to longBegin.
	beginSize = 16 << 10
	longBegin = time.Second
)

// weigh returns for how many requests one of so many bytes counts, and for how long.
func weigh(size int) (weight int, limit time.Duration) {
	n := 1 + size/beginSize
	return min(maxBegun, n), min(longBegin, time.Duration(n)*beginTime)
}

// begins lets the work of each sender wait behind that sender's own. What waits is bounded
// by who adds it.
type begins struct {
	mu sync.Mutex
	of map[string]*begun
}

// begun is what one sender has.
type begun struct {
	running int // by weight
	waiting []start
}

// start is one request that is begun.
type start struct {
	weight int
	limit  time.Duration // then it only waits, and gives its turn away
	f      func()
}

// add runs f in a goroutine of its own, when it is its turn. size is that of the request.
func (b *begins) add(sender string, size int, f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil {
		b.of = map[string]*begun{}
	}
	own := b.of[sender]
	if own == nil {
		own = &begun{}
		b.of[sender] = own
	}
	weight, limit := weigh(size)
	own.waiting = append(own.waiting, start{weight, limit, f})
	b.begin(sender, own)
}

// begin begins what has waited for longest, as far as there are turns. Its caller holds mu.
func (b *begins) begin(sender string, own *begun) {
	for len(own.waiting) > 0 && own.running+own.waiting[0].weight <= maxBegun {
		next := own.waiting[0]
		own.waiting = own.waiting[1:]
		own.running += next.weight
		go b.run(sender, next)
	}
}

func (b *begins) run(sender string, s start) {
	var once sync.Once
	end := func() { b.end(sender, s.weight) }
	late := time.AfterFunc(s.limit, func() { once.Do(end) })
	defer func() {
		late.Stop()
		once.Do(end)
	}()
	s.f()
}

// end gives back the turn of one that needs it no more.
func (b *begins) end(sender string, weight int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.of[sender]
	own.running -= weight
	b.begin(sender, own)
	if own.running == 0 {
		delete(b.of, sender)
	}
}
