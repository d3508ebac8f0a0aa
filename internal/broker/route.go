package broker

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/member"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// routes are the connections of a member to the others. It listens and dials itself, and passes
// the server connections on which only the handshake remains: the server's own listener has no
// limits, and its dialler tries a port that does not speak its protocol thousands of times a
// second.
type routes struct {
	opts     ClusterOptions
	log      *slog.Logger
	refused  func(who string, args ...any)
	server   *server.Server
	sync     Sync
	majority func(error) // informed whether enough members are reached
	acceptor *acceptor
	throttle logging.Throttle // of errors about a peer
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu       sync.Mutex
	accepted map[net.Addr]*routeEnd // by the pointer that their RemoteAddr returns
	dialled  map[string]*routeEnd   // by the name that their handshake asks for
	live     map[*routeEnd]bool     // those whose other end has proved that it is a member
	peers    map[string]*PeerState
	changed  chan struct{} // closed when live changes
	n        int           // routes so far
	unread   member.Unread
	voters   int // see counted
	votersAt time.Time
}

// routeEnd is this member's end of a connection to another one, from its begin to its end.
type routeEnd struct {
	net.Conn
	routes  *routes
	arrival *arrival      // nil if it was dialled
	name    string        // that its handshake asks for, if it was dialled
	gone    chan struct{} // closed at its end
	once    sync.Once
	head    []byte // the first bytes of the other end, if it was dialled

	// Guarded by the lock of routes.
	member  member.Member
	judged  bool
	entered bool  // accepted, and has said CONNECT
	closed  bool  // it has ended
	number  int   // in order of their handshakes
	err     error // why the other end is refused
	back    bool  // it was dialled, and a connection from elsewhere asks for its name here
	own     bool  // it was dialled, and the other end has shown the certificate of this member
	asked   bool  // it was accepted, and has asked for a name that this member asks for
}

// errSelf is what a member meets at its own address, errSelfThrough what it meets at one that leads to
// it through something else.
var (
	errSelf        = errors.New("it is this member itself")
	errSelfThrough = fmt.Errorf("%w, through another address", errSelf)
)

// listen takes the port. Connections wait in the kernel until the broker is ready.
func (r *routes) listen() error {
	c := net.ListenConfig{KeepAlive: -1} // the server pings
	listener, err := c.Listen(context.Background(), "tcp", r.opts.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		err = salt.WithHint(err, "another program has the port: stop it, or set cluster_port")
	}
	if err != nil {
		return fmt.Errorf("listen for the other members: %w", err)
	}
	r.acceptor = newAcceptor(listener, descriptors{connections: routeConnections, halfOpen: routeHalfOpen, unaccepted: 1}, nil, r.log)
	r.acceptor.members = true
	r.acceptor.serve = r.serve
	r.acceptor.leave = func(uint64) {}
	return nil
}

// RemoteAddr implements net.Conn. The server wants an address of TCP here.
func (e *routeEnd) RemoteAddr() net.Addr {
	if e.arrival != nil {
		return e.arrival.Conn.RemoteAddr()
	}
	return e.Conn.RemoteAddr()
}

// Read implements net.Conn. It keeps the first bytes of a port that may not be that of a
// member.
func (e *routeEnd) Read(b []byte) (int, error) {
	n, err := e.Conn.Read(b)
	if missing := headSize - len(e.head); e.arrival == nil && missing > 0 {
		e.head = append(e.head, b[:min(n, missing)]...)
	}
	return n, err
}

// headSize is enough to tell a port of NATS clients from others.
const headSize = 5

// Close implements net.Conn.
func (e *routeEnd) Close() error {
	err := e.Conn.Close()
	e.once.Do(func() {
		e.routes.forget(e)
		close(e.gone)
	})
	return err
}

func (r *routes) forget(e *routeEnd) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.arrival != nil {
		delete(r.accepted, e.RemoteAddr())
	} else {
		delete(r.dialled, e.name)
	}
	e.closed = true
	if r.live[e] {
		delete(r.live, e)
		r.change()
	}
}

// change wakes those that wait for a change of live. The caller holds the lock.
func (r *routes) change() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// serve passes an accepted connection to the server.
func (r *routes) serve(a *arrival) {
	e := &routeEnd{Conn: a, arrival: a, routes: r, gone: make(chan struct{})}
	r.mu.Lock()
	r.accepted[e.RemoteAddr()] = e
	r.mu.Unlock()
	serveRoute(r.server, e, nil, server.Implicit, gossipDisabled, "")
}

