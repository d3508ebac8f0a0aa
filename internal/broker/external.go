package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/pki"
)

// ExternalOptions are for NATS servers that others run. All but Version, and one of Fingers and CAFile, are required.
type ExternalOptions struct {
	Servers     []string // host:port
	Fingers     []string // SHA-256 of the certificates that are trusted, see pki.ServerPins
	CAFile      string   // authorities of these certificates; one of the two is required
	Credentials *Credentials
	Name        string
	// Admit says who a peer is, as for a Broker. Peer.TLS has the certificate that the peer has
	// sent and proved to have the key of; it is not that of the connection to the server.
	Admit func(Peer) bus.Identity
	// Version refuses peers without a common protocol; nil refuses none.
	Version   func(tls.ConnectionState) error
	Gone      func(bus.Identity) // called after the end of every connection that was admitted
	Fail      func(error)        // called when a connection to the servers has ended for good: the daemon must end
	Endpoints bus.Endpoints      // the requests that peers may send
	// Journal makes a fourth connection, for a journal in the JetStream of the servers. Remote.Claim
	// is then called before Serve.
	Journal bool
	Log     *slog.Logger
}

// External is the bus on NATS servers that others run: minions connect there instead of to the
// daemon, which is a client itself. The servers ask it about each connection. It takes part
// with three users: one in the account of the minions, one that answers the servers, and one
// that sees and ends the connections of that account; a fourth one is for a journal there.
//
// What counts is what this process has admitted. A connection that it does not know, for
// example of its predecessor, is ended and has to be made again.
type External struct {
	Minions *Minions // their connections
	Cut     *Cuts    // ends some

	opts   ExternalOptions
	tls    *tls.Config
	rights bus.Rights
	log    *slog.Logger

	traffic, answerer, watcher *nats.Conn
	store                      *nats.Conn // nil without a journal there
	remote                     *Remote    // the same

	reach       time.Duration // reachTime
	tellEvery   time.Duration // the constant
	vacantAfter time.Duration // the constant
	page        int           // connzPage
	held        string        // the claim of Claim, "" without one

	throttle   logging.Throttle
	distrusted pki.Refused // certificates of servers
	reaching   reaching
	other      atomic.Bool   // another master has said that it is at work, as of the last question
	met        chan struct{} // the user of the system account is connected to a server
	callouts   *calloutQueue // questions of the servers
	look       chan struct{} // connections are to be compared with those of the servers
	gone       chan struct{} // signals that ended is not empty
	stop       chan struct{}
	stopping   sync.Once
	wg         sync.WaitGroup

	mu      sync.Mutex
	serving bool
	in      map[place]*guest
	inboxes map[string]place
	minions minions[place]
	perKey  keys[place]
	servers map[string]time.Time // by id: when each was last heard of
	ended   []bus.Identity
}

// place is where a connection is: the id of a server, and its number there.
type place struct {
	server string
	cid    uint64
}

// guest is a connection that was admitted.
type guest struct {
	bus.Identity
	since time.Time
}

// Limits of what is done for servers that others run.
const (
	// maxAnswering questions of servers are answered at once, and maxAsked wait.
	maxAnswering = 16
	maxAsked     = 4096
	// maxExternalPending is how much may wait in this process between the connection and the
	// server of requests, which normally takes microseconds.
	maxExternalPending = 256 << 20
	externalTimeout    = 5 * time.Second // for each step of a connection, and each request to a server
	externalPing       = 5 * time.Second
	externalWait       = 500 * time.Millisecond // between two attempts to connect
)

// NewExternal begins to connect, and goes on in the background until Close. Nothing is admitted
// before Serve.
func NewExternal(o ExternalOptions) (*External, error) {
	if err := o.Endpoints.Fault(); err != nil {
		return nil, err
	}
	x := &External{
		opts: o, rights: o.Endpoints.Rights(), log: o.Log.With("part", "nats"), look: make(chan struct{}, 1), met: make(chan struct{}, 1),
		gone: make(chan struct{}, 1), stop: make(chan struct{}), reach: reachTime, tellEvery: tellEvery, vacantAfter: vacantAfter, page: connzPage, in: map[place]*guest{}, inboxes: map[string]place{}, minions: newMinions[place](), perKey: keys[place]{}, servers: map[string]time.Time{},
	}
	x.Minions, x.Cut, x.callouts = minionsOfExternal(x), cutsOfExternal(x), newCalloutQueue(x)
	var err error
	if x.tls, err = (pki.ServerPins{Fingers: o.Fingers, CAFile: o.CAFile}).TLS(); err != nil {
		return nil, err
	}
	type user struct {
		name string
		key  nkeys.KeyPair
		to   **nats.Conn
		more []nats.Option
	}
	c := o.Credentials
	users := []user{{"minions", c.traffic, &x.traffic, nil}, {"logins", c.answerer, &x.answerer, nil}, {systemUser, c.watcher, &x.watcher, nil}}
	if o.Journal {
		x.remote = newRemote(x)
		users = append(users, user{"journal", c.store, &x.store, []nats.Option{nats.SetCustomDialer(x.remote)}})
	}
	for _, k := range users {
		nc, err := x.connect(k.name, k.key, k.more...)
		if err != nil {
			x.Close()
			return nil, fmt.Errorf("connect to nats_servers: %w", err)
		}
		*k.to = nc
	}
	x.wg.Go(func() { watchReach(x) })
	return x, nil
}

