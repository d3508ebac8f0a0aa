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
)

// begins lets the work of each sender wait behind that sender's own. What waits is bounded
// by who adds it.
type begins struct {
	mu sync.Mutex
	of map[string]*begun
}

// begun is what one sender has.
type begun struct {
	running int
	waiting []func()
}

// add runs f in a goroutine of its own, when it is its turn.
func (b *begins) add(sender string, f func()) {
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
	if own.running >= maxBegun {
		own.waiting = append(own.waiting, f)
		return
	}
	own.running++
	go b.run(sender, f)
}

func (b *begins) run(sender string, f func()) {
	var once sync.Once
	next := func() { b.next(sender) }
	late := time.AfterFunc(beginTime, func() { once.Do(next) })
	defer func() {
		late.Stop()
		once.Do(next)
	}()
	f()
}

// next begins what has waited for longest, in the place of one that needs it no more.
func (b *begins) next(sender string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.of[sender]
	if len(own.waiting) > 0 {
		f := own.waiting[0]
		own.waiting = own.waiting[1:]
		go b.run(sender, f)
		return
	}
	if own.running--; own.running == 0 {
		delete(b.of, sender)
	}
}
