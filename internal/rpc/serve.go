package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/authz/decision"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/salt"
)

// Limits of the serving side, each against one principal that sends too much.
const (
	maxConcurrent = 128               // requests of one principal at a time; listeners count
	maxPartial    = 16                // requests of one connection whose last piece is missing
	maxHeld       = 2 * bus.LargeBody // bytes of one principal's incomplete requests
	maxUnderWay   = bus.LargeBody     // bytes of one principal's requests being handled; one always fits
	maxHeldOfAll  = 160 << 20         // bytes of all requests, incomplete or being handled
	maxUnderOfAll = 128 << 20         // of those being handled; beyond it none larger than modestPart is started
	stallTimeout  = 60 * time.Second  // a principal that reads nothing for so long must ask again
)

// Handler answers one request. It may send messages, and must return when ctx ends, which
// happens when the principal is gone. Its return value ends the answer.
type Handler func(ctx context.Context, r *Request) error

// Request is a request as received. From is the identity that the broker has verified, whatever
// the body says.
type Request struct {
	From   bus.Identity
	Op     string
	JID    salt.JID // of a return; not checked yet
	Body   []byte   // nil once its handler, which may run for long, no longer needs it
	reply  string
	out    *answerer
	framed bool // the sender speaks protocol 1

	pieces   message // the body of a long request until its turn, see join
	endpoint *bus.Endpoint
	decided  atomic.Bool // an allowing decision was made
	built    int         // estimated memory reserved for the decoded body
	reserve  func(cost int) error
	waits    func() // nil for a request without a turn to release
}

// Waits releases the turn of the request: from now on its handler only waits, for example for
// another request of the same sender, which can then start.
func (r *Request) Waits() {
	if r.waits != nil {
		r.waits()
	}
}

// Decide takes the decision of the check that the request's endpoint names, and returns the
// refusal. Without a decision, or with that of another check, nothing can be sent: a handler
// that forgets to decide fails.
func (r *Request) Decide(d decision.Decision) error {
	if err := d.Err(); err != nil {
		return err
	}
	if !d.Allows(string(r.endpoint.Check)) {
		return errUndecided
	}
	r.decided.Store(true)
	return nil
}

// errUndecided is a bug: an answer without a decision.
var errUndecided = errors.New("the request was answered before anybody decided to allow it")

// Inbox is the private prefix of the sender's connection.
func (r *Request) Inbox() string { return inboxOf(r.reply) }

// Send sends v as one message of the answer. It waits while the principal has not read enough
// of what was sent before.
func (r *Request) Send(ctx context.Context, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return r.SendRaw(ctx, b)
}

// Last makes v the last message of the answer. It is sent together with the end, for clients
// before it. The handler must return nil after it.
func (r *Request) Last(ctx context.Context, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if !r.decided.Load() {
		return errUndecided
	}
	if len(b) > MaxPart || r.out.last != nil || r.From.Role == bus.RoleClient {
		return r.SendRaw(ctx, b)
	}
	r.out.last = b
	return nil
}

// SendRaw is Send for encoded data, which need not be JSON.
func (r *Request) SendRaw(ctx context.Context, b []byte) error {
	return r.send(ctx, func(f func(kind, []byte) error) error { return eachPiece(kindItem, b, f) })
}

// SendPart sends a piece of one message, of at most MaxPart bytes; more means that further
// pieces follow. Nothing else may be sent before the last piece. A piece that was not sent
// because ctx ended may be sent later.
func (r *Request) SendPart(ctx context.Context, piece []byte, more bool) error {
	k := kindItem
	if more {
		k = kindPart
	}
	return r.send(ctx, func(f func(kind, []byte) error) error { return f(k, piece) })
}

// Wait returns when more of the answer fits into the window; until then the receiver has not
// read what was sent before.
func (r *Request) Wait(ctx context.Context) error { return r.out.wait(ctx, r.out.open) }

func (r *Request) send(ctx context.Context, each func(func(kind, []byte) error) error) error {
	if !r.decided.Load() {
		return errUndecided
	}
	return r.out.send(ctx, each)
}