// connect makes one connection, which is made again for ever. Nothing is kept for a time without
// a connection: it could be half of a message.
func (x *External) connect(what string, key nkeys.KeyPair, more ...nats.Option) (*nats.Conn, error) {
	var urls string
	for _, s := range x.opts.Servers {
		if urls != "" {
			urls += ","
		}
		urls += "tls://" + s
	}
	a := x.reaching.add(what)
	changed := func(text string) nats.ConnHandler {
		return func(nc *nats.Conn) {
			x.log.Info(text, "as", what, "server", nc.ConnectedAddr())
			x.wake()
			switch what {
			case systemUser: // whether it is of use is not known yet
				select {
				case x.met <- struct{}{}:
				default:
				}
				return
			case "journal":
				x.remote.connected()
			}
			x.reaching.connected(a)
		}
	}
	if len(more) == 0 {
		more = trusting(x)
	} else { // a dialer of its own
		more = append(more, nats.Secure(x.tls))
	}
	nc, err := nats.Connect(urls, append(more, nats.Nkey(public(key), key.Sign), nats.Name(x.opts.Name+" "+what),
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(externalWait), nats.ReconnectJitter(externalWait, externalWait), nats.ReconnectBufSize(-1),
		nats.IgnoreAuthErrorAbort(), nats.IgnoreDiscoveredServers(), nats.Timeout(externalTimeout), nats.PingInterval(externalPing), nats.MaxPingsOutstanding(1),
		nats.CustomInboxPrefix("_INBOX.master"),
		nats.ConnectHandler(changed("connected to a NATS server")), nats.ReconnectHandler(changed("connected to a NATS server again")),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			if nc.IsClosed() {
				return
			}
			x.reaching.lost(a, err)
			x.log.Warn("the connection to the NATS servers was lost", "as", what, "err", err)
			if what == "minions" {
				x.dropAll() // what was under way may be lost in part, so it must begin anew
			}
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { x.reaching.failed(a, err) }),
		nats.ClosedHandler(func(nc *nats.Conn) { x.closed(what, nc.LastError()) }),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) { x.failed(what, sub, err) }))...)
	if err == nil {
		x.reaching.made(a, nc)
	}
	return nc, err
}

// closed handles the end of a connection that is not made again: the client library gives up
// after an error of a server that it does not know, such as that a message was too long.
func (x *External) closed(what string, why error) {
	select {
	case <-x.stop:
		return
	default:
	}
	err := fmt.Errorf("the connection to the NATS servers as %s has ended", what)
	if why != nil {
		err = fmt.Errorf("%w: %w", err, why)
	}
	x.opts.Fail(err)
}

// failed handles an error of a connection that goes on.
func (x *External) failed(what string, sub *nats.Subscription, err error) {
	subject := ""
	if sub != nil {
		subject = sub.Subject
	}
	x.throttle.Log(x.log, slog.LevelError, "failed "+what, 10, "the connection to the NATS servers", "as", what, "subject", subject, "err", err)
	if errors.Is(err, nats.ErrSlowConsumer) && what == "minions" {
		x.dropAll() // messages were dropped, perhaps pieces of larger ones
		x.wake()
	}
}

// Conn is the connection in the account of the minions.
func (x *External) Conn() *nats.Conn { return x.traffic }

// Pending is the limit for what waits in a subscription of Conn.
func (x *External) Pending() int { return maxExternalPending }

// Serve admits connections until ctx ends, whenever no other master does. begin is called once,
// before the first one is admitted.
//
// After Claim, the journal decides who is at work, see journal.Turn: whoever has lost it ends.
func (x *External) Serve(ctx context.Context, begin func() error) error {
	x.wg.Go(x.tellGone)
	for range maxAnswering {
		x.wg.Go(x.asked)
	}
	if x.held != "" {
		if err := begin(); err != nil {
			return err
		}
		return x.work(ctx)
	}
	v, end, err := x.listen()
	if err != nil {
		return err
	}
	defer end()
	for begun := false; v.await(ctx); begun = true {
		if !begun {
			if err := begin(); err != nil {
				return err
			}
		}
		if err := x.work(ctx); err != nil {
			return err
		}
	}
	return nil
}

