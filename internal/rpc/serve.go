package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
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

// Limits of the serving side, each against one principal that asks too much.
const (
	maxConcurrent = 128               // requests of one principal at a time; listeners count
	maxPartial    = 16                // requests of one connection whose last piece is missing
	maxHeld       = 2 * bus.LargeBody // bytes of one principal's requests that are not complete
	maxUnderWay   = bus.LargeBody     // bytes of one principal's requests that are being handled; one fits always
	maxHeldOfAll  = 160 << 20         // bytes of all requests that are not complete, or are being handled
	maxUnderOfAll = 128 << 20         // of those, that are being handled; beyond it none of more than modestPart is begun
	stallTimeout  = 60 * time.Second  // a principal that takes nothing for so long may come again later
)

// Handler answers one request. It may send messages and must return when ctx
// ends, which it does when the principal is gone. What it returns ends the answer.
type Handler func(ctx context.Context, r *Request) error

// Request is a request as it arrived: From is the identity that the broker
// verified, whatever the body says.
type Request struct {
	From  bus.Identity
	Op    string
	JID   salt.JID // of a return; not checked yet
	Body  []byte
	reply string
	out   *answerer

	endpoint *bus.Endpoint
	decided  atomic.Bool // to allow it
	built    int         // what was booked for the decoded body, by estimate
	reserve  func(cost int) error
}

// Decide takes what the check of the request's endpoint has decided, and returns the
// refusal. What was not decided, or by another check, has no answer: a handler that forgot
// to ask fails.
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

// errUndecided is a fault of ours: an answer without a decision.
var errUndecided = errors.New("the request was answered before anybody decided to allow it")

// Inbox is the private prefix of the connection that asked.
func (r *Request) Inbox() string { return inboxOf(r.reply) }

// Send sends v as one message of the answer, waiting while the principal has not
// taken what was sent before.
func (r *Request) Send(ctx context.Context, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return r.SendRaw(ctx, b)
}

// Last makes v the last message of the answer, which travels with its end: to clients
// of another kind before it. The handler must return nil after it.
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

// SendRaw is Send for what is encoded already, and for bytes that are no JSON.
func (r *Request) SendRaw(ctx context.Context, b []byte) error {
	return r.send(ctx, func(f func([]byte) error) error { return eachFrame(frameItem, b, f) })
}

// SendBody is SendRaw for what lies behind the bytes of the head, which saves to copy it. What body
// holds is used up.
func (r *Request) SendBody(ctx context.Context, body []byte) error {
	return r.send(ctx, func(f func([]byte) error) error { return cut(frameItem, body, f) })
}

// SendPart sends a piece of one message, which lies behind the bytes of the head and has MaxPart bytes at
// most; more of it follows. Nothing else is sent before the last. A piece that is not sent
// since ctx ended may be sent later.
func (r *Request) SendPart(ctx context.Context, body []byte, more bool) error {
	body[0] = frameItem
	if more {
		body[0] = framePart
	}
	return r.send(ctx, func(f func([]byte) error) error { return f(body) })
}

// Wait returns when more of the answer fits the window: until then whoever asked has not
// taken what was sent before.
func (r *Request) Wait(ctx context.Context) error { return r.out.wait(ctx, r.out.open) }

func (r *Request) send(ctx context.Context, each func(func([]byte) error) error) error {
	if !r.decided.Load() {
		return errUndecided
	}
	return r.out.send(ctx, each)
}

// Server answers the requests of a bus. Make it with NewServer, register
// handlers, then Start.
type Server struct {
	// Stall is how long a principal may take nothing of its answer before that ends. It
	// is set before Start.
	Stall time.Duration
	// Cut ends the connection with this inbox prefix, of a machine that floods the
	// daemon; nil ends none. It is set before Start.
	Cut func(inbox string)
	// CutKey ends the connections of a key that is not accepted and sends what is no request;
	// nil ends none. It is set before Start.
	CutKey func(key string)
	// Slow lets nothing be read of a sender for so long, one that asks too much; nil does
	// not. It is set before Start.
	Slow func(from bus.Identity, pause time.Duration)
	// Pace is how many requests a machine may make in a second; 0 is the default. It is
	// set before Start.
	Pace int
	// GrainsCount says whether grains can have a key accepted now, so that the question of
	// one may hold some; nil is that they cannot. It is set before Start.
	GrainsCount func() bool
	// Payer names whose bounds a request counts in where those are not its sender's own; ""
	// is that they are. nil is always. It is set before Start.
	Payer func(bus.Identity) string
	// Authorize decides the checks that need nothing of the body but who asks; Own needs
	// none. It is set before Start; nil refuses all.
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
	plain    map[string]*answerer            // those to clients, by their number
	numbers  uint64                          // of them so far
	asking   map[string]int                  // requests under way, by principal
	partial  map[string]*partial             // requests not complete, by reply subject
	halves   map[string]int                  // how many of those, by inbox
	held     map[string]int                  // their bytes, by principal
	bodies   map[string]int                  // bytes of requests under way, by principal
	under    int                             // bytes of all of those
	built    estimates                       // what their bodies have become, by estimate
	shares   map[string]*share               // of what is under way to principals
	throttle logging.Throttle                // of requests that were refused, by principal
	paces    paces
	begins   begins
	probes   probes
	wg       sync.WaitGroup
	ctx      context.Context
	stop     context.CancelFunc
	subs     []*nats.Subscription
}