// Server answers the requests of a bus. Make it with NewServer, register handlers, then call
// Start.
type Server struct {
	// Stall is how long a principal may read nothing of its answer before the answer ends. It
	// is set before Start.
	Stall time.Duration
	// Cut ends the connection with this inbox prefix, of a machine that floods the daemon; nil
	// ends none. It is set before Start.
	Cut func(inbox string)
	// CutKey ends the connections of a key that is not accepted and sends something other than
	// requests; nil ends none. It is set before Start.
	CutKey func(key string)
	// Slow stops reading from a sender of too many requests for that long; nil does nothing. It
	// is set before Start.
	Slow func(from bus.Identity, pause time.Duration)
	// SlowOne is Slow for the connection with this inbox prefix alone, for requests that count for
	// somebody else than their sender, see Quota; nil slows all of the sender's. It is set before Start.
	SlowOne func(inbox string, pause time.Duration)
	// Unread returns how many bytes the broker holds for the connection with this inbox prefix,
	// since it has not read them; 0 if there is no such connection. nil, on a bus that is not of
	// ours, does not limit that. It is set before Start.
	Unread func(inbox string) int64
	// Pace is how many requests a machine may send in a second; 0 is the default. It is set
	// before Start.
	Pace int
	// Pending limits the bytes that wait in each subscription, if no broker of ours limits them
	// before; 0 is no limit. What exceeds it is dropped, so the owner of the connection must
	// then end the connections of its peers. It is set before Start.
	Pending int
	// Numbers makes the server number the messages of answers, see headerNumber. It is set
	// before Start.
	Numbers bool
	// GrainsCount reports whether grains can cause a key to be accepted now, so that the
	// question about a key may include some; nil means no. It is set before Start.
	GrainsCount func() bool
	// Room is called before a long request of n bytes is assembled, so that memory can be
	// freed; nil frees none. It is set before Start.
	Room func(n int)
	// Quota names whose limits a request counts for, if not its sender's; "" means its
	// sender's. nil always does. It is set before Start.
	Quota func(bus.Identity) string
	// Authorize decides the checks for which only the sender matters, not the body; Own needs
	// no decision. It is set before Start; nil refuses all.
	Authorize func(ctx context.Context, r *Request, c bus.Check) decision.Decision

	nc        *nats.Conn
	log       *slog.Logger
	owner     Owner
	endpoints bus.Endpoints
	handlers  map[string]Handler  // by their names in the endpoints
	batches   map[string]*batches // likewise

	mu       sync.Mutex
	streams  map[string]*answerer            // by reply subject
	of       map[string]map[string]*answerer // those by inbox, and then by reply subject
	byNumber map[uint64]*answerer            // likewise, by number
	numbers  uint64                          // numbers used so far
	asking   map[string]int                  // requests under way, by principal
	partial  map[string]*partial             // incomplete requests, by reply subject
	halves   map[string]int                  // how many of those, by inbox
	held     map[string]int                  // their bytes, by principal
	bodies   map[string]int                  // bytes of requests under way, by principal
	under    int                             // bytes of all of these
	built    estimates                       // estimated memory of their decoded bodies
	shares   map[string]*share               // what is under way to principals, and what they have not read
	swept    time.Time                       // when those without any were forgotten
	throttle logging.Throttle                // of refused requests, by principal
	paces    paces
	begins   begins
	probes   probes
	wg       sync.WaitGroup
	ctx      context.Context
	stop     context.CancelFunc
	subs     []*nats.Subscription
}

// Owner returns the identity of the living connection with this inbox prefix. A connection that ends has none
// before Server.Gone is called for it.
type Owner func(inbox string) (bus.Identity, bool)

// NewServer returns a server on the daemon's own connection for these endpoints.
func NewServer(nc *nats.Conn, owner Owner, endpoints bus.Endpoints, log *slog.Logger) *Server {
	ctx, stop := context.WithCancel(context.Background())
	return &Server{
		Stall: stallTimeout, nc: nc, owner: owner, endpoints: endpoints, log: log, handlers: map[string]Handler{}, batches: map[string]*batches{}, streams: map[string]*answerer{}, of: map[string]map[string]*answerer{}, byNumber: map[uint64]*answerer{},
		asking: map[string]int{}, partial: map[string]*partial{}, halves: map[string]int{}, held: map[string]int{}, bodies: map[string]int{}, built: newEstimates(), shares: map[string]*share{}, paces: paces{perSecond: defaultPace}, ctx: ctx, stop: stop,
	}
}

