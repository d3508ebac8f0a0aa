package eventbus

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/brinebus/brine/internal/authz/decision"
	"github.com/brinebus/brine/internal/authz/eventacl"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// Bounds of what one listener costs.
const (
	batchLines    = 512
	batchBytes    = 128 << 10 // of one message to a listener, unless one event is larger
	progressAfter = 4096      // events that do not match, until the listener is told that they passed
	progressEvery = time.Second
	maxTags       = 1000 // patterns of one listener
	seqBytes      = 30   // bytes that a sequence adds to an event, and a line end
	// longEvent is one of several messages of the journal. Listeners that take their time
	// share one copy of it, and of those that are not the daemon's own or root's one of each
	// principal has one at a time, maxLong in all: the other events do not wait for that. A turn
	// ends after longTurn when another principal waits for one: the rest comes with the next.
	longEvent = 1 << 20
	maxLong   = 2
	longTurn  = 2 * time.Second
	longTime  = 5 * time.Minute // to take one, however slowly, without the waiting for turns
)

// Listen answers a request with events until the caller is gone, or until the end
// of what is stored if that was asked for. rules is the number of the change of rules by
// which who was looked at.
func (r *Bus) Listen(ctx context.Context, req *rpc.Request, who eventacl.Principal, rules uint64) error {
	l, err := r.listener(req, who)
	if err != nil {
		return err
	}
	ctx, l.recall = context.WithCancel(ctx)
	defer l.recall()
	if l.q.Durable != "" {
		release, err := r.positions.hold(ctx, who, l.q.Durable, req.From.Nonce)
		if err != nil {
			return err
		}
		defer release()
	}
	l.allowed = r.rules.Listen(ctx, who, l.asked(), l.q.Tags)
	if err := req.Decide(l.allowed); err != nil {
		return err
	}
	defer l.endTurn()
	r.tail.join()
	defer r.tail.leave()
	defer r.enter(l, rules)()
	err = l.begin(ctx)
	if err == nil {
		defer l.others.begin(ctx)()
		err = l.serve(ctx)
	}
	if !errors.Is(err, context.Canceled) {
		return err
	}
	// To a caller that is gone this is not sent; who is there may come back.
	return rpc.Errorf(rpc.Unavailable, "the rules for listeners have changed")
}

// listener is one listener at work.
type listener struct {
	events  *Bus
	req     *rpc.Request
	who     eventacl.Principal
	allowed decision.Decision
	q       protocol.Listen
	match   *event.Matcher
	senders *event.Matcher
	effort  effort             // of match
	judged  event.Head         // of the latest event; no event has the zero value
	wanted  bool               // what was made of it
	audit   bool               // it asks for the audit log
	recall  context.CancelFunc // ends the answer; the caller may come back
	started time.Time
	next    atomic.Uint64 // the sequence that is looked at next
	at      uint64        // the number of the line of the window that is looked at next
	lives   uint64        // events that are not stored, of those up to there
	missed  uint64        // of those, what went by before it could be sent
	lost    uint64        // stored events that were removed before they could be sent, at most
	seated  bool          // at and lives are known
	been    bool          // they were, before
	sent    atomic.Uint64 // events
	end     uint64        // with UntilEnd: the last sequence
	passed  uint64        // the sequence that the caller knows of
	marked  time.Time
	buf     []byte    // events that are not sent yet, behind the room that bus wants
	endLong func()    // of the turn for a long event, nil without it
	half    *half     // the long event that the caller has a part of
	others  *mirrored // with Mirrors; else nil
}