// Owner returns the identity of the living connection with this inbox prefix.
type Owner func(inbox string) (bus.Identity, bool)

// NewServer returns a server that speaks over the daemon's own connection, and answers
// what the endpoints have.
func NewServer(nc *nats.Conn, owner Owner, endpoints bus.Endpoints, log *slog.Logger) *Server {
	ctx, stop := context.WithCancel(context.Background())
	return &Server{
		Stall: stallTimeout, nc: nc, owner: owner, endpoints: endpoints, log: log, handlers: map[string]Handler{}, batches: map[string]*batches{}, streams: map[string]*answerer{}, of: map[string]map[string]*answerer{}, plain: map[string]*answerer{},
		asking: map[string]int{}, partial: map[string]*partial{}, halves: map[string]int{}, held: map[string]int{}, bodies: map[string]int{}, built: newEstimates(), shares: map[string]*share{}, paces: paces{perSecond: defaultPace}, ctx: ctx, stop: stop,
	}
}

// Handle registers the handler that endpoints name: what no endpoint names cannot be
// registered, which is a fault of the program. It is called before Start.
func (s *Server) Handle(name string, h Handler) {
	if !slices.ContainsFunc(s.endpoints, func(e bus.Endpoint) bool { return e.Handler == name }) {
		panic("bus: no endpoint names the handler " + name)
	}
	s.handlers[name] = h
}

// Served fails, naming them, for endpoints whose handlers nobody has registered.
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

// Start begins to serve. It returns when the subscriptions stand.
func (s *Server) Start() error {
	if err := s.endpoints.Fault(); err != nil {
		return err
	}
	if s.Pace > 0 {
		s.paces.perSecond = float64(s.Pace)
	}
	for _, subject := range bus.RequestSubjects {
		if err := s.subscribe(subject, s.request); err != nil {
			return err
		}
	}
	s.serveBatches()
	for _, subject := range bus.WindowSubjects {
		if err := s.subscribe(subject, s.widen); err != nil {
			return err
		}
	}
	for _, subject := range bus.AckSubjects {
		if err := s.subscribe(subject, s.acked); err != nil {
			return err
		}
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
	// Nothing is dropped here: what one sends too much would be lost to others. Who may
	// have how much under way the broker knows, by what comes back of Probe.
	return sub.SetPendingLimits(-1, -1)
}

// Stop refuses further requests, ends those under way and waits for their
// handlers.
func (s *Server) Stop() {
	for _, sub := range s.subs {
		_ = sub.Unsubscribe() // fails only when the connection is gone already
	}
	s.mu.Lock() // no request is dispatched any more once this is free again
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
		// A reply subject that is not the principal's own would make the daemon speak
		// where the principal may not.
		s.stray(from)
		s.tell(from, op, fmt.Errorf("its answer would go elsewhere, to %.200q", m.Reply))
		return
	}
	from.Key, from.Nonce, from.Source, from.Sudo = owner.Key, nonceOf(m.Reply), owner.Source, owner.Sudo
	if from.Role == bus.RoleGuest {
		from.Name = owner.Name // the host, by which they are counted: anybody can make keys
	}
	if from.Role == bus.RoleMinion {
		from.Role = owner.Role // salt-call speaks as its minion, and may do less
	}
	endpoint := s.endpoints.Find(from.Role, op)
	if endpoint == nil {
		s.stray(from)
		s.reject(from, op, m.Reply, Errorf(NotFound, "there is no request %q for a %s", op, from.Role))
		return
	}
	if err := s.tooFast(from, endpoint, m.Reply, m.Data); err != nil {
		s.reject(from, op, m.Reply, err)
		return
	}
	body, done, err := s.assemble(from, endpoint, m)
	switch {
	case err != nil && CodeOf(err) == Busy:
		s.reject(from, op, m.Reply, err)
	case err != nil:
		s.reject(from, op, m.Reply, Errorf(Usage, "request %s: %v", op, err))
	case done:
		s.dispatch(&Request{From: from, Op: op, JID: jid, Body: body, reply: m.Reply, endpoint: endpoint})
	}
}