// Handle registers a handler by the name that endpoints use for it. A name that no endpoint
// uses is a bug and panics. It is called before Start.
func (s *Server) Handle(name string, h Handler) {
	if !slices.ContainsFunc(s.endpoints, func(e bus.Endpoint) bool { return e.Handler == name }) {
		panic("bus: no endpoint names the handler " + name)
	}
	s.handlers[name] = h
}

// Served returns an error with the names of endpoints without a handler.
func (s *Server) Served() error {
	var list []string
	for _, e := range s.endpoints {
		if s.handlers[e.Handler] == nil {
			list = append(list, e.Handler)
		}
	}
	if len(list) > 0 {
		return fmt.Errorf("endpoints have no handlers: %s", strings.Join(list, ", "))
	}
	return nil
}

// Start begins to serve. It returns when the subscriptions are made.
func (s *Server) Start() error {
	if err := s.endpoints.Fault(); err != nil {
		return err
	}
	if s.Pace > 0 {
		s.paces.perSecond = float64(s.Pace)
	}
	requests, windows, acks := s.endpoints.Subjects()
	for _, subject := range requests {
		if err := s.subscribe(subject, s.request); err != nil {
			return err
		}
	}
	s.serveBatches()
	for _, subject := range windows {
		if err := s.subscribe(subject, s.widenFramed); err != nil {
			return err
		}
	}
	for _, subject := range acks {
		if err := s.subscribe(subject, s.confirmed); err != nil {
			return err
		}
	}
	if s.nc.IsReconnecting() {
		return nil // there is no connection yet; the subscriptions are made with it
	}
	return s.nc.Flush()
}

func (s *Server) subscribe(subject string, cb nats.MsgHandler) error {
	sub, err := s.nc.Subscribe(subject, func(m *nats.Msg) {
		if isProbe(m.Subject) {
			s.probes.back()
			return
		}
		s.probes.looked.Add(1)
		cb(m)
	})
	if err != nil {
		return err
	}
	s.subs = append(s.subs, sub)
	if s.Pending > 0 {
		return sub.SetPendingLimits(-1, s.Pending)
	}
	// Nothing is dropped here: messages of others would be lost because of one that sends too
	// much. The broker limits what each may have under way, by what Probe reports.
	return sub.SetPendingLimits(-1, -1)
}

// Stop refuses further requests, ends those under way and waits for their handlers.
func (s *Server) Stop() {
	for _, sub := range s.subs {
		_ = sub.Unsubscribe() // fails only if the connection is gone already
	}
	s.mu.Lock() // no request is dispatched any more after this
	s.stop()
	s.mu.Unlock()
	s.wg.Wait()
}

// Gone ends every answer to the connection with this inbox prefix.
func (s *Server) Gone(inbox string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, out := range s.of[inbox] {
		out.cancel()
	}
	if s.halves[inbox] == 0 {
		return
	}
	for reply := range s.partial {
		if strings.HasPrefix(reply, inbox+".") {
			s.dropPartial(reply)
		}
	}
}