func (r *Bus) listener(req *rpc.Request, who eventacl.Principal) (*listener, error) {
	l := &listener{events: r, req: req, who: who, started: time.Now(), marked: time.Now(), buf: make([]byte, rpc.HeadBytes)}
	if err := req.Decode(&l.q); err != nil {
		return nil, err
	}
	l.audit = namesAudit(l.q.Tags)
	if len(l.q.Tags)+len(l.q.Senders) > maxTags {
		return nil, rpc.Errorf(rpc.Usage, "%d patterns for one listener: the limit is %d", len(l.q.Tags)+len(l.q.Senders), maxTags)
	}
	if l.q.Live && (l.q.UntilEnd || l.q.Durable != "") {
		return nil, rpc.Errorf(rpc.Usage, "events that are not stored cannot be read back: they are not for a listener with a position or an end")
	}
	if (l.q.Mirrors || len(l.q.At) > 0) && !l.q.Lines {
		return nil, rpc.Errorf(rpc.Usage, "the journals of other masters are for listeners that take lines")
	}
	var err error
	if l.match, err = event.NewMatcher(l.q.Match, l.q.Tags); err != nil {
		return nil, rpc.Errorf(rpc.Usage, "%w", err)
	}
	if l.senders, err = event.NewMatcher(event.Fnmatch, l.q.Senders); err != nil {
		return nil, rpc.Errorf(rpc.Usage, "%w", err)
	}
	return l, r.rules.MayListen(who, l.asked())
}

// asked are prefixes of all tags that it listens to.
func (l *listener) asked() []string {
	if len(l.q.Tags) > 0 && (l.q.Match == event.StartsWith || l.q.Match == "") {
		return l.q.Tags
	}
	return []string{""}
}

// begin finds the sequence to begin at and tells the caller that it stands.
func (l *listener) begin(ctx context.Context) error {
	extent, err := l.events.journal.Extent(ctx)
	if err != nil {
		return err
	}
	ready := protocol.Ready{Ready: true, Last: extent.Last, Limits: l.who.Hearing().Limits()}
	if ready.Start, ready.Ahead, err = l.start(ctx, extent); err != nil {
		return err
	}
	if ready.Start < extent.First {
		// A position that was ahead of the events is no loss: nothing was before them.
		if l.q.Resume || l.q.Durable != "" {
			ready.Lost = extent.First - ready.Start
		}
		ready.Start = extent.First
	}
	if l.q.Durable != "" {
		l.events.positions.listening(positionKey(l.who.Owner, l.q.Durable), l.allowed)
	}
	if l.q.UntilEnd {
		l.end = extent.Last
	}
	l.next.Store(ready.Start)
	l.passed = ready.Start - 1
	if l.others, err = l.mirrored(ctx); err != nil {
		return err
	}
	ready.At = l.others.position()
	return l.req.Send(ctx, ready)
}

// start returns the sequence to begin at, and the position of the listener where that is ahead
// of the journal.
func (l *listener) start(ctx context.Context, extent event.Extent) (from, ahead uint64, err error) {
	from = extent.Last + 1
	switch {
	case l.q.At[l.events.name] > 0:
		from = l.q.At[l.events.name]
	case l.q.FromSeq > 0:
		from = l.q.FromSeq
	case !l.q.Since.IsZero():
		from, err = l.events.journal.SequenceAt(ctx, l.q.Since)
	}
	if err == nil && l.q.Durable != "" {
		from, err = l.events.positions.start(ctx, l.who, l.q.Durable, from, l.q.Resume)
	}
	if err != nil {
		return 0, 0, err
	}
	if from > extent.Last+1 {
		if l.q.Durable == "" && !l.q.Resume {
			return 0, 0, rpc.Errorf(rpc.Usage, "the sequence %d is not in the journal: its newest event is %d", from, extent.Last)
		}
		// The journal is not the one of the position: restored, or the end of it went
		// with the power. Events may come twice; none is passed over.
		l.events.throttle.Log(l.events.log, slog.LevelWarn, l.who.Name(), 1, "a listener's position is behind the end of the journal", "user", l.who.Name(), "seq", from-1, "last", extent.Last)
		if l.q.Durable != "" { // what is confirmed from now on is before the old position
			err = l.events.positions.back(ctx, l.who, l.q.Durable, extent.First-1)
		}
		return extent.First, from - 1, err
	}
	return from, 0, nil
}

var errDone = errors.New("that was all")

