package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/brinebus/brine/internal/journal"
)

// Report is the result of Verify.
type Report struct {
	OK       bool
	Entries  uint64 // that were checked
	First    uint64 // numbers of the first and the last entry, 0 in an empty audit log
	Last     uint64
	Head     string   // NUMBER:HASH of the last entry, to be kept elsewhere
	Problems []string // at most maxProblems
	// Compared names what is known of the chain from elsewhere, with which it was compared. Without anything, the
	// report says only that the entries fit together.
	Compared []string
}

// maxProblems limits the reported problems; one change may cause several.
const maxProblems = 20

// ParseHead parses NUMBER:HASH.
func ParseHead(s string) (n uint64, hash string, err error) {
	number, hash, _ := strings.Cut(s, ":")
	n, err = strconv.ParseUint(number, 10, 64)
	if err != nil || len(hash) != len(origin.hash) {
		return 0, "", fmt.Errorf("%.80q is not a head of the audit log: it is written NUMBER:HASH", s)
	}
	return n, hash, nil
}

// Verify reads the whole audit log and compares it with the head, and with the heads that were kept
// elsewhere. It returns an error only if it could not read them.
func (l *Log) Verify(ctx context.Context, kept ...string) (Report, error) {
	c := newCheck(&l.removed)
	for _, s := range kept {
		n, hash, err := ParseHead(s)
		if err != nil {
			return Report{}, err
		}
		c.know(n, hash)
		c.compared(keptHead)
	}
	at, err := l.idleHead()
	if d := (*damaged)(nil); errors.As(err, &d) {
		c.problem("%s is damaged: %s", d.file, d.reason)
	} else if err != nil {
		return Report{}, err
	}
	if at.n > 0 {
		c.know(at.n, at.hash)
		c.compared("the audit.head of this master")
	}
	if err := c.all(ctx, l.opts.Queue); err != nil {
		return Report{}, err
	}
	return c.finish(), nil
}

// keptHead is what Compared has of a head that was kept elsewhere.
const keptHead = "the head that was given"

// idleHead returns the head when no entry is pending.
func (l *Log) idleHead() (position, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flying.Wait()
	return l.head.read()
}

// check is the state of one verification.
type check struct {
	known  map[uint64][]string // hashes known from elsewhere, by number
	end    uint64              // the highest of them
	last   position            // the previous entry
	first  Entry
	pruned position // the newest entry that was pruned according to the log
	good   uint64   // the newest entry up to which nothing is wrong
	report Report
	// removed returns the newest entry that was pruned since the start: that may happen during the check.
	removed func() position
}

// pruned is the newest entry that was pruned since the start; nil for none.
type pruned = atomic.Pointer[position]

// newCheck makes one that knows what the log removes meanwhile.
func newCheck(removed *pruned) *check {
	return &check{known: map[uint64][]string{}, last: origin, removed: func() position {
		if at := removed.Load(); at != nil {
			return *at
		}
		return position{}
	}}
}

// know takes into account what is known from elsewhere of an entry.
func (c *check) know(n uint64, hash string) {
	c.known[n], c.end = append(c.known[n], hash), max(c.end, n)
}

// compared notes where that is known from.
func (c *check) compared(with string) {
	if !slices.Contains(c.report.Compared, with) {
		c.report.Compared = append(c.report.Compared, with)
	}
}

// all checks what is in a queue.
func (c *check) all(ctx context.Context, q *journal.Queue) error {
	span, err := q.Span(ctx)
	if err != nil {
		return err
	}
	return each(ctx, q, span.First, span.Last, func(e journal.Entry) error { c.entry(e.Body); return nil })
}

func (c *check) problem(format string, args ...any) {
	if len(c.report.Problems) < maxProblems {
		c.report.Problems = append(c.report.Problems, fmt.Sprintf(format, args...))
	}
}

// entry checks the next entry.
func (c *check) entry(line []byte) {
	c.report.Entries++
	e, err := parse(line)
	if err != nil {
		c.problem("behind entry %d: %v", c.last.n, err)
		return
	}
	hash := Hash(line)
	if c.first.N == 0 {
		c.first = e
	} else {
		c.link(e)
	}
	if e.Kind == OfLog && e.Upto > c.pruned.n {
		c.pruned = position{e.Upto, e.Hash}
	}
	if slices.ContainsFunc(c.known[e.N], func(want string) bool { return want != hash }) {
		c.problem("entry %d is not the one that was written", e.N)
	}
	c.last = position{e.N, hash}
	if len(c.report.Problems) == 0 {
		c.good = e.N
	}
}

// link compares an entry with the previous one.
func (c *check) link(e Entry) {
	removed := position{}
	if e.N > c.last.n+1 {
		removed = c.removed()
	}
	switch {
	case removed.n >= e.N: // it is being removed, too
	case removed.n > 0 && removed.n == e.N-1 && removed.hash == e.Prev:
	case e.N <= c.last.n:
		c.problem("entry %d stands behind entry %d", e.N, c.last.n)
	case e.N > c.last.n+1:
		c.problem("%s missing", numbers(max(c.last.n, removed.n)+1, e.N-1))
	case e.Prev != c.last.hash:
		c.problem("entry %d was changed, or entry %d is not the one that was behind it", c.last.n, e.N)
	}
}

func numbers(from, to uint64) string {
	if from == to {
		return fmt.Sprintf("entry %d is", from)
	}
	return fmt.Sprintf("entries %d to %d are", from, to)
}

// finish checks both ends.
func (c *check) finish() Report {
	if at := c.removed(); at.n > c.pruned.n {
		c.pruned = at
	}
	if n := c.first.N; n > 0 {
		switch before := n - 1; {
		case c.pruned.n < before:
			c.problem("%s missing at the beginning", numbers(c.pruned.n+1, before))
		case before == 0 && c.first.Prev != origin.hash:
			c.problem("entry 1 is not the first one that was written")
		case c.pruned.n == before && before > 0 && c.pruned.hash != c.first.Prev:
			c.problem("entry %d is not the one that was behind those that were pruned", n)
		}
	}
	if c.last.n < c.end {
		c.problem("%s missing at the end", numbers(c.last.n+1, c.end))
	}
	r := &c.report
	r.OK, r.First, r.Last = len(r.Problems) == 0, c.first.N, c.last.n
	r.Head = fmt.Sprintf("%d:%s", c.last.n, c.last.hash)
	return *r
}