// tls returns the configuration for both directions. TLS comes before anything else, so a peer
// that is not a member learns nothing.
func (r *routes) tls() *tls.Config {
	base := &tls.Config{
		Certificates: []tls.Certificate{r.opts.Certificate}, MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, // the rule decides by the key: names, dates and issuers do not count
		SessionTicketsDisabled: true,
	}
	both := base.Clone()
	both.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		e, ok := h.Conn.(*routeEnd)
		if !ok {
			return nil, errors.New("a connection that this member has not accepted")
		}
		if r.meetsItself(h.ServerName, e) {
			return nil, errSelf
		}
		one := base.Clone()
		one.VerifyConnection = func(s tls.ConnectionState) error { return r.judge(e, s) }
		return one, nil
	}
	// The server also dials by itself any address that another member reports for a further
	// member. Such a connection asks for that name, and is ended here.
	both.VerifyConnection = func(s tls.ConnectionState) error {
		e := r.dialledAs(s.ServerName)
		if e == nil {
			return errors.New("only configured members are dialled")
		}
		return r.judge(e, s)
	}
	return both
}

func (r *routes) dialledAs(name string) *routeEnd {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dialled[name]
}

// meetsItself reports whether an incoming connection was dialled by this member itself. The name goes
// over the network in clear text, so that it alone proves nothing: somebody who has seen it may ask for
// it, too. The connection must come from where the dialled one begins; of one that comes through another
// address the other end proves, in the rest of the handshake, that it has the key of this member.
func (r *routes) meetsItself(name string, accepted *routeEnd) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.dialled[name]
	if e == nil {
		return false
	}
	if e.LocalAddr().String() != accepted.RemoteAddr().String() {
		e.back, accepted.asked = true, true
		return false
	}
	e.err = errSelf
	return true
}

// showsOwn reports whether the other end may be this member itself: it shows the certificate of this
// member, and the name that one end asks for has come to this member. Of a dialled connection that is
// recorded; whether the other end has the key is known when the handshake is finished.
func (r *routes) showsOwn(e *routeEnd, shown *x509.Certificate) bool {
	if shown == nil || !bytes.Equal(shown.Raw, r.opts.Certificate.Certificate[0]) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e.own = e.back
	return e.own || e.asked
}

// judge decides about the other end during the handshake, by its certificate. TLS calls it before the
// other end has proved that it has the key of that certificate, and anyone can have the certificate of
// a member, since each shows it to whoever connects. So this changes nothing but the connection itself;
// it becomes a route of that member in take.
func (r *routes) judge(e *routeEnd, s tls.ConnectionState) error {
	var shown *x509.Certificate
	if len(s.PeerCertificates) > 0 {
		shown = s.PeerCertificates[0]
	}
	switch own := r.showsOwn(e, shown); {
	case own && e.arrival == nil:
		return nil // dial ends it
	case own:
		return errSelf // dial notes it
	}
	m, err := r.opts.Rule.Judge(shown)
	r.mu.Lock()
	if err == nil {
		err = r.twin(m)
	}
	if err == nil {
		e.member, e.judged = m, true
	}
	r.mu.Unlock()
	if err != nil {
		r.refuse(e, err)
	}
	return err
}

// refuse records, and logs, why the other end is no member.
func (r *routes) refuse(e *routeEnd, err error) {
	r.mu.Lock()
	if e.err == nil {
		e.err = err
	}
	r.mu.Unlock()
	if e.arrival != nil {
		r.refused(e.arrival.host, append([]any{"remote", e.RemoteAddr().String(), "err", err}, hintOf(err)...)...)
	}
}

// twin refuses a member that has the name of another one with a live route. The caller holds the lock.
func (r *routes) twin(m member.Member) error {
	for e := range r.live {
		if err := m.Beside(e.member); err != nil {
			return err
		}
	}
	return nil
}

// take makes a connection whose handshake is finished a route of its member; of too many, the oldest
// one is closed. It returns an error if another member has got that name meanwhile.
func (r *routes) take(e *routeEnd) error {
	r.mu.Lock()
	err := r.twin(e.member)
	var oldest *routeEnd
	if err == nil {
		oldest = r.add(e)
	}
	r.mu.Unlock()
	if oldest != nil {
		oldest.Close()
	}
	return err
}

