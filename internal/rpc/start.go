package rpc

import (
	"sync"
	"time"
)

// Limits of the CPU time that one sender can use at once.
const (
	// maxBegun requests of one sender are started at once. The next one starts when one of them
	// has ended, or has run for beginTime, since it then waits for something else, such as a
	// disk or a minion. Requests of others so wait behind a few of that sender's, not behind a
	// hundred.
	maxBegun  = 8
	beginTime = 5 * time.Millisecond
	// A long request counts for one request for each beginSize bytes, up to maxBegun: it uses
	// more CPU time to be decoded. It gets beginTime for each beginSize, up to longBegin.
	beginSize = 16 << 10
	longBegin = time.Second
)

// weigh returns for how many requests one of that size counts, and for how long.
func weigh(size int) (weight int, limit time.Duration) {
	n := 1 + size/beginSize
	return min(maxBegun, n), min(longBegin, time.Duration(n)*beginTime)
}

// begins queues the requests of each sender behind its own. The caller of add limits how many
// wait.
type begins struct {
	mu sync.Mutex
	of map[string]*begun
}

// begun is the state of one sender.
type begun struct {
	running int // by weight
	waiting []start
}

// start is one started request.
type start struct {
	weight int
	limit  time.Duration // after that it only waits, and releases its turn
	f      func(waits func())
}

// add runs f in its own goroutine when it is its turn. size is that of the request. f may
// release its turn before it ends, by waits.
func (b *begins) add(sender string, size int, f func(waits func())) {
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

// begin starts the requests that have waited longest, as far as there are turns. The caller
// holds mu.
func (b *begins) begin(sender string, own *begun) {
	for len(own.waiting) > 0 && own.running+own.waiting[0].weight <= maxBegun {
		next := own.waiting[0]
		own.waiting = own.waiting[1:]
		own.running += next.weight
		go b.run(sender, next)
	}
}

func (b *begins) run(sender string, s start) {
	end := sync.OnceFunc(func() { b.end(sender, s.weight) })
	late := time.AfterFunc(s.limit, end)
	defer func() {
		late.Stop()
		end()
	}()
	s.f(end)
}

// end releases the turn of a request that does not need it any more.
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
