package eventbus

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/event"
	"github.com/brinebus/brine/internal/journal"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// mirrors are the mirrors of other masters' journals.
type mirrors struct {
	mu      sync.Mutex
	list    []*journal.Mirror
	changed chan struct{}          // closed when there is one more
	linked  func(name string) bool // reports whether its master is connected
}

// SetMirrors sets the name of the own journal, and what reports whether another master is
// linked. It is called before any request is served; the mirrors themselves may come later.
func (r *Bus) SetMirrors(own string, linked func(name string) bool) {
	r.name, r.mirrors.linked, r.mirrors.changed = own, linked, make(chan struct{})
}

// AddMirror adds a mirror whose events listeners may request.
func (r *Bus) AddMirror(m *journal.Mirror) {
	r.mirrors.mu.Lock()
	defer r.mirrors.mu.Unlock()
	r.mirrors.list = append(slices.DeleteFunc(r.mirrors.list, func(o *journal.Mirror) bool { return o.Name == m.Name }), m)
	close(r.mirrors.changed)
	r.mirrors.changed = make(chan struct{})
}

// Mirrors returns the present mirrors.
func (r *Bus) Mirrors() []*journal.Mirror {
	list, _ := r.mirrors.now()
	return list
}

// now returns the present mirrors, and a channel that is closed when there is one more.
func (m *mirrors) now() (list []*journal.Mirror, changed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.list), m.changed
}

// ends returns the ends of all journals, nil if none is mirrored.
func (r *Bus) ends(ctx context.Context, own uint64) (event.Position, error) {
	list, _ := r.mirrors.now()
	if len(list) == 0 {
		return nil, nil
	}
	at := event.Position{r.name: own}
	for _, m := range list {
		last, err := r.member.last(ctx, m)
		if err != nil {
			return nil, unread(ctx, r, m.Name, err)
		}
		at[m.Name] = last
	}
	return at, nil
}

// unread is the answer to whoever needs the journal of another master that cannot be read: that passes, so the
// request may be repeated.
func unread(ctx context.Context, r *Bus, name string, err error) error {
	if ctx.Err() != nil || rpc.CodeOf(err) != rpc.Internal || journal.Unanswered(err) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	r.throttle.Log(r.log, slog.LevelWarn, "unread "+name, 1, "the journal of another master cannot be read at present", "journal", name, "err", err)
	return rpc.Errorf(rpc.Unavailable, "the journal %.80q of another master cannot be read at present", name).WithHint("try again; the log of the daemon names the cause")
}

// allEnds returns the ends of the journals that positions are in.
func allEnds(ctx context.Context, r *Bus, own uint64) (event.Position, error) {
	if r.member == nil {
		return event.Position{"": own}, nil
	}
	at, err := r.ends(ctx, own)
	if at == nil && err == nil {
		at = event.Position{r.name: own}
	}
	return at, err
}

// checkAt checks that a listener's position is not beyond the end of a journal. Journals that are not here any
// more are removed from it: there is nothing left of them to handle.
func (r *Bus) checkAt(ctx context.Context, at event.Position) error {
	if len(at) == 0 {
		return nil
	}
	if _, err := r.dropUnknown(ctx, at); err != nil || r.member != nil { // there the end is not asked for: a wrong position harms its owner only
		return err
	}
	ends, err := r.ends(ctx, 0)
	if err != nil {
		return err
	}
	for name, seq := range at {
		if end := ends[name]; name == r.name || seq > end {
			return rpc.Errorf(rpc.Usage, "the sequence %d of the journal %.80q is not mirrored here: the newest event is %d", seq, name, end)
		}
	}
	return nil
}

// further returns for each journal the later of both positions, and whether that is more than
// have.
func further(have, got event.Position) (at event.Position, more bool) {
	at = maps.Clone(have)
	for name, seq := range got {
		if seq <= have[name] {
			continue
		}
		if at == nil {
			at = event.Position{}
		}
		at[name], more = seq, true
	}
	return at, more
}

// mirrorStats describes the mirrors.
func (r *Bus) mirrorStats(ctx context.Context) (stats []protocol.MirrorStat) {
	list, _ := r.mirrors.now()
	for _, m := range list {
		s := protocol.MirrorStat{Master: m.Name, Linked: r.mirrors.linked(m.Name)}
		s.Handler, s.HandlerUnknown = r.member.handler(ctx, m.Name)
		if err := measure(ctx, r.member, m, &s); err != nil {
			s.Unread = true
			r.log.Debug("the journal of another master cannot be read at present", "journal", m.Name, "err", err)
		}
		stats = append(stats, s)
	}
	return stats
}

