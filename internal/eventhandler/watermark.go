package eventhandler

import (
	"sort"
	"sync"
)

// watermark tracks up to which sequence everything is done, when events are finished in another
// order than they came.
type watermark struct {
	mu   sync.Mutex
	open []entry // in the order of the journal
	done uint64
}

type entry struct {
	seq  uint64
	done bool
}

// begin adds an event; the sequences must grow from call to call.
func (l *watermark) begin(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, entry{seq: seq})
}

// pass records that there is nothing to do up to seq except what has begun.
func (l *watermark) pass(seq uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.open); n > 0 && l.open[n-1].seq < seq {
		if !l.open[n-1].done { // otherwise the list of done entries grows
			l.open = append(l.open, entry{done: true})
			n++
		}
		l.open[n-1].seq = seq
	}
	if len(l.open) == 0 {
		l.done = max(l.done, seq)
	}
	return l.done
}

// finish records the end of an event and returns the sequence up to which everything is done.
func (l *watermark) finish(seq uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := sort.Search(len(l.open), func(i int) bool { return l.open[i].seq >= seq })
	if i < len(l.open) && l.open[i].seq == seq {
		l.open[i].done = true
	}
	n := 0
	for n < len(l.open) && l.open[n].done {
		l.done = max(l.done, l.open[n].seq)
		n++
	}
	l.open = l.open[n:]
	return l.done
}