func (s *Server) request(m *nats.Msg) {
	from, rest, ok := bus.Sender(m.Subject)
	op, jid := bus.Operation(rest)
	var owner bus.Identity
	if ok {
		owner, ok = s.ownInbox(from, m.Reply)
	}
	if !ok {
		// With a reply subject of another principal, the daemon would publish where the sender
		// may not.
		s.stray(from)
		s.tell(from, op, fmt.Errorf("its answer would go elsewhere, to %.200q", m.Reply))
		return
	}
	from.Key, from.Nonce, from.Source, from.Sudo = owner.Key, nonceOf(m.Reply), owner.Source, owner.Sudo
	if from.Role == bus.RoleGuest {
		from.Name = owner.Name // the host, since anybody can make keys
	}
	if from.Role == bus.RoleMinion {
		from.Role = owner.Role // salt-call counts as its minion, and may do less
	}
	in := s.read(from, m)
	endpoint := s.endpoints.Find(from.Role, op)
	if endpoint == nil {
		s.stray(from)
		s.reject(from, op, in.reply, in.framed, Errorf(NotFound, "there is no request %q for a %s", op, from.Role))
		return
	}
	if err := s.tooFast(from, endpoint, in); err != nil {
		s.reject(from, op, in.reply, in.framed, err)
		return
	}
	body, done, err := s.assemble(from, endpoint, in)
	switch {
	case err != nil && CodeOf(err) == Busy:
		s.reject(from, op, in.reply, in.framed, err)
	case err != nil:
		s.reject(from, op, in.reply, in.framed, Errorf(Usage, "request %s: %v", op, err))
	case done:
		s.dispatch(&Request{From: from, Op: op, JID: jid, pieces: body, reply: m.Reply, framed: in.framed, endpoint: endpoint})
	}
	s.goneMeanwhile(inboxOf(m.Reply))
}

// goneMeanwhile is called after something of a connection was registered. If the connection has ended since
// it was looked up, Gone may have come before that, and would find nothing. The connection has no owner
// before Gone is called for it, so either this or Gone sees what was registered.
func (s *Server) goneMeanwhile(inbox string) {
	if _, lives := s.owner(inbox); !lives {
		s.Gone(inbox)
	}
}

// incoming is a message of a request.
type incoming struct {
	reply  string
	kind   kind // kindPart or kindItem
	data   []byte
	framed bool
	number int   // of the piece, 0 for none
	err    error // it cannot be read
	later  bool  // pieces of this request have come before
}

// read reads the headers of a message. All pieces of a request have the form of the first.
func (s *Server) read(from bus.Identity, m *nats.Msg) incoming {
	in := incoming{reply: m.Reply, data: m.Data, number: numberOf(m), framed: from.Role != bus.RoleClient && isFramed(m)}
	s.mu.Lock()
	if p := s.partial[m.Reply]; p != nil {
		in.later, in.framed = true, p.Framed
	}
	s.mu.Unlock()
	if in.framed {
		in.kind, in.data, in.err = unframe(m.Data)
	} else if m.Header.Get(headerPart) != "" {
		in.kind = kindPart
	}
	return in
}

// partial is a request whose last piece has not come.
type partial struct {
	Assembler
	principal string
	number    int // of the latest piece, where they have numbers
}

