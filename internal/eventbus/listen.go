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

// Limits of what one listener costs.
const (
	batchLines    = 512
	batchBytes    = 128 << 10 // of one message to a listener, unless one event is larger
	progressAfter = 4096      // events without a match until the listener gets a progress message
	progressEvery = time.Second
	maxTags       = 1000 // patterns of one listener
	seqBytes      = 30   // bytes that a sequence adds to an event, and a line end
	// longEvent is the size of an event that takes several messages of the journal. Slow
	// listeners share one copy of it. A principal other than the daemon and root has one such
	// copy at a time, and all of them maxLong; other events do not wait for that. A turn ends
	// after longTurn when another principal waits for one: the rest follows in the next turn.
	longEvent = 1 << 20
	maxLong   = 2
	longTurn  = 2 * time.Second
	longTime  = 5 * time.Minute // to receive one, however slowly, without waiting for turns
)

// Listen answers a request with events until the caller is gone, or until the end of what is
// stored if the request asks for that. rules is the number of the change of rules with which
// who was checked.
func (r *Bus) Listen(ctx context.Context, req *rpc.Request, who eventacl.Principal, rules uint64) error {
	l, err := r.listener(req, who)
	if err != nil {
		return err
	}
	ctx, l.recall = context.WithCancel(ctx)
	defer l.recall()
	if l.q.Durable != "" {
		held, release, err := r.positions.hold(ctx, who, l.q.Durable, req.From.Nonce)
		if err != nil {
			return err
		}
		defer release()
		defer context.AfterFunc(held, l.recall)()
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
	// A caller that is gone does not get this; one that is there may come back.
	return l.others.answer(rpc.Errorf(rpc.Unavailable, "the rules for listeners have changed, or this member of the cluster no longer has the position"))
}

// listener is one present listener.
type listener struct {
	events  *Bus
	req     *rpc.Request
	who     eventacl.Principal
	allowed decision.Decision
	q       protocol.Listen
	match   *event.Matcher
	senders *event.Matcher
	effort  effort             // of match
	judged  event.Head         // of the latest event; the zero value is not an event
	wanted  bool               // the result for it
	as      string             // the tag that it is wanted under
	audit   bool               // it asks for the audit log
	recall  context.CancelFunc // ends the answer; the caller may come back
	started time.Time
	next    atomic.Uint64 // the sequence to look at next
	at      uint64        // the number of the window line to look at next
	lives   uint64        // events up to there that are not stored
	missed  uint64        // of those, the ones that were gone before they could be sent
	lost    uint64        // stored events that were removed before they could be sent, at most
	seated  bool          // at and lives are known
	been    bool          // they were, before
	sent    atomic.Uint64 // events
	end     uint64        // the last sequence stored at the beginning
	passed  uint64        // the latest sequence that the caller was told
	marked  time.Time
	buf     []byte    // events not sent yet, after the space that bus needs
	endLong func()    // ends the turn for a long event, nil without one
	half    *half     // the long event that the caller has received in part
	others  *mirrored // with Mirrors; else nil
	gone    []string  // journals of its position that are not here any more
}

func (r *Bus) listener(req *rpc.Request, who eventacl.Principal) (*listener, error) {
	l := &listener{events: r, req: req, who: who, started: time.Now(), marked: time.Now()}
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
	if (l.q.Mirrors || l.q.Members || len(l.q.At) > 0) && !l.q.Lines {
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

// asked returns prefixes of all tags that it listens to.
func (l *listener) asked() []string {
	if len(l.q.Tags) > 0 && (l.q.Match == event.StartsWith || l.q.Match == "") {
		return l.q.Tags
	}
	return []string{""}
}

// begin finds the sequence to begin at and tells the caller that it is listening.
func (l *listener) begin(ctx context.Context) error {
	extent, err := l.events.journal.Extent(ctx)
	if err != nil {
		return err
	}
	ready := protocol.Ready{Ready: true, Limits: l.who.Hearing().Limits()}
	if l.events.member != nil {
		ready.Journal = l.events.name
	}
	if ready.Start, ready.Ahead, err = l.start(ctx, &extent); err != nil {
		return err
	}
	ready.Last = extent.Last
	if ready.Start < extent.First {
		// A position ahead of the events is not a loss: there was nothing before them.
		if l.q.Resume || l.q.Durable != "" {
			ready.Lost = extent.First - ready.Start
		}
		ready.Start = extent.First
	}
	if l.q.Durable != "" {
		l.events.positions.listening(positionKey(l.who.Owner, l.q.Durable), l.allowed)
	}
	l.end = extent.Last
	l.next.Store(ready.Start)
	l.passed = ready.Start - 1
	if l.others, err = l.mirrored(ctx); err != nil {
		return err
	}
	ready.At, ready.Gone = l.others.position(), l.gone
	if err := l.beginPosition(ctx, ready); err != nil {
		return err
	}
	if l.q.Durable != "" {
		ready.Stored = l.events.positions.stored(positionKey(l.who.Owner, l.q.Durable))
	}
	return l.req.Send(ctx, ready)
}

// beginPosition stores a new position of a durable listener in a cluster, in all journals: the
// listener may continue at any member, whether or not it hears the others here.
func (l *listener) beginPosition(ctx context.Context, ready protocol.Ready) error {
	if l.q.Durable == "" || l.events.member == nil {
		return nil
	}
	next := event.Position{l.events.name: ready.Start}
	if l.others == nil {
		ends, err := l.events.ends(ctx, 0)
		if err != nil {
			return err
		}
		for name, end := range ends {
			next.Pass(name, end+1)
		}
	}
	for name, at := range ready.At {
		next[name] = at
	}
	next[l.events.name] = ready.Start
	return l.events.positions.begin(ctx, l.who, l.q.Durable, next)
}

// start returns the sequence to begin at, and, if that is beyond the end of the journal, the
// position of the listener. extent is that of the journal; it is renewed if a server that lacks the newest events
// seems to have given it.
func (l *listener) start(ctx context.Context, extent *event.Extent) (from, ahead uint64, err error) {
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
	if err == nil && from > extent.Last+1 && l.events.member != nil && (l.q.Durable != "" || l.q.Resume) {
		*extent, err = extentWith(ctx, from-1, l.events.journal.Extent)
	}
	if err != nil {
		return 0, 0, err
	}
	if from > extent.Last+1 {
		if l.q.Durable == "" && !l.q.Resume {
			return 0, 0, rpc.Errorf(rpc.Usage, "the sequence %d is not in the journal: its newest event is %d", from, extent.Last)
		}
		// This journal is not the one of the position: it was restored, or lost its end in a
		// power cut. Events may come twice; none is skipped.
		l.events.throttle.Log(l.events.log, slog.LevelWarn, l.who.Name(), 1, "a listener's position is beyond the end of the journal", "user", l.who.Name(), "seq", from-1, "last", extent.Last)
		if l.q.Durable != "" { // later confirmations are before the old position
			err = l.events.positions.back(ctx, l.who, l.q.Durable, extent.First-1)
		}
		return extent.First, from - 1, err
	}
	return from, 0, nil
}

var errDone = errors.New("the end is reached")

// serve sends events until ctx ends: from the window while it keeps up with it, otherwise from
// the journal.
func (l *listener) serve(ctx context.Context) error {
	lines := make([]line, 0, batchLines)
	for {
		if l.half != nil {
			if err := l.goOn(ctx); err != nil {
				return err
			}
			continue
		}
		if l.next.Load() > l.end {
			l.others.caughtUp(0)
			if l.q.UntilEnd {
				return l.finish(ctx)
			}
		}
		if !l.sit() {
			err := l.catchUp(ctx)
			l.endTurn()
			if err != nil && !errors.Is(err, errHalf) {
				return err
			}
			continue
		}
		batch, grown, ok := l.events.tail.after(l.at, lines)
		if l.seated = ok; !ok {
			continue
		}
		if len(batch) == 0 {
			l.others.caughtUp(0) // also if what was stored last is no event
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
			l.seated = false // the lines may have left the window
			continue
		}
		l.at += uint64(len(batch))
		err := l.send(ctx, batch)
		clear(batch)
		l.endTurn()
		switch {
		case errors.Is(err, errHalf):
			l.seated = false // after that event
		case errors.Is(err, errDone):
			return l.finish(ctx)
		case err != nil:
			return err
		}
	}
}

// affordable cuts off a long event at the end of batch for which the listener has no turn yet.
// It is false if nothing else is left: a listener that waits for a turn holds nothing.
func (l *listener) affordable(batch []line) ([]line, bool) {
	at := len(batch) - 1
	if l.who.Operator() || l.endLong != nil || len(batch[at].text) <= longEvent {
		return batch, true
	}
	if ok, err := l.wants(batch[at].head, len(batch[at].text)); !ok || err != nil {
		return batch, true
	}
	clear(batch[at:])
	return batch[:at], at > 0
}

// turn waits until the listener may hold a long event.
func (l *listener) turn(ctx context.Context, _ int) (err error) {
	if l.who.Operator() || l.endLong != nil {
		return nil
	}
	l.endLong, err = l.events.long.Acquire(ctx, l.req.From.String())
	return err
}

// tryTurn is turn for whoever does not wait: it reports whether the listener may hold a long event.
func (l *listener) tryTurn() (ok bool) {
	if l.who.Operator() || l.endLong != nil {
		return true
	}
	l.endLong, ok = l.events.long.Try(l.req.From.String())
	return ok
}

func (l *listener) endTurn() {
	if l.endLong != nil {
		l.endLong()
		l.endLong = nil
	}
}

// sit puts the listener into the window. It is false if the window begins after its position.
func (l *listener) sit() bool {
	if l.seated {
		return true
	}
	at, lives, ok := l.events.tail.locate(l.next.Load())
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
		if l.lost > 0 { // reported before the events after it: the caller may want only that
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
	l.next.Store(to + 1) // also if the last messages were discarded, or are parts of a longer event
	return nil
}

// read sends an event of the journal if it matches.
func (l *listener) read(ctx context.Context, e journal.Text, heads *event.Heads) error {
	head, err := heads.Of(e.Body)
	if err != nil {
		l.events.log.Error("unreadable event in the journal skipped", "seq", e.Seq, "err", err)
		return nil
	}
	ok, err := l.wants(head, len(e.Body))
	if ok && err == nil {
		e.Body = l.named(e.Body)
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

// own returns where the text of a long event with its sequence is written: in place, if it was
// assembled for this reader.
func own(e journal.Text) []byte {
	if e.Pieces > 1 {
		return e.Body[:0]
	}
	return make([]byte, 0, len(e.Body)+seqBytes)
}

// gap records what the journal has discarded or lost between the sequence that was expected and
// the first one that exists. Other sequences without an event are purged ones, or parts of long
// events.
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

// wait returns when there is more, or when the caller is due for a progress message.
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
			continue // it came from the journal already, or is not wanted
		}
		ok, err := l.wants(one.head, len(one.text))
		if ok && err == nil {
			err = l.inOrder(ctx, one)
		}
		switch {
		case err != nil || !ok:
		case len(one.text) > longEvent:
			err = l.sendLong(ctx, one.text, one)
		default:
			if err = l.reserve(ctx, len(one.text)); err == nil {
				l.buf = append(l.buf, l.named(one.text)...)
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

// inOrder waits until a line of the window may be sent: what was stored at the beginning is sent in
// turn with the other journals, wherever it is read. Whoever may hold a long event does not wait, as in mirrored.turn.
func (l *listener) inOrder(ctx context.Context, one line) error {
	if l.others == nil || one.live > 0 || one.seq > l.end || l.endLong != nil || len(one.text) > longEvent {
		return nil
	}
	return l.others.order.Turn(ctx, 0, event.StampIn(one.text[:one.body]), l.flush)
}

// report sends what is in buf, and progress if the caller is due for it.
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

// wants reports whether the listener is to get an event with this head and size. A long event
// is sent as it is stored, so under its own tag only.
func (l *listener) wants(h event.Head, size int) (bool, error) {
	if h != l.judged { // in a flood it is nearly always the same as before
		as, err := l.judge(h)
		if err != nil {
			return false, rpc.Errorf(rpc.Usage, "tag %q: %w", h.Tag, err)
		}
		l.judged, l.wanted, l.as = h, as != "", as
	}
	return l.wanted && (size <= longEvent || l.as == h.Tag), nil
}

// judge returns the tag under which the listener wants events with this head, "" if it does not
// want them. A return has two tags: a listener for the bare id of the job, and not for the
// return's own tag, gets it under that id if it may hear both.
func (l *listener) judge(h event.Head) (as string, err error) {
	if !l.who.Hearing().May(h.Tag) || !l.audit && event.IsAudit(h.Tag) {
		return "", nil
	}
	ok, err := l.matches(h.Tag)
	as = h.Tag
	if jid := event.ReturnOf(h.Tag); err == nil && !ok && jid != "" && l.who.Hearing().May(jid) {
		as = jid
		ok, err = l.matches(jid)
	}
	if !ok || err != nil {
		return "", err
	}
	if ok, err = l.senders.Match(h.From); !ok || err != nil {
		return "", err
	}
	return as, nil
}

// named returns the text of the last event that judge has seen, under the tag that is wanted.
func (l *listener) named(text []byte) []byte {
	if l.as == l.judged.Tag {
		return text
	}
	return event.Retag(text, l.as)
}

// namesAudit reports whether one of the patterns names the audit log explicitly. Other
// listeners do not get it: each listener causes an entry itself, and one that waits for any
// event would get that entry.
func namesAudit(patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return strings.Contains(p, event.AuditSpace) })
}

// reserve sends what is in buf if n more bytes do not fit.
func (l *listener) reserve(ctx context.Context, n int) error {
	if len(l.buf)+n <= batchBytes {
		return nil
	}
	return l.flush(ctx)
}

// put sends the event that was last written into buf, at once or together with others.
func (l *listener) put(ctx context.Context, seq uint64) error {
	l.count(seq)
	if l.q.Lines {
		return nil
	}
	l.buf = l.buf[:len(l.buf)-1] // a single event needs no line end
	return l.flush(ctx)
}

// count counts an event as sent.
func (l *listener) count(seq uint64) {
	l.sent.Add(1)
	l.events.sent.Add(1)
	l.passed = max(l.passed, seq)
}

// sendLong sends a long event as it is stored: a copy for each listener would cost its size
// each time. With errHalf the rest follows by goOn, and then what comes after it.
func (l *listener) sendLong(ctx context.Context, text []byte, of line) error {
	if err := l.flush(ctx); err != nil {
		return err
	}
	l.count(of.seq)
	if !l.q.Lines {
		text = text[:len(text)-1]
	}
	if err := l.others.hold(ctx); err != nil { // until all of the event is sent
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
	if len(l.buf) == 0 {
		return nil
	}
	if err := l.others.hold(ctx); err != nil {
		return err
	}
	defer l.others.letGo()
	err := l.req.SendRaw(ctx, l.buf)
	l.buf = l.buf[:0]
	return err
}

// progress tells the caller how far the listener is, and what it has missed.
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

// finish tells the caller that this was the end. A listener with a position keeps it until the
// caller disconnects.
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

// enter registers the listener for Stat.
func (r *Bus) enter(l *listener, rules uint64) (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listeners = append(r.listeners, l)
	if rules != r.changes.Load() { // SetGrants has informed all listeners but this one
		l.askAnew()
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.listeners = slices.DeleteFunc(r.listeners, func(o *listener) bool { return o == l })
	}
}

// End answers with the end of the journal: events fired from now on come after it.
func (r *Bus) End(ctx context.Context, req *rpc.Request, who eventacl.Principal) error {
	if err := req.Decide(r.rules.Heard(who)); err != nil {
		return err
	}
	var q protocol.EndOf
	if len(req.Body) > 0 {
		if err := req.Decode(&q); err != nil {
			return err
		}
	}
	last, err := r.journal.Last(ctx)
	switch {
	case err != nil:
		return err
	case q.Own:
		return req.Send(ctx, protocol.End{Seq: last})
	}
	at, err := r.ends(ctx, last)
	if err != nil {
		return err
	}
	return req.Send(ctx, protocol.End{Seq: last, At: at})
}
