package journal

import (
	"context"
	"sync"
)

// Bounds of what readers hold of the store that their callers have not looked at. A reader
// beyond them reads all the same, one message after the other.
const (
	aheadOfOne = 16 << 20 // of one principal, over all readers
	aheadOfAll = 64 << 20
)

// Reader reads for a principal. The zero value of Of is the daemon itself.
type Reader struct {
	journal *source
	of      string
	long    LongRead
}

// LongRead is asked before an event of several messages is put together, with about how
// many bytes it has; it may wait, and an error ends the reading. done is called when the
// reader's caller has looked at the event, or nothing came of it.
type LongRead func(ctx context.Context, size int) (done func(), err error)

// For reads for a principal, whom the bounds of what is read ahead are for. long may be nil.
func (j *source) For(principal string, long LongRead) Reader { return Reader{j, principal, long} }

// ahead counts what is read ahead. The zero value is ready.
type ahead struct {
	mu  sync.Mutex
	of  map[string]int
	all int
}

// take books n bytes for a principal, or says that there is no room.
func (a *ahead) take(of string, n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all+n > aheadOfAll || of != "" && a.of[of]+n > aheadOfOne {
		return false
	}
	if a.of == nil {
		a.of = map[string]int{}
	}
	a.of[of] += n
	a.all += n
	return true
}

func (a *ahead) give(of string, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all -= n
	if a.of[of] -= n; a.of[of] == 0 {
		delete(a.of, of)
	}
}

// pull is what a reader asks the store for at once.
func (r Reader) pull() (messages int, end func()) {
	if !r.journal.ahead.take(r.of, aheadBytes) {
		return 1, func() {}
	}
	return aheadMessages, func() { r.journal.ahead.give(r.of, aheadBytes) }
}

// longEvent is the long event that a reader puts together.
type longEvent struct {
	read LongRead
	done func()
}

// begin is called with the label of each message, before it is kept.
func (l *longEvent) begin(ctx context.Context, part string) (err error) {
	_, n, count, ok := splitPart(part)
	if l.read == nil || !ok || count < 2 || l.done != nil || n > 0 && n < count-1 {
		return nil // the last one, too, since the rest may be looked for
	}
	l.done, err = l.read(ctx, count*maxPart)
	return err
}

// end is called when nothing of it is held any more.
func (l *longEvent) end() {
	if l.done != nil {
		l.done()
		l.done = nil
	}
}
