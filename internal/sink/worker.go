package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/event"
)

// Source provides the events of one rule, from its position on. Only one goroutine may call its
// methods; they wait while the daemon is unreachable. An error other than that of the context is
// permanent.
type Source interface {
	// Hold returns when the position is locked for this rule. If it was not all the time since the
	// previous call, another sink may have worked meanwhile: anew is true, and everything up to done
	// is delivered.
	Hold(ctx context.Context) (done event.Position, anew bool, err error)
	// Next waits for events. All events up to passed are in lines, were in earlier lines, or do not
	// belong to this rule. In a cluster each line names its journal; the journal of a single master
	// is "" in a position.
	Next(ctx context.Context) (lines [][]byte, passed event.Position, err error)
	// Confirm stores that all events up to done are done.
	Confirm(ctx context.Context, done event.Position) error
	// KeepDead stores an event that the destination will never accept as a dead letter, unless
	// another sink has delivered it meanwhile.
	KeepDead(ctx context.Context, e Event, reason error) error
	// Back makes Next continue after these positions again, in the journals that they name.
	Back(to event.Position)
	// Pause closes the connection to the daemon for a longer time, and so unlocks the position; Next
	// continues after the lines that it returned last.
	Pause()
	Close()
}

// The pauses between attempts to reach an unreachable destination, and how often the log repeats
// that it is unreachable.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 15 * time.Second
	tellEvery  = 5 * time.Minute
)

// grace is how long the current batch may take after the sink is told to stop.
const grace = 5 * time.Second

// worker runs one rule.
type worker struct {
	rule   Rule
	source Source
	log    *slog.Logger
	fresh  bool // start new files

	dest       destination
	rest       []Event        // read from the source, for the next batch
	ahead      event.Position // where to go back to, while the worker looks ahead; otherwise nil
	written    map[place]bool // events that were written while it looked ahead
	sure       event.Position // up to here, a later event was accepted: what is refused is not the fault of a setting
	passed     event.Position // of the source, including rest
	pauses     backoff.Pauses
	away       time.Time // since when the destination is unreachable; zero while it is reachable
	awayLogged time.Time // when that was last logged
}

// run serves the rule until ctx ends, whose cause it returns, or until a permanent error.
func (w *worker) run(ctx context.Context) error {
	defer w.source.Close()
	defer w.closeDest()
	if err := w.insist(ctx, ctx, new(batch), w.open); err != nil {
		return err
	}
	for {
		b, err := w.gather(ctx)
		if err != nil {
			return err
		}
		if err := w.process(ctx, b); err != nil {
			return err
		}
	}
}

// process writes and confirms a batch. It continues for a moment after ctx ends.
func (w *worker) process(ctx context.Context, b batch) error {
	longer, cancel := linger(ctx)
	defer cancel()
	err := w.deliver(ctx, longer, &b)
	if errors.Is(err, errAllRefused) {
		w.failed(err)
		return w.lookAhead(ctx, b)
	}
	if err != nil {
		return err
	}
	return w.source.Confirm(longer, b.passed)
}

// lookAhead is called with a batch that is refused completely: by a wrong setting, or because of its
// events, which may all be of one sender who wants to stop the rule. It reads on until an event is
// accepted, which shows that no setting is wrong, or until no more come for a moment. Then it goes
// back to the batch. Nothing is confirmed meanwhile, and nothing but positions is kept in memory.
func (w *worker) lookAhead(ctx context.Context, b batch) error {
	w.ahead = event.Position{}
	for _, r := range b.bad {
		w.note([]Event{r.event})
	}
	for {
		next, err := w.peek(ctx)
		if err != nil {
			return err
		}
		if len(next.events) == 0 {
			break
		}
		w.note(next.events)
		longer, cancel := linger(ctx)
		err = w.deliver(ctx, longer, &next)
		cancel()
		if err == nil {
			w.sure = next.passed
			break
		}
		if !errors.Is(err, errAllRefused) {
			return err
		}
		w.failed(err)
	}
	w.note(w.rest)
	w.rest = nil
	w.source.Back(w.ahead)
	w.ahead = nil
	return nil
}

// note remembers the position before events that are read for the first time while the worker looks
// ahead.
func (w *worker) note(events []Event) {
	for _, e := range events {
		if _, known := w.ahead[e.Journal]; !known {
			w.ahead[e.Journal] = e.Seq - 1
		}
	}
}

// peek pauses as after any failure, and returns the next batch, empty if no event has come meanwhile.
func (w *worker) peek(ctx context.Context) (b batch, err error) {
	waiting, cancel := context.WithTimeoutCause(ctx, w.pauses.Next(firstPause, lastPause), errWaited)
	defer cancel()
	for len(b.events) == 0 && err == nil {
		b, err = w.gather(waiting)
	}
	if err != nil && !errors.Is(err, errWaited) {
		return b, err
	}
	<-waiting.Done()
	if ctx.Err() != nil {
		return b, errStopped
	}
	return b, nil
}