// serve sends events until ctx ends: from the window while it keeps up with it,
// else from the journal.
func (l *listener) serve(ctx context.Context) error {
	lines := make([]line, 0, batchLines)
	for {
		if l.half != nil {
			if err := l.goOn(ctx); err != nil {
				return err
			}
			continue
		}
		if l.q.UntilEnd && l.next.Load() > l.end {
			return l.finish(ctx)
		}
		if !l.sit() {
			err := l.catchUp(ctx)
			l.endTurn()
			if err != nil && !errors.Is(err, errHalf) {
				return err
			}
			continue
		}
		l.others.caughtUp(0)
		batch, grown, ok := l.events.tail.after(l.at, lines)
		if l.seated = ok; !ok {
			continue
		}
		if len(batch) == 0 {
			l.endTurn()
			if err := l.wait(ctx, grown); err != nil {
				return err
			}
			continue
		}
		if batch, ok = l.affordable(batch); !ok {
			if err := l.turn(ctx, longEvent); err != nil {
				return err
			}
			l.seated = false // what was there may be gone
			continue
		}
		l.at += uint64(len(batch))
		err := l.send(ctx, batch)
		clear(batch)
		l.endTurn()
		switch {
		case errors.Is(err, errHalf):
			l.seated = false // behind that event
		case errors.Is(err, errDone):
			return l.finish(ctx)
		case err != nil:
			return err
		}
	}
}

// affordable leaves out a long event at the end of batch for which the listener has no
// turn yet. It is false where that is all there is: who waits for a turn holds nothing.
func (l *listener) affordable(batch []line) ([]line, bool) {
	at := len(batch) - 1
	if l.who.Operator() || l.endLong != nil || len(batch[at].text) <= longEvent {
		return batch, true
	}
	if ok, err := l.wants(batch[at].head); !ok || err != nil {
		return batch, true
	}
	clear(batch[at:])
	return batch[:at], at > 0
}

// turn waits until a long event may be held.
func (l *listener) turn(ctx context.Context, _ int) (err error) {
	if l.who.Operator() || l.endLong != nil {
		return nil
	}
	l.endLong, err = l.events.long.Acquire(ctx, l.req.From.String())
	return err
}

func (l *listener) endTurn() {
	if l.endLong != nil {
		l.endLong()
		l.endLong = nil
	}
}

// sit puts the listener into the window. It is false when the window is ahead
// of it.
func (l *listener) sit() bool {
	if l.seated {
		return true
	}
	at, lives, ok := l.events.tail.seat(l.next.Load())
	if !ok {
		return false
	}
	if l.been && l.q.Live {
		l.missed += lives - min(lives, l.lives)
	}
	l.at, l.lives, l.seated, l.been = at, max(lives, l.lives), true, true
	return true
}

// catchUp reads the journal up to where the window begins.
func (l *listener) catchUp(ctx context.Context) error {
	from, _ := l.events.tail.span()
	to := from - 1
	if l.q.UntilEnd {
		to = min(to, l.end)
	}
	var heads event.Heads
	expected, unsent := l.next.Load(), 0
	reader := l.events.journal.For(l.req.From.String(), func(ctx context.Context, size int) (func(), error) { return l.endTurn, l.turn(ctx, size) })
	err := reader.Replay(ctx, l.next.Load(), to, func(e journal.Text) error {
		if err := l.gap(ctx, expected, e.Seq+1-uint64(max(e.Pieces, 1))); err != nil {
			return err
		}
		if l.lost > 0 { // it is told before what is behind it: the caller may want no more than that
			if err := l.report(ctx); err != nil {
				return err
			}
		}
		expected = e.Seq + 1
		if err := l.read(ctx, e, &heads); err != nil {
			return err
		}
		if unsent++; unsent < batchLines {
			return nil
		}
		unsent = 0
		return l.report(ctx)
	})
	if err == nil {
		err = l.gap(ctx, expected, to+1)
	}
	if err == nil {
		err = l.report(ctx)
	}
	if err != nil {
		return err
	}
	l.next.Store(to + 1) // also where the end of it was discarded, or is a part of a longer event
	return nil
}

