package journal

import (
	"context"
	"sync"
)

// Limits of what readers hold of the store that their callers have not handled yet. Beyond them
// a reader still reads, and holds little. A request for each message would take a minute for a journal
// of some ten thousand events.
const (
	aheadOfOne = 16 << 20 // of one principal, over all readers
	aheadOfAll = 64 << 20
	// What each further reader may hold: one piece of a long event, with its headers, or many short events.
	furtherMessages = 256
	furtherBytes    = maxPart + 64<<10
)

// Reader reads for a principal. The zero value of Of is the daemon itself.
type Reader struct {
	journal *source
	of      string
	long    LongRead
}

// LongRead is called before an event of several messages is assembled, with about how many
// bytes it has. It may wait, and an error ends the reading. done is called when the reader's
// caller has handled the event, or it was given up.
type LongRead func(ctx context.Context, size int) (done func(), err error)

// For returns a reader for a principal, to whom the limits of reading ahead apply. long may be
// nil.
func (j *source) For(principal string, long LongRead) Reader { return Reader{j, principal, long} }

// ahead counts what is read ahead. The zero value is ready.
type ahead struct {
	mu  sync.Mutex
	of  map[string]int
	all int
}

// take counts n bytes for a principal, or returns false if they exceed a limit.
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

// pull returns how much the reader asks of the store at once.
func (r Reader) pull() (messages, bytes int, end func()) {
	if !r.journal.ahead.take(r.of, aheadBytes) {
		return furtherMessages, furtherBytes, func() {}
	}
	return aheadMessages, aheadBytes, func() { r.journal.ahead.give(r.of, aheadBytes) }
}

// longEvent is the long event that a reader assembles.
type longEvent struct {
	read LongRead
	done func()
}

// begin is called with the label of each message, before it is stored in memory.
func (l *longEvent) begin(ctx context.Context, part string) (err error) {
	_, n, count, ok := splitPart(part)
	if l.read == nil || !ok || count < 2 || l.done != nil || n > 0 && n < count-1 {
		return nil // also for the last one, since the rest may be searched for
	}
	l.done, err = l.read(ctx, count*maxPart)
	return err
}

// end is called when no part of it is held any more.
func (l *longEvent) end() {
	if l.done != nil {
		l.done()
		l.done = nil
	}
}