// partial is a request whose last piece has not come.
type partial struct {
	Assembler
	principal string
}

// assemble puts together a request of several pieces. What a principal leaves
// unfinished costs a bounded part of the memory, and that of an unaccepted key nothing: a
// question whether a key is accepted fits into one piece.
func (s *Server) assemble(from bus.Identity, e *bus.Endpoint, m *nats.Msg) (body []byte, done bool, err error) {
	part := len(m.Data) > 0 && m.Data[0] == framePart
	switch {
	case from.Role == bus.RoleClient && len(m.Data) > e.Body, (from.Role == bus.RoleUnaccepted || from.Role == bus.RoleGuest) && part:
		return nil, false, fmt.Errorf("%w: the limit is %d bytes", ErrTooLarge, e.Body)
	case from.Role == bus.RoleClient:
		return m.Data, true, nil // plain, and never in pieces
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.partial[m.Reply]
	if p == nil {
		if !part {
			whole := Assembler{Limit: s.limit(from, e)}
			return whole.Add(m.Data)
		}
		if p, err = s.begin(principal(from), m.Reply, e); err != nil {
			return nil, false, err
		}
	}
	if s.held[p.principal]+len(m.Data) > maxHeld {
		s.release(p)
		p.drop(Errorf(Busy, "too many requests that are not complete: they hold %d bytes", maxHeld))
	}
	s.relieve(p, len(m.Data))
	before := p.size
	body, done, err = p.Add(m.Data)
	s.held[p.principal] += p.size - before
	if done || err != nil {
		s.dropPartial(m.Reply)
	}
	return body, done, err
}

// relieve frees n more bytes for p, where all together hold too much: those give way
// whose principal holds the most, so that nobody keeps what others need by never ending a request.
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

// heldOfAll is how many bytes the requests of all have.
func (s *Server) heldOfAll() (n int) {
	for _, held := range s.held {
		n += held
	}
	return n + s.under
}

// limit is the size of the largest request of an endpoint for a sender.
func (s *Server) limit(from bus.Identity, e *bus.Endpoint) int {
	if from.Role == bus.RoleUnaccepted && (s.GrainsCount == nil || !s.GrainsCount()) {
		return min(bus.KeyBody, e.Body)
	}
	return e.Body
}

// begin books a request that comes in pieces.
func (s *Server) begin(principal, reply string, e *bus.Endpoint) (*partial, error) {
	if s.halves[inboxOf(reply)] >= maxPartial {
		return nil, Errorf(Busy, "too many requests that are not complete: the limit is %d", maxPartial)
	}
	p := &partial{Assembler{Limit: e.Body}, principal}
	s.partial[reply] = p
	s.halves[inboxOf(reply)]++
	return p, nil
}

// release takes what p holds off the account of its principal.
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

// inboxOf is the prefix of the connection that a reply subject belongs to: its
// first three tokens. What a client adds to them is its own affair.
func inboxOf(reply string) string {
	parts := strings.SplitN(reply, ".", 4)
	return strings.Join(parts[:min(3, len(parts))], ".")
}

func (s *Server) dispatch(r *Request) {
	h := s.handlers[r.endpoint.Handler]
	if h == nil {
		s.reject(r.From, r.Op, r.reply, Errorf(NotFound, "nothing serves the request %q", r.Op))
		return
	}
	principal := s.payer(r.From)
	ctx, cancel := context.WithCancel(s.ctx)
	out := &answerer{nc: s.nc, reply: r.reply, principal: principal, limit: s.Stall, cancel: cancel, acked: make(chan struct{}, 1)}
	r.out, r.reserve = out, func(cost int) error { return s.reserve(ctx, principal, cost) }
	b, inBatch := booked{r, ctx, principal}, false
	s.mu.Lock()
	busy := s.busy(principal, r)
	if busy == nil {
		s.asking[principal]++
		s.bodies[principal] += len(r.Body)
		s.under += len(r.Body)
		s.enter(out)
		out.share = s.shareOf(r.From, principal)
		s.number(r.From, out)
		s.wg.Add(1)
		inBatch = s.batches[r.endpoint.Handler].add(b)
	}
	s.mu.Unlock()
	if busy != nil {
		cancel()
		s.reject(r.From, r.Op, r.reply, busy)
		return
	}
	if !inBatch {
		s.schedule(b, h)
	}
}

// schedule answers a booked request when it is its sender's turn.
func (s *Server) schedule(b booked, h Handler) {
	if b.From.IsOperator() {
		go s.serve(b, h)
		return
	}
	s.begins.add(b.principal, len(b.Body), func() { s.serve(b, h) })
}

// booked is a request that is counted among those under way.
type booked struct {
	*Request
	ctx       context.Context
	principal string
}

// serve answers a booked request. It is booked no more before its principal learns of its end:
// who has so many under way, and asks again for each that has ended, is never refused.
func (s *Server) serve(b booked, h Handler) {
	defer s.wg.Done()
	end := s.answer(b.ctx, h, b.Request)
	s.unreserve(b.principal, b.built)
	s.finish(b.principal, b.reply, len(b.Body), b.out.cancel)
	s.publish(b.Op, end)
}

// enter books an answer. The caller holds the lock, as that of leave does.
func (s *Server) enter(out *answerer) {
	inbox := inboxOf(out.reply)
	if s.of[inbox] == nil {
		s.of[inbox] = map[string]*answerer{}
	}
	s.streams[out.reply], s.of[inbox][out.reply] = out, out
}

func (s *Server) leave(reply string) {
	delete(s.streams, reply)
	inbox := inboxOf(reply)
	if delete(s.of[inbox], reply); len(s.of[inbox]) == 0 {
		delete(s.of, inbox)
	}
}

// busy says why a request cannot be taken now. The caller holds the lock.
func (s *Server) busy(principal string, r *Request) error {
	switch {
	case s.ctx.Err() != nil:
		return Errorf(Unavailable, "the daemon is stopping")
	case s.streams[r.reply] != nil:
		return Errorf(Busy, "a request with this reply subject is under way")
	case s.asking[principal] >= maxConcurrent:
		return Errorf(Busy, "too many requests at once: %d are under way", maxConcurrent)
	case s.bodies[principal] > 0 && s.bodies[principal]+len(r.Body) > maxUnderWay:
		return Errorf(Busy, "too many requests at once: those under way hold %d bytes", s.bodies[principal])
	case s.under+len(r.Body) > maxUnderOfAll && s.bodies[principal]+len(r.Body) > modestPart:
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
	delete(s.plain, s.streams[reply].plain)
	s.leave(reply)
	if s.asking[principal]--; s.asking[principal] <= 0 {
		delete(s.asking, principal)
	}
	s.under -= size
	if s.bodies[principal] -= size; s.bodies[principal] <= 0 {
		delete(s.bodies, principal)
	}
}

// reject refuses a request that no handler has seen. The mistakes of people at a
// terminal are told to them alone.
func (s *Server) reject(from bus.Identity, op, reply string, err error) {
	if from.Role != bus.RoleUser {
		s.tell(from, op, err)
	}
	s.publish(op, refusal(from.Role, reply, err))
}

// tell logs that a request was refused, now and then: who sends nonsense, or too much,
// shall be noticed and shall not fill the log.
func (s *Server) tell(from bus.Identity, op string, err error) {
	s.throttle.Log(s.log, slog.LevelWarn, from.String(), 1, "request refused", "from", from.String(), "op", op, "err", err)
}

// maxFailed is how many lines in a minute one identity may cause with one operation that fails, or
// by being cut off.
const maxFailed = 3

// answer runs the handler and returns what ends the answer, also after a panic: one broken
// request must not end the daemon. nil ends the answer of a principal that is gone.
func (s *Server) answer(ctx context.Context, h Handler, r *Request) *nats.Msg {
	err := func() (err error) {
		defer func() {
			if p := recover(); p != nil {
				s.log.Error("request handler failed", "op", r.Op, "from", r.From.String(), "panic", p)
				err = errors.New("panic")
			}
		}()
		if err := ctx.Err(); err != nil {
			return err // it ended before its turn
		}
		if err := s.authorize(ctx, r); err != nil {
			return err
		}
		if err := h(ctx, r); err != nil || r.decided.Load() {
			return err
		}
		return errUndecided
	}()
	if ctx.Err() != nil && s.ctx.Err() == nil {
		if r.out.stalled.Load() { // it is told when it looks at last
			return refusal(r.From.Role, r.reply, Errorf(Unavailable, "nothing was taken of the answer for %s", s.Stall))
		}
		return nil
	}
	if s.ctx.Err() != nil {
		err = Errorf(Unavailable, "the daemon is stopping").WithHint("a job that was started goes on, see 'salt-run jobs.list_jobs'")
	}
	if err != nil {
		if CodeOf(err) == Internal {
			s.throttle.Log(s.log, slog.LevelError, "failed "+r.Op+" "+r.From.String(), maxFailed, "request failed", "op", r.Op, "from", r.From.String(), "err", err)
		}
		if CodeOf(err) == Usage && r.From.Role != bus.RoleUser {
			s.tell(r.From, r.Op, err)
		}
		return refusal(r.From.Role, r.reply, err)
	}
	return r.out.message(frame(frameEnd, r.out.last))
}

// publish sends what ends an answer; nil is nothing.
func (s *Server) publish(op string, end *nats.Msg) {
	if end == nil {
		return
	}
	if err := s.nc.PublishMsg(end); err != nil && !s.nc.IsClosed() {
		s.log.Error("end of an answer not sent", "op", op, "err", err)
	}
}

// authorize decides what can be decided by who asks.
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

// payer is whose bounds a request counts in while it is under way.
func (s *Server) payer(i bus.Identity) string {
	if s.Payer != nil {
		if p := s.Payer(i); p != "" {
			return p
		}
	}
	return principal(i)
}

// principal is whose pace a request counts in: salt-call counts as its minion.
func principal(i bus.Identity) string { return i.Role.Kind() + ":" + i.Name }

// refusal is the message that refuses a request; nil where nobody waits for it.
func refusal(role bus.Role, reply string, err error) *nats.Msg {
	if reply == "" {
		return nil
	}
	m := &nats.Msg{Subject: reply, Data: frame(frameError, encodeError(err))}
	if role == bus.RoleClient {
		m = plainMessage(m)
	}
	return m
}

// widen notes what a principal has taken: "reply total".
func (s *Server) widen(m *nats.Msg) {
	from, _, ok := bus.Sender(m.Subject)
	s.keepPace(from, windowWeight)
	reply, total, split := strings.Cut(string(m.Data), " ")
	n, err := strconv.ParseInt(total, 10, 64)
	if _, own := s.ownInbox(from, reply); !own || !ok || !split || err != nil {
		return
	}
	s.mu.Lock()
	out := s.streams[reply]
	s.mu.Unlock()
	if out != nil {
		out.widen(n)
	}
}

// ownInbox says whether reply lies in the private inbox of a living connection
// of from, so that nobody can have an answer sent to where it may not publish.
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

// answerer is the sending half of one answer.
type answerer struct {
	nc        *nats.Conn
	reply     string
	principal string
	plain     string        // of a client: the number of the answer; else empty
	client    string        // its name
	limit     time.Duration // how long the principal may take nothing
	last      []byte        // what travels with the end
	stalled   atomic.Bool   // it took nothing for longer
	cancel    context.CancelFunc
	acked     chan struct{} // an acknowledgement came

	mu    sync.Mutex // keeps the pieces of one message together
	share *share     // of what is under way to the principal; nil is no limit but the window
	count sync.Mutex // guards the two below
	sent  int64
	taken int64
}

// send sends the pieces that each hands over.
func (o *answerer) send(ctx context.Context, each func(func([]byte) error) error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return each(func(b []byte) error {
		if err := o.wait(ctx, func() bool { return o.reserve(len(b)) }); err != nil {
			return err
		}
		return o.nc.PublishMsg(o.message(b)) // it copies b
	})
}

// wait returns when free says that the window is open, or when ctx has ended, without asking
// again: what is not sent is not booked.
func (o *answerer) wait(ctx context.Context, free func() bool) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		freed := o.share.freed()
		if free() {
			return nil
		}
		t := time.NewTimer(o.limit)
		select {
		case <-o.acked:
			t.Stop()
		case <-freed:
			t.Stop()
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-t.C:
			o.stalled.Store(true)
			o.cancel()
			return ctx.Err()
		}
	}
}

// open says whether the window is open.
func (o *answerer) open() bool {
	o.count.Lock()
	defer o.count.Unlock()
	return o.sent-o.taken < Window && o.share.open()
}

// reserve reserves n bytes if the window is open.
func (o *answerer) reserve(n int) bool {
	o.count.Lock()
	defer o.count.Unlock()
	if o.sent-o.taken >= Window || !o.share.take(cost(n)) {
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