// read sends an event of the journal if it matches.
func (l *listener) read(ctx context.Context, e journal.Text, heads *event.Heads) error {
	head, err := heads.Of(e.Body)
	if err != nil {
		l.events.log.Error("unreadable event in the journal passed over", "seq", e.Seq, "err", err)
		return nil
	}
	ok, err := l.wants(head)
	if ok && err == nil {
		err = l.others.turn(ctx, 0, e, l.flush)
	}
	switch {
	case err != nil || !ok:
	case len(e.Body) > longEvent:
		err = l.sendLong(ctx, append(event.AppendStored(own(e), e.Body, e.Seq), '\n'), line{seq: e.Seq})
	default:
		if err = l.reserve(ctx, len(e.Body)+seqBytes); err == nil {
			l.buf = append(event.AppendStored(l.buf, e.Body, e.Seq), '\n')
			err = l.put(ctx, e.Seq)
		}
	}
	l.next.Store(e.Seq + 1)
	return err
}

// own is where the text of a long event with its sequence is written: where it stands already,
// if it was put together for this reader.
func own(e journal.Text) []byte {
	if e.Pieces > 1 {
		return e.Body[:0]
	}
	return make([]byte, 0, len(e.Body)+seqBytes)
}

// gap notes what the journal has discarded between the sequence that was expected next and
// the first one where there was something, and what is lost there. Other sequences without an
// event are those that were purged, or parts of long ones.
func (l *listener) gap(ctx context.Context, expected, first uint64) error {
	if first <= expected {
		return nil
	}
	extent, err := l.events.journal.Extent(ctx)
	if err != nil {
		return err
	}
	discarded := max(min(extent.First, first), expected)
	l.lost += discarded - expected + l.events.lostBetween(discarded, first)
	return nil
}