// measure sets how far a mirror is. The error means that this is not known at present: no leader answers.
func measure(ctx context.Context, member *Member, m *journal.Mirror, s *protocol.MirrorStat) error {
	ctx, cancel := member.brief(ctx)
	defer cancel()
	e, err := m.Extent(ctx)
	if err != nil {
		return err
	}
	p, err := m.Progress(ctx)
	if err != nil {
		return err
	}
	s.Last, s.Bytes, s.Lag = e.Last, e.Bytes, p.Lag
	return nil
}

// mirrored is the part of a listener for the journals of other masters, each read in its own
// goroutine. It is nil for a listener that has not asked for them.
//
// Stored events come in the order of their stamps, over all journals; new ones as they arrive.
// Each journal, and each sender in it, keeps its order.
type mirrored struct {
	of    *listener
	begun string        // the stamp of the time when the listener began
	out   chan struct{} // held by who sends
	next  chan struct{} // held by the part that waits until it may send a long event
	parts []*part
	order *journal.Order
	live  sync.WaitGroup // parts that still read what was stored at the beginning

	mu         sync.Mutex
	incomplete error // with UntilEnd: of the first part that could not read all of that
	refused    error // what the listener is ended with
}

// part is one journal of a listener.
type part struct {
	l      *listener // with its own matcher and budget
	mirror *journal.Mirror
	number int
	next   uint64
	end    uint64 // the last sequence stored at the beginning
	fresh  bool   // the mirror came after the listener, which does not get older events
	passed uint64 // the latest sequence that the caller was told
	holds  bool   // it may send
}

// mirrored prepares the parts, and finds where each begins.
func (l *listener) mirrored(ctx context.Context) (*mirrored, error) {
	if err := l.known(ctx); err != nil {
		return nil, err
	}
	if l.events.name == "" || !l.q.Mirrors && !(l.q.Members && l.events.member != nil) {
		return nil, nil
	}
	if err := Meet(ctx, l.events); err != nil {
		return nil, err
	}
	list, _ := l.events.mirrors.now()
	m := newMirrored(l, len(list))
	for i, one := range list {
		p, err := m.part(one, i+1)
		if err != nil {
			return nil, err
		}
		if err := p.begin(ctx); err != nil {
			return nil, unread(ctx, l.events, one.Name, err)
		}
		m.parts = append(m.parts, p)
	}
	return m, nil
}

// newMirrored is for that many journals beside the own one.
func newMirrored(l *listener, journals int) *mirrored {
	return &mirrored{
		of: l, begun: time.Now().UTC().Format(event.StampLayout), order: journal.NewOrder(journals + 1),
		out: make(chan struct{}, 1), next: make(chan struct{}, 1),
	}
}

// known checks that all journals of the listener's position are here. One that reconnects has got the position
// from this daemon, and goes on without a journal that is gone since: it is told.
func (l *listener) known(ctx context.Context) error {
	gone, err := l.events.dropUnknown(ctx, l.q.At)
	if err != nil || len(gone) == 0 {
		return err
	}
	if !l.q.Resume {
		return rpc.Errorf(rpc.Usage, "the journal %.80q is neither that of this master nor mirrored here", gone[0]).
			WithHint("a position of 'salt-event token' is valid where all its journals are: at each member of a cluster, and at two masters that mirror each other until one of them begins a new journal; then take a new token")
	}
	l.gone = gone
	l.events.throttle.Log(l.events.log, slog.LevelWarn, "gone "+l.who.Name(), 1, "a listener goes on without journals that are not here any more", "user", l.who.Name(), "journals", gone)
	return nil
}

// dropUnknown removes the journals from a position that are not here, and returns their names. In a cluster it
// looks for new ones first: the position may be from a member that has found one earlier.
func (r *Bus) dropUnknown(ctx context.Context, at event.Position) (gone []string, err error) {
	missing := func() (names []string) {
		list, _ := r.mirrors.now()
		for name := range at {
			if name != r.name && !slices.ContainsFunc(list, func(m *journal.Mirror) bool { return m.Name == name }) {
				names = append(names, name)
			}
		}
		return names
	}
	gone = missing()
	if len(gone) > 0 && r.member != nil {
		if err := r.member.addPeers(ctx); err != nil {
			return nil, err
		}
		gone = missing()
	}
	slices.Sort(gone)
	for _, name := range gone {
		delete(at, name)
	}
	return gone, nil
}