// add adds a live route. If the member has too many, it returns the oldest one. The caller holds the
// lock.
func (r *routes) add(e *routeEnd) (oldest *routeEnd) {
	r.n++
	e.number = r.n
	if e.closed { // between its handshake and now
		return nil
	}
	r.live[e] = true
	r.change()
	count := 0
	oldest = e
	for other := range r.live {
		if other.member.Key != e.member.Key {
			continue
		}
		count++
		if other.number < oldest.number {
			oldest = other
		}
	}
	if count <= maxRoutes {
		return nil
	}
	return oldest
}

// Check implements server.Authentication, for incoming routes.
func (r *routes) Check(c server.ClientAuthentication) bool {
	if c.Kind() != server.ROUTER {
		return false
	}
	r.mu.Lock()
	e := r.accepted[c.RemoteAddress()]
	first := e != nil && e.judged && !e.entered
	if first {
		e.entered = true
	}
	r.mu.Unlock()
	if !first || !r.acceptor.letIn(e.arrival, false) {
		return false
	}
	err := r.take(e)
	if err != nil {
		r.refuse(e, err)
	}
	return err == nil
}

// cutEvery is how often the list of removed members is read: a removed member keeps its routes
// for up to that time.
const cutEvery = 250 * time.Millisecond

// watch cuts removed members, and reports when the others are not reached. A route that only
// changes its connection is missing for a moment.
func (r *routes) watch(ctx context.Context) {
	missed := 0
	tick := time.NewTicker(cutEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.cut()
		}
		err := r.minority()
		if missed++; err == nil {
			missed = 0
		}
		if err == nil || missed > 1 {
			r.majority(err)
		}
	}
}

// cut ends the routes of removed members. All else in the certificates was judged when they came.
func (r *routes) cut() {
	if r.opts.Rule.Removed == nil {
		return
	}
	removed, unread := r.opts.Rule.Removed()
	r.mu.Lock()
	stay := r.unread.Short(unread)
	all := make(map[*routeEnd]member.Member, len(r.live))
	for e := range r.live {
		all[e] = e.member
	}
	r.mu.Unlock()
	if unread != nil {
		r.throttle.Log(r.log, slog.LevelError, "unread", 1, "the list of removed members cannot be read: no new route is accepted, and soon all are cut", "err", unread)
	}
	if stay {
		return
	}
	for e, m := range all {
		if err := cmp.Or(unread, m.NotIn(removed)); err != nil {
			r.log.Warn("a route was cut", "remote", e.RemoteAddr().String(), "err", err)
			e.Close()
		}
	}
}

// linked reports whether there is a route to the member with this key, and returns a channel
// that is closed when that may have changed.
func (r *routes) linked(key pki.PublicKey) (bool, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for e := range r.live {
		if e.member.Key == key {
			return true, r.changed
		}
	}
	return false, r.changed
}

func (r *routes) members() []member.Member {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []member.Member
	for e := range r.live {
		if !slices.ContainsFunc(list, func(m member.Member) bool { return m.Key == e.member.Key }) {
			list = append(list, e.member)
		}
	}
	slices.SortFunc(list, func(a, b member.Member) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (r *routes) states() []PeerState {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []PeerState
	for _, peer := range r.opts.Peers {
		p := *r.peers[peer]
		for e := range r.live {
			p.Linked = p.Linked || e.member.Name == p.Name
		}
		if p.Linked {
			p.Err = nil
		}
		list = append(list, p)
	}
	return list
}

// start dials the other members until stop.
func (r *routes) start() {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.wg.Go(func() { r.watch(ctx) })
	for _, peer := range r.opts.Peers {
		r.wg.Go(func() { r.keep(ctx, peer) })
	}
}

// stop ends all routes. When it returns, nothing of it runs.
func (r *routes) stop() {
	if r.cancel != nil {
		r.cancel()
	}
	if r.acceptor != nil {
		r.acceptor.stop()
	}
	r.mu.Lock()
	all := make([]*routeEnd, 0, len(r.dialled))
	for _, e := range r.dialled {
		all = append(all, e)
	}
	r.mu.Unlock()
	for _, e := range all {
		e.Close()
	}
	r.wg.Wait()
}

// newName returns a name to ask for in a handshake, which exists nowhere and cannot be guessed.
func newName() string { return strings.ToLower(rand.Text()) + ".invalid" }