// wait returns when there is more, or when the caller is to be told what passed.
func (l *listener) wait(ctx context.Context, grown <-chan struct{}) error {
	var late <-chan time.Time
	if l.q.Lines && l.next.Load() > l.passed+1 {
		t := time.NewTimer(progressEvery)
		defer t.Stop()
		late = t.C
	}
	select {
	case <-grown:
		return nil
	case <-late:
		return l.progress(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// send sends those of batch that match.
func (l *listener) send(ctx context.Context, batch []line) error {
	for _, one := range batch {
		if one.live == 0 && l.q.UntilEnd && one.seq > l.end {
			return cmpErr(l.flush(ctx), errDone)
		}
		if one.live == 0 && one.seq < l.next.Load() || one.live > 0 && !l.q.Live {
			continue // it came from the journal already, or is not asked for
		}
		ok, err := l.wants(one.head)
		switch {
		case err != nil || !ok:
		case len(one.text) > longEvent:
			err = l.sendLong(ctx, one.text, one)
		default:
			if err = l.reserve(ctx, len(one.text)); err == nil {
				l.buf = append(l.buf, one.text...)
				err = l.put(ctx, one.seq)
			}
		}
		if err != nil {
			return err
		}
		if one.live > 0 {
			l.lives = one.live
			continue
		}
		l.next.Store(one.seq + 1)
	}
	return l.report(ctx)
}

// report sends what was put, and tells the caller how far that is if it is to know.
func (l *listener) report(ctx context.Context) error {
	if err := l.flush(ctx); err != nil {
		return err
	}
	if l.q.Lines && (l.next.Load() > l.passed+progressAfter || l.missed+l.lost > 0) {
		return l.progress(ctx)
	}
	return nil
}

func cmpErr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// wants says whether it is to hear an event with this head.
func (l *listener) wants(h event.Head) (bool, error) {
	if h == l.judged { // as that of the event before, nearly always in a flood
		return l.wanted, nil
	}
	ok, err := l.judge(h)
	if err != nil {
		return false, rpc.Errorf(rpc.Usage, "tag %q: %w", h.Tag, err)
	}
	l.judged, l.wanted = h, ok
	return ok, nil
}

// judge says whether it wants events with this head.
func (l *listener) judge(h event.Head) (bool, error) {
	if ok, err := l.matches(h.Tag); !ok || err != nil {
		return false, err
	}
	if ok, err := l.senders.Match(h.From); !ok || err != nil {
		return false, err
	}
	return l.who.Hearing().May(h.Tag) && (l.audit || !event.IsAudit(h.Tag)), nil
}

// namesAudit says whether one of the patterns is about the audit log in so many
// words. Other listeners do not get it: each listener leaves an entry itself, and one
// who waits for any event would hear that.
func namesAudit(patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return strings.Contains(p, event.AuditSpace) })
}

// reserve sends what is in buf if n more bytes would be too many.
func (l *listener) reserve(ctx context.Context, n int) error {
	if len(l.buf)+n <= batchBytes {
		return nil
	}
	return l.flush(ctx)
}

// put sends the event that was written into buf last, at once or with its neighbours.
func (l *listener) put(ctx context.Context, seq uint64) error {
	l.count(seq)
	if l.q.Lines {
		return nil
	}
	l.buf = l.buf[:len(l.buf)-1] // who gets one by one needs no line end
	return l.flush(ctx)
}

// count notes that an event is sent.
func (l *listener) count(seq uint64) {
	l.sent.Add(1)
	l.events.sent.Add(1)
	l.passed = max(l.passed, seq)
}

// sendLong sends a long event as it lies there: a copy for each listener would cost each
// time what it has. With errHalf the rest follows by goOn, and what is behind it then.
func (l *listener) sendLong(ctx context.Context, text []byte, of line) error {
	if err := l.flush(ctx); err != nil {
		return err
	}
	l.count(of.seq)
	if !l.q.Lines {
		text = text[:len(text)-1]
	}
	if err := l.others.hold(ctx); err != nil { // until all of it is sent
		return err
	}
	l.half = &half{seq: of.seq, live: of.live > 0}
	err := l.sendRest(ctx, text)
	if errors.Is(err, errHalf) {
		l.next.Store(of.seq + 1)
	}
	return err
}

func (l *listener) flush(ctx context.Context) error {
	if len(l.buf) == rpc.HeadBytes {
		return nil
	}
	if err := l.others.hold(ctx); err != nil {
		return err
	}
	defer l.others.letGo()
	err := l.req.SendBody(ctx, l.buf)
	l.buf = l.buf[:rpc.HeadBytes]
	return err
}

// progress tells the caller how far it is, and what it has missed.
func (l *listener) progress(ctx context.Context) error {
	m := protocol.Progress{Passed: max(l.next.Load()-1, l.passed), Missed: l.missed, Lost: l.lost}
	if !l.q.Lines || m.Passed == l.passed && m.Missed+m.Lost == 0 {
		return nil
	}
	l.missed, l.lost = 0, 0
	return l.tell(ctx, m)
}

func (l *listener) tell(ctx context.Context, m protocol.Progress) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := l.others.hold(ctx); err != nil {
		return err
	}
	defer l.others.letGo()
	l.passed = m.Passed
	return l.req.SendRaw(ctx, append(b, '\n'))
}

// finish tells the caller that this was all. One with a position keeps it until it
// hangs up.
func (l *listener) finish(ctx context.Context) error {
	l.others.caughtUp(0)
	if err := l.others.wait(ctx); err != nil {
		return err
	}
	if l.q.Durable == "" || !l.q.Lines {
		return l.progress(ctx)
	}
	if err := l.tell(ctx, protocol.Progress{Passed: max(l.next.Load()-1, l.passed), End: true}); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// enter books the listener for Stat.
func (r *Bus) enter(l *listener, rules uint64) (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listeners = append(r.listeners, l)
	if rules != r.changes.Load() { // which SetGrants has told everybody but this one
		l.askAnew()
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.listeners = slices.DeleteFunc(r.listeners, func(o *listener) bool { return o == l })
	}
}

// End answers where the journal ends now: what is fired from now on is behind.
func (r *Bus) End(ctx context.Context, req *rpc.Request, who eventacl.Principal) error {
	if err := req.Decide(r.rules.Heard(who)); err != nil {
		return err
	}
	last, err := r.journal.Last(ctx)
	if err != nil {
		return err
	}
	at, err := r.ends(ctx, last)
	if err != nil {
		return err
	}
	return req.Send(ctx, protocol.End{Seq: last, At: at})
}