func (m *mirrored) part(of *journal.Mirror, number int) (*part, error) {
	l := m.of
	own := &listener{events: l.events, req: l.req, who: l.who, q: l.q, audit: l.audit}
	var err error
	if own.match, err = event.NewMatcher(l.q.Match, l.q.Tags); err == nil {
		own.senders, err = event.NewMatcher(event.Fnmatch, l.q.Senders)
	}
	return &part{l: own, mirror: of, number: number}, err
}

// begin finds where the part begins.
func (p *part) begin(ctx context.Context) error {
	q, name := p.l.q, p.mirror.Name
	extent, err := p.mirror.Extent(ctx)
	if err != nil {
		return err
	}
	p.end, p.next = extent.Last, extent.Last+1
	switch {
	case q.At[name] > 0:
		p.next = q.At[name]
	case !q.Since.IsZero():
		p.next, err = p.mirror.SequenceAt(ctx, q.Since)
	case q.FromSeq == 1, p.newer(): // everything that is stored
		p.next = 1
	}
	if err != nil {
		return err
	}
	if done, ok := p.done(); ok {
		p.next = max(done+1, q.At[name])
	}
	if p.next > extent.Last+1 && p.l.events.member != nil {
		if extent, err = extentWith(ctx, p.next-1, p.mirror.Extent); err != nil {
			return err
		}
		p.end = extent.Last
	}
	// A position beyond the end is of a mirror that was lost since: all that is here now is
	// sent.
	if p.next > extent.Last+1 {
		p.next = extent.First
	}
	p.next = max(p.next, extent.First)
	p.passed = p.next - 1
	return nil
}

// A position in the journal of a member is that of an event which was read there. If the journal
// seems to be shorter, a server has answered that led it before and lacks the newest events. After
// catchUpTime, which is longer than an election, it is shorter, for example since it was restored.
const (
	catchUpTime  = 15 * time.Second
	catchUpPause = time.Second // whoever names a position far beyond the end asks the store no more often
)

// extentWith returns the extent of the journal of a member when the event of that sequence is there, or after
// catchUpTime.
func extentWith(ctx context.Context, seq uint64, ask func(context.Context) (event.Extent, error)) (event.Extent, error) {
	for begun := time.Now(); ; {
		extent, err := ask(ctx)
		if err != nil || seq <= extent.Last || time.Since(begun) > catchUpTime {
			return extent, err
		}
		if !backoff.Sleep(ctx, catchUpPause) {
			return extent, context.Cause(ctx)
		}
	}
}

// newer reports whether the journal is newer than the position of the listener: in a cluster, a
// position names each journal that there was.
func (p *part) newer() bool {
	return p.l.events.member != nil && (p.l.q.Resume || p.l.q.At[p.l.events.name] > 0)
}