// place identifies an event of this daemon.
type place struct {
	journal string
	seq     uint64
}

// linger returns a context that ends some time after ctx, with its cause.
func linger(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-t.C:
			cancel(context.Cause(ctx))
		case <-longer.Done():
		}
	})
	return longer, func() { stop(); cancel(nil) }
}

// batch is a group of events that are written together.
type batch struct {
	events []Event // not written yet
	bytes  int
	passed event.Position

	// What earlier attempts have achieved: a slow destination gets nothing again.
	parts    []int     // how many of events to write at once, in order
	accepted bool      // some event of the batch was written
	bad      []refusal // refused, and not kept as dead letters yet
}

// next returns how many events to write now. At first that is most, or all where most is 0.
func (b *batch) next(most int) int {
	sum := 0
	for _, n := range b.parts {
		sum += n
	}
	if sum != len(b.events) { // this is the first attempt, or another sink has delivered some
		b.parts = nil
		for left := len(b.events); left > 0; left -= b.parts[len(b.parts)-1] {
			n := left
			if most > 0 {
				n = min(most, left)
			}
			b.parts = append(b.parts, n)
		}
	}
	return b.parts[0]
}

// pass records that everything up to a position is in the batch, or before it.
func (b *batch) pass(at event.Position) {
	if b.passed == nil {
		b.passed = event.Position{}
	}
	for journal, seq := range at {
		b.passed.Pass(journal, seq)
	}
}

var errStopped = errors.New("stopped while the destination was away")

var errWaited = errors.New("the batch has waited long enough")

// gather waits for the first event and then some time for more.
func (w *worker) gather(ctx context.Context) (batch, error) {
	var b batch
	if err := w.take(ctx, &b); err != nil || len(b.events) == 0 {
		return b, err
	}
	waiting, cancel := context.WithTimeoutCause(ctx, w.rule.wait, errWaited)
	defer cancel()
	for len(b.events) < w.rule.batch && b.bytes < maxText {
		if err := w.take(waiting, &b); errors.Is(err, errWaited) {
			break
		} else if err != nil {
			return b, err
		}
	}
	return b, nil
}

// take adds the next events of the source, as long as the batch has room.
func (w *worker) take(ctx context.Context, b *batch) error {
	if len(w.rest) == 0 {
		if err := w.fetch(ctx); err != nil {
			return err
		}
	}
	for len(w.rest) > 0 && len(b.events) < w.rule.batch && b.bytes < maxText {
		e := w.rest[0]
		w.rest = w.rest[1:]
		b.events, b.bytes = append(b.events, e), b.bytes+len(e.Line)
		b.pass(event.Position{e.Journal: e.Seq})
	}
	if len(w.rest) == 0 {
		b.pass(w.passed)
	}
	return nil
}

// fetch waits for events from the source.
func (w *worker) fetch(ctx context.Context) error {
	lines, passed, err := w.source.Next(ctx)
	if err != nil {
		return err
	}
	w.passed = passed
	for _, line := range lines {
		if !w.rule.filter.passes(line) {
			continue
		}
		e, err := parseEvent(line)
		if err != nil {
			return err
		}
		if at := (place{e.Journal, e.Seq}); w.written[at] {
			if w.ahead == nil { // otherwise it is read once more
				delete(w.written, at)
			}
			continue
		}
		w.rest = append(w.rest, e)
	}
	return nil
}

// deliver writes events until the destination has stored them all.
func (w *worker) deliver(ctx, longer context.Context, b *batch) error {
	if len(b.events) == 0 {
		return nil
	}
	return w.insist(ctx, longer, b, func(ctx context.Context) error { return w.write(ctx, b) })
}

// hold waits until no other sink works on this rule. What one has delivered meanwhile is taken out of
// b and rest, and the destination is opened again: a file has to see what was written to it.
func (w *worker) hold(ctx context.Context, b *batch) error {
	done, anew, err := w.source.Hold(ctx)
	if err != nil || !anew {
		return err
	}
	w.closeDest()
	b.events, w.rest = undone(b.events, done), undone(w.rest, done)
	b.bad = slices.DeleteFunc(b.bad, func(r refusal) bool { return r.event.Seq <= done[r.event.Journal] })
	for journal, seq := range w.ahead {
		w.ahead[journal] = max(seq, done[journal])
	}
	return nil
}

// undone returns the events that are after a position.
func undone(events []Event, done event.Position) []Event {
	return slices.DeleteFunc(events, func(e Event) bool { return e.Seq <= done[e.Journal] })
}