// assemble assembles a request of several pieces. The memory for a principal's incomplete
// requests is limited. A key that is not accepted has none: its question fits into one piece.
func (s *Server) assemble(from bus.Identity, e *bus.Endpoint, in incoming) (body message, done bool, err error) {
	part := in.kind == kindPart
	if unaccepted(from) && part {
		return nil, false, fmt.Errorf("%w: the limit is %d bytes", ErrTooLarge, e.Body)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.partial[in.reply]
	switch {
	case in.err != nil && p != nil:
		s.dropPartial(in.reply)
		return nil, false, in.err
	case in.err != nil:
		return nil, false, in.err
	case p == nil && !comesNext(in.number, 0):
		return nil, false, errGap
	case p == nil && !part:
		whole := Assembler{Limit: s.limit(from, e)}
		_, body, err = whole.piece(in.kind, in.data)
		return body, true, err
	case p == nil:
		if p, err = s.begin(principal(from), in, e); err != nil {
			return nil, false, err
		}
	}
	if s.held[p.principal]+len(in.data) > maxHeld {
		s.release(p)
		p.drop(Errorf(Busy, "too many requests that are not complete: they hold %d bytes", maxHeld))
	}
	if !comesNext(in.number, p.number) {
		s.release(p)
		p.drop(errGap)
	}
	p.number++
	s.relieve(p, len(in.data))
	before := p.size
	k, body, err := p.piece(in.kind, in.data)
	done = k != kindPart
	s.held[p.principal] += p.size - before
	if done || err != nil {
		s.dropPartial(in.reply)
	}
	return body, done, err
}

// relieve frees n more bytes for p if all incomplete requests together hold too much: those of
// the principal that holds the most are dropped, so that nobody can block others by never
// ending a request.
func (s *Server) relieve(p *partial, n int) {
	for s.heldOfAll()+n > maxHeldOfAll && p.bad == nil {
		victim := p
		for _, o := range s.partial {
			if own, most := s.held[o.principal], s.held[victim.principal]; o.size > 0 && (own > most || own == most && o.size > victim.size) {
				victim = o
			}
		}
		s.release(victim)
		victim.drop(Errorf(Busy, "too many large requests of all are under way"))
	}
}

// heldOfAll returns how many bytes all requests hold.
func (s *Server) heldOfAll() (n int) {
	for _, held := range s.held {
		n += held
	}
	return n + s.under
}

// limit returns the size of the largest request to an endpoint from a sender.
func (s *Server) limit(from bus.Identity, e *bus.Endpoint) int {
	if from.Role == bus.RoleUnaccepted && (s.GrainsCount == nil || !s.GrainsCount()) {
		return min(bus.KeyBody, e.Body)
	}
	return e.Body
}

// begin registers a request that comes in pieces.
func (s *Server) begin(principal string, in incoming, e *bus.Endpoint) (*partial, error) {
	if s.halves[inboxOf(in.reply)] >= maxPartial {
		return nil, Errorf(Busy, "too many requests that are not complete: the limit is %d", maxPartial)
	}
	p := &partial{Assembler: Assembler{Limit: e.Body, Framed: in.framed}, principal: principal}
	s.partial[in.reply] = p
	s.halves[inboxOf(in.reply)]++
	return p, nil
}

// release subtracts what p holds from its principal's count.
func (s *Server) release(p *partial) {
	if s.held[p.principal] -= p.size; s.held[p.principal] <= 0 {
		delete(s.held, p.principal)
	}
	p.clear()
}

func (s *Server) dropPartial(reply string) {
	s.release(s.partial[reply])
	delete(s.partial, reply)
	owner := inboxOf(reply)
	if s.halves[owner]--; s.halves[owner] <= 0 {
		delete(s.halves, owner)
	}
}

// inboxOf returns the prefix of the connection that a reply subject belongs to: its first three
// tokens. The client chooses the rest.
func inboxOf(reply string) string {
	parts := strings.SplitN(reply, ".", 4)
	return strings.Join(parts[:min(3, len(parts))], ".")
}

func (s *Server) dispatch(r *Request) {
	h := s.handlers[r.endpoint.Handler]
	if h == nil {
		s.reject(r.From, r.Op, r.reply, r.framed, Errorf(NotFound, "nothing serves the request %q", r.Op))
		return
	}
	principal := s.quota(r.From)
	ctx, cancel := context.WithCancel(s.ctx)
	out := &answerer{nc: s.nc, from: r.From, reply: r.reply, inbox: r.Inbox(), framed: r.framed, numbers: s.Numbers, principal: principal, every: confirmEvery, limit: s.Stall, cancel: cancel, acked: make(chan struct{}, 1)}
	if r.From.Role == bus.RoleClient {
		out.every = 0
	}
	r.out, r.reserve = out, func(cost int) error { return s.reserve(ctx, principal, cost) }
	b, inBatch := booked{r, ctx, principal, r.pieces.size()}, false
	if b.size <= MaxPart {
		r.join()
	}
	s.mu.Lock()
	busy := s.busy(principal, b)
	if busy == nil {
		s.asking[principal]++
		s.bodies[principal] += b.size
		s.under += b.size
		s.enter(out)
		out.share = s.shareOf(r.From, principal)
		s.wg.Add(1)
		inBatch = s.batches[r.endpoint.Handler].add(b)
	}
	s.mu.Unlock()
	if busy != nil {
		cancel()
		s.reject(r.From, r.Op, r.reply, r.framed, busy)
		return
	}
	if !inBatch {
		s.schedule(b, h)
	}
}

// schedule answers a registered request when it is its sender's turn.
func (s *Server) schedule(b booked, h Handler) {
	if b.From.IsOperator() {
		go s.serve(b, h)
		return
	}
	s.begins.add(b.principal, b.size, func(waits func()) {
		b.waits = waits
		s.serve(b, h)
	})
}

// join assembles the body of a long request when it is its turn, in its own goroutine, so that
// the goroutine that reads all requests is not delayed.
func (r *Request) join() {
	if r.pieces != nil {
		r.Body, r.pieces = r.pieces.join(), nil
	}
}

// booked is a request that counts among those under way.
type booked struct {
	*Request
	ctx       context.Context
	principal string
	size      int // of the body, which its handler may have released already
}

// serve answers a registered request. The request is removed from the counts before its
// principal gets the end of the answer, so that a principal at the limit that sends a new
// request for each one that ends is never refused.
func (s *Server) serve(b booked, h Handler) {
	defer s.wg.Done()
	end := s.answer(b.ctx, h, b.Request)
	s.unreserve(b.principal, b.built)
	deaf := b.out.end(end)
	s.finish(b.principal, b.reply, b.size, b.out.cancel)
	s.publish(b.Op, end)
	if end != nil {
		b.out.share.published(b.out.inbox, int64(len(end.Data)))
	}
	cutDeaf(s, b.From, deaf)
}

// enter registers an answer. The caller holds the lock; the same goes for leave.
func (s *Server) enter(out *answerer) {
	inbox := inboxOf(out.reply)
	if s.of[inbox] == nil {
		s.of[inbox] = map[string]*answerer{}
	}
	s.numbers++
	out.number = s.numbers
	s.streams[out.reply], s.of[inbox][out.reply], s.byNumber[out.number] = out, out, out
}

func (s *Server) leave(reply string) {
	delete(s.byNumber, s.streams[reply].number)
	delete(s.streams, reply)
	inbox := inboxOf(reply)
	if delete(s.of[inbox], reply); len(s.of[inbox]) == 0 {
		delete(s.of, inbox)
	}
}

// busy returns why a request cannot be accepted now. The caller holds the lock.
func (s *Server) busy(principal string, b booked) error {
	switch {
	case s.ctx.Err() != nil:
		return Errorf(Unavailable, "the daemon is stopping")
	case s.streams[b.reply] != nil:
		return Errorf(Busy, "a request with this reply subject is under way")
	case s.asking[principal] >= maxConcurrent:
		return Errorf(Busy, "too many requests at once: %d are under way", maxConcurrent)
	case s.bodies[principal] > 0 && s.bodies[principal]+b.size > maxUnderWay:
		return Errorf(Busy, "too many requests at once: those under way hold %d bytes", s.bodies[principal])
	case s.under+b.size > maxUnderOfAll && s.bodies[principal]+b.size > modestPart:
		return Errorf(Busy, "too many large requests of others are under way")
	}
	return nil
}

func (s *Server) finish(principal, reply string, size int, cancel context.CancelFunc) {
	cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams[reply].leave()
	s.dropShare(principal)
	s.leave(reply)
	if s.asking[principal]--; s.asking[principal] <= 0 {
		delete(s.asking, principal)
	}
	s.under -= size
	if s.bodies[principal] -= size; s.bodies[principal] <= 0 {
		delete(s.bodies, principal)
	}
}

// reject refuses a request before any handler. Mistakes of people at a terminal are not logged,
// only returned to them.
func (s *Server) reject(from bus.Identity, op, reply string, framed bool, err error) {
	if from.Role != bus.RoleUser {
		s.tell(from, op, err)
	}
	s.publish(op, refusal(reply, framed, err))
}

// tell logs now and then that a request was refused: a sender of nonsense, or of too much,
// shall be noticed but not fill the log.
func (s *Server) tell(from bus.Identity, op string, err error) {
	s.throttle.Log(s.log, slog.LevelWarn, from.String(), 1, "request refused", "from", from.String(), "op", op, "err", err)
}

// maxFailed is how many log lines a minute one identity may cause by failures of one operation,
// or by being cut.
const maxFailed = 3

// answer runs the handler and returns the message that ends the answer, also after a panic: one
// broken request must not end the daemon. nil ends the answer to a principal that is gone.
func (s *Server) answer(ctx context.Context, h Handler, r *Request) *nats.Msg {
	err := func() (err error) {
		defer func() {
			if p := recover(); p != nil {
				s.throttle.Log(s.log, slog.LevelError, "panic "+r.Op+" "+r.From.String(), maxFailed, "request handler failed", "op", r.Op, "from", r.From.String(), "panic", p)
				err = errors.New("panic")
			}
		}()
		if err := ctx.Err(); err != nil {
			return err // it ended before its turn
		}
		if err := s.authorize(ctx, r); err != nil {
			return err
		}
		if s.Room != nil && len(r.pieces) > 0 {
			s.Room(r.pieces.size())
		}
		r.join()
		if err := h(ctx, r); err != nil || r.decided.Load() {
			return err
		}
		return errUndecided
	}()
	if ctx.Err() != nil && s.ctx.Err() == nil {
		if r.out.stalled.Load() { // it gets this when it reads again
			return refusal(r.reply, r.framed, Errorf(Unavailable, "the answer was not read for %s", s.Stall))
		}
		return nil
	}
	if s.ctx.Err() != nil {
		err = Errorf(Unavailable, "the daemon is stopping").WithHint("a job that was started goes on: 'salt-run jobs.list_jobs' shows it, in a cluster at another member")
	}
	if err != nil {
		if CodeOf(err) == Internal {
			s.throttle.Log(s.log, slog.LevelError, "failed "+r.Op+" "+r.From.String(), maxFailed, "request failed", "op", r.Op, "from", r.From.String(), "err", err)
		}
		if CodeOf(err) == Usage && r.From.Role != bus.RoleUser {
			s.tell(r.From, r.Op, err)
		}
		return refusal(r.reply, r.framed, err)
	}
	return r.out.message(kindEnd, r.out.last)
}

// publish sends the message that ends an answer, unless it is nil.
func (s *Server) publish(op string, end *nats.Msg) {
	if end == nil {
		return
	}
	if err := s.nc.PublishMsg(end); err != nil && !s.nc.IsClosed() {
		s.log.Error("end of an answer not sent", "op", op, "err", err)
	}
}

// authorize makes the decisions for which only the sender matters.
func (s *Server) authorize(ctx context.Context, r *Request) error {
	switch c := r.endpoint.Check; {
	case c == bus.Own:
		return r.Decide(decision.Own())
	case !c.Early():
		return nil // the handler decides, see Decide
	case s.Authorize == nil:
		return Errorf(Denied, "nobody may do this")
	default:
		return r.Decide(s.Authorize(ctx, r, c))
	}
}

// quota returns whose limits and rate a request counts for.
func (s *Server) quota(i bus.Identity) string {
	if s.Quota != nil {
		if p := s.Quota(i); p != "" {
			return p
		}
	}
	return principal(i)
}

// principal names a sender, over all of its connections: salt-call counts as its minion.
func principal(i bus.Identity) string { return i.Role.Kind() + ":" + i.Name }

// refusal is the message that refuses a request; nil if nobody waits for it.
func refusal(reply string, framed bool, err error) *nats.Msg {
	switch {
	case reply == "":
		return nil
	case framed:
		return frame(reply, kindError, publicError(err).encode())
	}
	return newError(reply, err)
}

// confirmed handles the confirmation of a message, and so of all before it.
func (s *Server) confirmed(m *nats.Msg) {
	from, rest, ok := bus.Sender(m.Subject)
	number, total, read := bus.Confirmed(rest)
	var out *answerer
	if ok && read {
		s.mu.Lock()
		out = s.byNumber[number]
		s.mu.Unlock()
	}
	if out == nil || principal(out.from) != principal(from) {
		s.keepPace(from, windowWeight)
		return
	}
	s.keepPace(out.from, windowWeight) // which names the connection
	out.widen(total)
}

// ownInbox reports whether reply is in the private inbox of a living connection of from, so
// that nobody can have an answer sent to where they may not publish.
func (s *Server) ownInbox(from bus.Identity, reply string) (owner bus.Identity, ok bool) {
	parts := strings.Split(reply, ".")
	if len(parts) < 4 || len(parts) > 4 && from.Role != bus.RoleClient && !isShared(parts) || slices.Contains(parts, "") || strings.ContainsAny(reply, "*> \t") {
		return owner, false
	}
	if owner, ok = s.owner(inboxOf(reply)); !ok {
		return owner, false
	}
	switch from.Role {
	case bus.RoleUnaccepted: // any key may ask whether it is accepted
		return owner, owner.Key == from.Key
	case bus.RoleGuest: // known by the key alone
		return owner, owner.Key == from.Key && owner.Role == bus.RoleGuest
	}
	return owner, owner.Name == from.Name && owner.Role.Kind() == from.Role.Kind()
}

func nonceOf(reply string) string { return strings.Split(reply, ".")[2] }

// answerer sends one answer.
type answerer struct {
	nc        *nats.Conn
	reply     string
	inbox     string // of the connection that asked
	principal string
	framed    bool          // it speaks protocol 1
	number    uint64        // of the answer
	from      bus.Identity  // who asked, and confirms its messages
	every     int64         // of how many bytes a confirmation is asked for; 0 is of each message
	limit     time.Duration // how long the principal may read nothing
	last      []byte        // sent together with the end
	stalled   atomic.Bool   // it read nothing for longer
	cancel    context.CancelFunc
	acked     chan struct{} // signals an acknowledgement

	mu      sync.Mutex // keeps the pieces of one message together
	share   *share     // what is under way to the principal; nil means no limit but the window
	numbers bool       // messages have numbers
	count   sync.Mutex // guards those below
	n       int        // messages so far, where they have numbers
	sent    int64
	asked   int64 // up to where a confirmation was asked for
	taken   int64
}

// confirmEvery is of how many bytes of an answer our own programs are asked for a confirmation:
// it costs a message.
const confirmEvery = Window / 4

// send sends the pieces that each passes to it.
func (o *answerer) send(ctx context.Context, each func(func(kind, []byte) error) error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return each(func(k kind, b []byte) error {
		n := len(b)
		if o.framed {
			n += frameBytes
		}
		if err := o.wait(ctx, func() bool { return o.reserve(n) }); err != nil {
			return err
		}
		defer o.share.published(o.inbox, cost(n))
		return o.nc.PublishMsg(o.message(k, b)) // it copies b
	})
}

// message makes a message of the answer.
func (o *answerer) message(k kind, b []byte) *nats.Msg {
	if o.framed {
		return frame(o.reply, k, b)
	}
	m := newMessage(o.reply, k, b)
	if o.numbers {
		o.count.Lock()
		o.n++
		m = numbered(m, o.n)
		o.count.Unlock()
	}
	if k == kindItem || k == kindPart {
		m.Reply = o.confirmation()
	}
	return m
}

// confirmation returns the reply subject of the next message, on which its receiver confirms
// it; "" if no confirmation is wanted.
func (o *answerer) confirmation() string {
	o.count.Lock()
	defer o.count.Unlock()
	if o.sent-o.asked < o.every {
		return ""
	}
	o.asked = o.sent
	return bus.AckSubject(o.from.Role, o.from.Name, o.number, o.sent)
}

// wait returns when free reports that the window is open, or when ctx has ended. It does not
// call free again, since free may count bytes that are then not sent.
func (o *answerer) wait(ctx context.Context, free func() bool) error {
	var late *time.Timer
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		freed := o.share.freed()
		if free() {
			return nil
		}
		if late == nil {
			late = time.NewTimer(o.limit)
			defer late.Stop()
		}
		select {
		case <-o.acked:
			late.Reset(o.limit)
		case <-freed:
			late.Reset(o.limit)
		case <-o.share.again():
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			o.stalled.Store(true)
			o.cancel()
			return ctx.Err()
		}
	}
}

// open reports whether the window is open.
func (o *answerer) open() bool {
	o.count.Lock()
	defer o.count.Unlock()
	return o.sent-o.taken < Window && o.share.open()
}

// reserve counts n bytes if the window is open.
func (o *answerer) reserve(n int) bool {
	o.count.Lock()
	defer o.count.Unlock()
	if o.sent-o.taken >= Window || !o.share.take(o.inbox, cost(n)) {
		return false
	}
	o.sent += cost(n)
	return true
}

func (o *answerer) widen(total int64) {
	o.count.Lock()
	if total > o.taken && total <= o.sent {
		o.share.give(total - o.taken)
		o.taken = total
	}
	o.count.Unlock()
	select {
	case o.acked <- struct{}{}:
	default:
	}
}