// subscribe hears the questions of the servers, and what becomes of connections. Others hear of
// claim, unless it is held already.
func (x *External) subscribe(claim string) (subs []*nats.Subscription, err error) {
	if claim != x.held {
		sub, err := x.announce(claim)
		if err != nil {
			return nil, err
		}
		subs = append(subs, sub)
	}
	for _, s := range []struct {
		nc      *nats.Conn
		subject string
		f       nats.MsgHandler
	}{
		{x.watcher, "$SYS.ACCOUNT." + ExternalAccount + ".DISCONNECT", x.disconnected},
		{x.watcher, "$SYS.SERVER.*.STATSZ", x.alive},
		{x.answerer, authSubject, x.callouts.add},
	} {
		sub, err := s.nc.Subscribe(s.subject, s.f)
		if err == nil {
			subs = append(subs, sub)
			err = sub.SetPendingLimits(maxAsked, -1)
		}
		if err != nil {
			return subs, fmt.Errorf("serve through NATS servers: %w", err)
		}
	}
	x.wake()
	return subs, nil
}

// Close ends the connections. Minions stay connected to the servers until another master, or
// this one again, ends their connections; they can do nothing meanwhile.
func (x *External) Close() {
	x.stopping.Do(func() { close(x.stop) })
	for _, nc := range []*nats.Conn{x.answerer, x.store, x.traffic, x.watcher} {
		if nc == nil {
			continue
		}
		if nc == x.traffic && x.held != "" {
			x.sayLeft()
		}
		nc.Close()
	}
	x.wg.Wait()
}

// wake has the connections compared with those of the servers now.
func (x *External) wake() {
	select {
	case x.look <- struct{}{}:
	default:
	}
}

// Owner returns the identity of the living connection with this inbox prefix.
func (x *External) Owner(inbox string) (bus.Identity, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	p, ok := x.inboxes[inbox]
	if !ok {
		return bus.Identity{}, false
	}
	return x.in[p].Identity, true
}

// Holds reports whether a connection with this key exists.
func (x *External) Holds(token string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.perKey[token]) > 0
}

// ConnectionsOf calls f for every admitted connection that matches, with a function that cuts
// it; nil matches all. match is called under a lock.
func (x *External) ConnectionsOf(match func(bus.Identity) bool, f func(i bus.Identity, cut func())) {
	found := map[place]bus.Identity{}
	x.mu.Lock()
	for p, g := range x.in {
		if match == nil || match(g.Identity) {
			found[p] = g.Identity
		}
	}
	x.mu.Unlock()
	for p, i := range found {
		f(i, func() { x.cut(p) })
	}
}

// Figures adds the connections to those of a broker.
func (x *External) Figures(f Figures) Figures {
	x.ConnectionsOf(nil, func(i bus.Identity, _ func()) { f.Connections[i.Role]++ })
	return f
}

// enter registers a connection, before the server is told that it may go on.
func (x *External) enter(p place, i bus.Identity) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, again := x.in[p]
	_, taken := x.inboxes[i.Inbox()]
	switch {
	case !x.serving || !x.traffic.IsConnected() || !x.watcher.IsConnected() || x.reaching.isBlind():
		return errors.New("the master is not connected to the servers in all its parts")
	case again:
		return errors.New("a second CONNECT")
	case taken:
		return errors.New("its inbox belongs to another connection")
	case len(x.perKey[i.Key]) >= MaxPerKey:
		return fmt.Errorf("its key has %d connections already", MaxPerKey)
	}
	x.in[p] = &guest{i, time.Now()}
	x.inboxes[i.Inbox()] = p
	x.minions.add(i, p)
	x.perKey.add(i.Key, p)
	if _, known := x.servers[p.server]; !known {
		x.servers[p.server] = time.Now()
		x.wake()
	}
	return nil
}

// leave forgets connections, and has Gone called for each that was known.
func (x *External) leave(places ...place) {
	x.mu.Lock()
	for _, p := range places {
		g, ok := x.in[p]
		if !ok {
			continue
		}
		delete(x.in, p)
		delete(x.inboxes, g.Inbox())
		x.minions.remove(g.Identity, p)
		x.perKey.remove(g.Key, p)
		x.ended = append(x.ended, g.Identity)
	}
	x.mu.Unlock()
	select {
	case x.gone <- struct{}{}:
	default:
	}
}

// dropAll forgets every connection. Their ends follow when the servers are compared with what
// is known.
func (x *External) dropAll() {
	x.mu.Lock()
	var all []place
	for p := range x.in {
		all = append(all, p)
	}
	x.mu.Unlock()
	x.leave(all...)
}

// tellGone calls Gone for connections that have ended.
func (x *External) tellGone() {
	for {
		select {
		case <-x.gone:
		case <-x.stop:
			return
		}
		x.mu.Lock()
		ended := x.ended
		x.ended = nil
		x.mu.Unlock()
		for _, i := range ended {
			x.log.Debug("connection ended", "peer", i.String())
			x.opts.Gone(i)
		}
	}
}