// insist retries do until it succeeds, a batch is refused completely, or the sink has to stop. Each attempt is made while the position
// is held: a new one does not begin after ctx has ended, and the last one has until longer ends.
func (w *worker) insist(ctx, longer context.Context, b *batch, do func(context.Context) error) error {
	for {
		if err := w.hold(ctx, b); err != nil {
			return err
		}
		err := do(longer)
		if err == nil {
			w.back()
			return nil
		}
		if errors.Is(err, errAllRefused) {
			return err
		}
		if longer.Err() != nil {
			return context.Cause(longer)
		}
		if errors.Is(err, errUnfinished) && ctx.Err() == nil {
			continue
		}
		w.failed(err)
		select {
		case <-time.After(w.pauses.Next(firstPause, lastPause)):
		case <-ctx.Done():
			return errStopped
		}
	}
}

func (w *worker) open(ctx context.Context) error {
	if w.dest != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, w.rule.timeout)
	defer cancel()
	dest, err := w.rule.to.open(ctx, w.log)
	if err != nil {
		return err
	}
	if r, ok := dest.(rotator); ok && w.fresh {
		r.rotate()
	}
	w.dest, w.fresh = dest, false
	return nil
}

// allRefused is the number of events from which on a batch that is refused completely is not the
// fault of the events: a wrong setting must not turn all events into dead letters.
const allRefused = 10

var errAllRefused = errors.New("the destination refuses everything")

// errUnfinished is returned by an attempt that has achieved something, and has taken so long that
// the position has to be checked.
var errUnfinished = errors.New("the attempt takes long")

// write writes the events of a batch. Those that the destination will never accept become dead
// letters: it halves what is refused until it has found them.
func (w *worker) write(ctx context.Context, b *batch) error {
	if len(b.events) > 0 {
		if err := w.open(ctx); err != nil {
			return err
		}
	}
	began := time.Now()
	for len(b.events) > 0 {
		if time.Since(began) >= w.rule.timeout {
			return errUnfinished
		}
		if err := w.writePart(ctx, b); err != nil {
			return err
		}
		if b.accepted {
			if err := w.keepBad(ctx, b); err != nil {
				return err
			}
		}
	}
	if len(b.bad) == 0 || w.ahead != nil && b.accepted { // what was refused ahead is read again
		return nil
	}
	first := b.bad[0]
	if w.ahead != nil || len(b.bad) >= allRefused && first.event.Seq > w.sure[first.event.Journal] {
		return fmt.Errorf("%w: all of %d events: %w", errAllRefused, len(b.bad), first.err)
	}
	return w.keepBad(ctx, b)
}

// writePart writes the next events of a batch.
func (w *worker) writePart(ctx context.Context, b *batch) error {
	most := 0
	if one, ok := w.dest.(single); ok && one.single() {
		most = 1
	}
	n := b.next(most)
	part := b.events[:n]
	limited, cancel := context.WithTimeout(ctx, w.rule.timeout)
	defer cancel()
	err := w.dest.write(limited, part)
	switch {
	case err == nil:
		b.accepted = true
		w.remember(part)
	case !errors.Is(err, errRefused):
		return err
	case n > 1:
		b.parts = append([]int{n / 2, n - n/2}, b.parts[1:]...)
		return nil
	default:
		b.bad = append(b.bad, refusal{part[0], err})
	}
	b.events, b.parts = b.events[n:], b.parts[1:]
	return nil
}

// keepBad keeps the refused events as dead letters.
func (w *worker) keepBad(ctx context.Context, b *batch) error {
	if w.ahead != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, w.rule.timeout)
	defer cancel()
	for ; len(b.bad) > 0; b.bad = b.bad[1:] {
		r := b.bad[0]
		w.log.Error("event refused by the destination, kept as a dead letter", "seq", r.event.Seq, "tag", r.event.Tag, "err", r.err)
		if err := w.source.KeepDead(ctx, r.event, r.err); err != nil {
			return fmt.Errorf("keep a dead letter: %w", err)
		}
	}
	return nil
}

// remember records what was written while the worker looks ahead, so that it is not written again.
func (w *worker) remember(events []Event) {
	if w.ahead == nil {
		return
	}
	if w.written == nil {
		w.written = map[place]bool{}
	}
	for _, e := range events {
		w.written[place{e.Journal, e.Seq}] = true
	}
}

// refusal is an event that the destination will never accept, and the reason.
type refusal struct {
	event Event
	err   error
}

// failed closes the destination and logs the error, at once and then from time to time. Meanwhile
// the daemon keeps the events.
func (w *worker) failed(err error) {
	w.closeDest()
	w.source.Pause()
	now := time.Now()
	if w.away.IsZero() {
		w.away = now
	}
	if now.Sub(w.awayLogged) >= tellEvery {
		w.awayLogged = now
		w.log.Warn("destination away, trying again", "since", w.away.UTC().Format(time.RFC3339), "err", err)
	}
}

func (w *worker) back() {
	if !w.away.IsZero() {
		w.log.Info("destination is back", "after", time.Since(w.away).Round(time.Millisecond))
	}
	w.away, w.awayLogged = time.Time{}, time.Time{}
	w.pauses.Reset()
}

func (w *worker) closeDest() {
	if w.dest != nil {
		w.dest.close()
		w.dest = nil
	}
}