// done returns how far a durable listener has come in the journal; ok is false if it begins where
// others do.
func (p *part) done() (seq uint64, ok bool) {
	if p.l.q.Durable == "" {
		return 0, false
	}
	h := p.l.events.positions.holder(positionKey(p.l.who.Owner, p.l.q.Durable))
	if h == nil {
		return 0, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	seq, ok = h.at[p.mirror.Name]
	return seq, ok && seq > 0 || p.l.events.member != nil && !h.fresh
}

// position returns where the parts begin.
func (m *mirrored) position() event.Position {
	if m == nil || len(m.parts) == 0 {
		return nil
	}
	at := event.Position{}
	for _, p := range m.parts {
		at[p.mirror.Name] = p.next
	}
	return at
}

// begin starts reading the journals; end stops that and waits for it.
func (m *mirrored) begin(ctx context.Context) (end func()) {
	if m == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, p := range m.parts {
		m.live.Add(1)
		running.Go(func() { m.run(ctx, p) })
	}
	if !m.of.q.UntilEnd {
		running.Go(func() { m.later(ctx, &running) })
	}
	return func() { cancel(); running.Wait() }
}

// later starts parts for mirrors that come while the listener runs.
func (m *mirrored) later(ctx context.Context, running *sync.WaitGroup) {
	heard := map[string]bool{}
	for _, p := range m.parts {
		heard[p.mirror.Name] = true
	}
	for {
		list, changed := m.of.events.mirrors.now()
		for _, one := range list {
			if heard[one.Name] {
				continue
			}
			heard[one.Name] = true
			p, err := m.part(one, late)
			if err != nil {
				continue // the same patterns were parsed before
			}
			done, ok := p.done()
			p.next, p.fresh = done+1, !ok
			running.Go(func() { m.follow(ctx, p) })
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// run sends what is stored, in turn with the other parts, and then new events.
func (m *mirrored) run(ctx context.Context, p *part) {
	err := p.mirror.For(p.l.req.From.String(), p.longTurn(m)).Replay(ctx, p.next, p.end, func(e journal.Text) error { return m.hear(ctx, p, e) })
	if err == nil {
		p.next = max(p.next, p.end+1)
		err = m.progress(ctx, p)
	}
	if err != nil && ctx.Err() == nil && (m.of.q.UntilEnd || !m.refuse(ctx, err)) {
		m.fail(p, err)
	}
	m.caughtUp(p.number)
	m.live.Done()
	p.letGo(m)
	if m.of.q.UntilEnd || ctx.Err() != nil {
		return
	}
	m.follow(ctx, p)
}

// fail records that a part has not sent all that was stored: a listener who wants no more than that must not
// be told that it was everything.
func (m *mirrored) fail(p *part, err error) {
	m.of.events.throttle.Log(m.of.events.log, slog.LevelWarn, "incomplete "+p.mirror.Name, 1, "a journal could not be read to its end for a listener", "journal", p.mirror.Name, "user", p.l.who.Name(), "err", err)
	var refused *rpc.Error
	if !errors.As(err, &refused) {
		err = rpc.Errorf(rpc.Unavailable, "the journal %.80q cannot be read at present: not all of its events were sent", p.mirror.Name)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.incomplete == nil {
		m.incomplete = err
	}
}

// Pauses after a mirror could not be read, for example while it is opened again.
const (
	mirrorPause = 200 * time.Millisecond
	mirrorRest  = 5 * time.Second
)

// follow sends new events: from the window that all listeners share, and from the store what has left it.
func (m *mirrored) follow(ctx context.Context, p *part) {
	bus := m.of.events
	for pauses := (backoff.Pauses{}); ctx.Err() == nil; {
		window, leave, err := bus.windows.join(ctx, p.mirror, bus.log)
		if err == nil {
			err = m.within(ctx, p, window)
			leave()
		}
		if ctx.Err() != nil || m.refuse(ctx, err) {
			return
		}
		bus.throttle.Log(bus.log, slog.LevelWarn, "unread "+p.mirror.Name, 1, "a journal cannot be read for a listener at present", "journal", p.mirror.Name, "user", p.l.who.Name(), "err", err)
		backoff.Sleep(ctx, pauses.Next(mirrorPause, mirrorRest))
	}
}

// errShort says that a journal ends before its window begins.
var errShort = errors.New("the journal ends before what was already read of it")

// within sends new events until that fails.
func (m *mirrored) within(ctx context.Context, p *part, window *tail) error {
	lines, pauses := make([]line, 0, mirroredLines), backoff.Pauses{}
	var short time.Time // since when the journal ends before the window begins; zero if it does not
	for at, seated := uint64(0), false; ctx.Err() == nil; {
		if !seated {
			if at, _, seated = window.locate(p.next); seated {
				continue
			}
			err := m.read(ctx, p, window)
			switch {
			case err == nil:
				short, pauses = time.Time{}, backoff.Pauses{}
				continue
			case !errors.Is(err, errShort):
				return err
			case short.IsZero():
				short = time.Now()
			case time.Since(short) > catchUpTime: // it was made anew, and is shorter than it was
				m.of.events.windows.forget(p.mirror, window)
				return err
			}
			backoff.Sleep(ctx, pauses.Next(mirrorPause, mirrorRest)) // a server that led before may lack the newest events
			continue
		}
		var grown <-chan struct{}
		var batch []line
		if batch, grown, seated = window.after(at, lines); !seated {
			continue
		}
		if len(batch) == 0 {
			select {
			case <-grown:
			case <-ctx.Done():
			}
			continue
		}
		at += uint64(len(batch))
		err := m.pass(ctx, p, batch)
		clear(batch)
		if err != nil {
			return unsent(err)
		}
	}
	return context.Cause(ctx)
}

// unsent is the error for events that a listener has not got: it ends, and may continue where it was.
func unsent(err error) error {
	var refused *rpc.Error
	if errors.As(err, &refused) {
		return err
	}
	return rpc.Errorf(rpc.Unavailable, "events could not be sent to this listener: %w", err)
}

// read sends what is stored before the window begins, as far as the journal goes.
func (m *mirrored) read(ctx context.Context, p *part, window *tail) error {
	from, _ := window.span()
	last, err := p.mirror.Last(ctx)
	if err != nil {
		return err
	}
	to := min(from-1, last)
	err = p.mirror.For(p.l.req.From.String(), p.longTurn(m)).Replay(ctx, p.next, to, func(e journal.Text) error { return m.hear(ctx, p, e) })
	p.letGo(m)
	if err == nil {
		p.next = max(p.next, to+1)
		err = m.progress(ctx, p)
	}
	if err == nil && to < from-1 {
		err = errShort
	}
	return err
}

// refuse ends the listener if err is the answer to it: for example, its patterns take too long.
func (m *mirrored) refuse(ctx context.Context, err error) bool {
	var refused *rpc.Error
	if ctx.Err() != nil || !errors.As(err, &refused) {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refused == nil {
		m.refused = err
	}
	m.of.recall()
	return true
}

// answer returns the error that ended the listener, or err.
func (m *mirrored) answer(err error) error {
	if m == nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refused != nil {
		return m.refused
	}
	return err
}

// pass sends those of batch that the listener wants, together.
func (m *mirrored) pass(ctx context.Context, p *part, batch []line) error {
	p.l.buf = p.l.buf[:0]
	for _, one := range batch {
		if one.seq < p.next {
			continue
		}
		ok, err := !(p.fresh && event.StampIn(one.text[:one.body]) < m.begun), error(nil)
		if ok {
			ok, err = p.l.wants(one.head, len(one.text))
		}
		if ok && err == nil {
			err = m.add(ctx, p, one)
		}
		if err != nil {
			return err
		}
		p.next = one.seq + 1
	}
	if err := m.flush(ctx, p); err != nil {
		return err
	}
	if p.next > p.passed+progressAfter {
		return m.progress(ctx, p)
	}
	return nil
}

// add sends a line, at once or with others.
func (m *mirrored) add(ctx context.Context, p *part, one line) error {
	text := p.l.named(one.text)
	if len(p.l.buf)+len(text) > batchBytes {
		if err := m.flush(ctx, p); err != nil {
			return err
		}
	}
	p.l.count(one.seq)
	p.passed = max(p.passed, one.seq)
	if len(text) <= batchBytes {
		p.l.buf = append(p.l.buf, text...)
		return nil
	}
	return m.alone(ctx, p, one.seq, text)
}

// flush sends the lines that are kept back.
func (m *mirrored) flush(ctx context.Context, p *part) error {
	if len(p.l.buf) == 0 {
		return nil
	}
	if !p.holds {
		if err := m.hold(ctx); err != nil {
			return err
		}
		defer m.letGo()
	}
	err := p.l.req.SendRaw(ctx, p.l.buf)
	p.l.buf = p.l.buf[:0]
	return err
}

// alone sends a line that fills more than a message.
func (m *mirrored) alone(ctx context.Context, p *part, seq uint64, text []byte) error {
	if !p.holds {
		if err := m.hold(ctx); err != nil {
			return err
		}
		defer m.letGo()
	}
	p.l.half = &half{seq: seq}
	return p.l.sendParts(ctx, text)
}

// hear sends an event if the listener wants it.
func (m *mirrored) hear(ctx context.Context, p *part, e journal.Text) error {
	if e.Seq < p.next {
		return nil
	}
	err := event.CheckText(e.Body)
	var head event.Head
	if err == nil {
		head, err = event.HeadOf(e.Body)
	}
	ok := err == nil && !(p.fresh && event.StampOf(e.Body) < m.begun)
	if ok {
		if ok, err = p.l.wants(head, len(e.Body)); err != nil {
			return err
		}
	}
	if ok {
		e.Body = p.l.named(e.Body)
		if err := m.turn(ctx, p.number, e, nil); err != nil {
			return err
		}
		if err := m.give(ctx, p, e); err != nil {
			return err
		}
	}
	p.next = e.Seq + 1
	if p.next > p.passed+progressAfter {
		return m.progress(ctx, p)
	}
	return nil
}

// Limits of what goes to a listener from the journals of others. masterBytes is how many bytes the name of
// a journal adds to an event, beside itself.
const (
	masterBytes   = 12
	mirroredLines = 128
)

// give sends one event whole.
func (m *mirrored) give(ctx context.Context, p *part, e journal.Text) error {
	p.l.count(e.Seq)
	p.passed = max(p.passed, e.Seq)
	if len(e.Body) > batchBytes {
		return m.alone(ctx, p, e.Seq, append(event.AppendMirrored(make([]byte, 0, len(e.Body)+seqBytes+len(p.mirror.Name)+masterBytes), e.Body, p.mirror.Name, e.Seq), '\n'))
	}
	p.l.buf = append(event.AppendMirrored(p.l.buf[:0], e.Body, p.mirror.Name, e.Seq), '\n')
	return m.flush(ctx, p)
}

// progress tells the caller how far the part is.
func (m *mirrored) progress(ctx context.Context, p *part) error {
	if p.next <= p.passed+1 {
		return nil
	}
	if !p.holds {
		if err := m.hold(ctx); err != nil {
			return err
		}
		defer m.letGo()
	}
	p.passed = p.next - 1
	b, err := json.Marshal(protocol.Progress{Passed: p.passed, Master: p.mirror.Name})
	if err != nil {
		return err
	}
	return p.l.req.SendRaw(ctx, append(b, '\n'))
}

// longTurn waits until a long event may be held and sent. A part that waits for one does not hold the
// other: two parts could wait for each other. One part at a time does that, and keeps what it has waited
// for if the other is free then. Parts that gave it back first would hand it to each other without end.
func (p *part) longTurn(m *mirrored) journal.LongRead {
	return func(ctx context.Context, size int) (func(), error) {
		if err := take(ctx, m.next); err != nil {
			return nil, err
		}
		defer func() { <-m.next }()
		for {
			if err := p.l.turn(ctx, size); err != nil {
				return nil, err
			}
			select {
			case m.out <- struct{}{}:
				p.holds = true
				return func() { p.letGo(m) }, nil
			default:
			}
			p.l.endTurn()
			if err := m.hold(ctx); err != nil {
				return nil, err
			}
			if p.l.tryTurn() {
				p.holds = true
				return func() { p.letGo(m) }, nil
			}
			m.letGo()
		}
	}
}

// letGo ends the turn of a part.
func (p *part) letGo(m *mirrored) {
	p.l.endTurn()
	if p.holds {
		p.holds = false
		m.letGo()
	}
}

// hold waits until the listener may send: a long event is sent in several messages, and no
// other may come between them.
func (m *mirrored) hold(ctx context.Context) error {
	if m == nil {
		return nil
	}
	return take(ctx, m.out)
}

// take waits for its turn at what one holds at a time.
func take(ctx context.Context, one chan struct{}) error {
	select {
	case one <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (m *mirrored) letGo() {
	if m != nil {
		<-m.out
	}
}

// wait returns when everything stored at the beginning is sent, with an error if a journal could not be read.
func (m *mirrored) wait(ctx context.Context) error {
	if m == nil {
		return nil
	}
	done := make(chan struct{})
	go func() { m.live.Wait(); close(done) }() // the end of ctx ends it, too
	select {
	case <-done:
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.incomplete
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// turn waits until no other journal has an older stored event that is not sent yet. flush sends
// what the part has written and not sent, as it must before it lets others pass; it is nil if
// there is nothing. An event of several messages does not wait: its reader has a turn that
// another part may wait for.
func (m *mirrored) turn(ctx context.Context, number int, e journal.Text, flush func(context.Context) error) error {
	if m == nil || e.Pieces > 1 || number == late {
		return nil
	}
	return m.order.Turn(ctx, number, event.StampOf(e.Body), flush)
}

// late is the number of parts that came after the others: they do not wait for other parts.
const late = -1

// caughtUp records that a part has sent everything that was stored at the beginning.
func (m *mirrored) caughtUp(number int) {
	if m != nil {
		m.order.End(number)
	}
}
