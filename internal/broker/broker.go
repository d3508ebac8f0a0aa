package broker

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/blockfile"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/socket"
)

// Limits for each connection; MaxPerKey is for each key.
const (
	maxPayload = 1 << 20 // bytes of one message; larger ones travel in pieces
	// maxPending is how many bytes may wait for one slow reader before it is cut off. At three
	// quarters of it the server makes whoever sends to that reader wait a moment for each
	// message, and for most messages that is the daemon, and so everybody. That is above what
	// the daemon sends to one principal that reads nothing: 49 MiB of answers (see maxSent and
	// maxEnds of package rpc) and some 15 MiB of refusals, which are 5,000 in each of the ten
	// seconds of WriteDeadline.
	maxPending = 96 << 20
	// ownPending is the same for the daemon's own connection, and means no limit: with one,
	// whoever sent enough would have the daemon cut off as a slow consumer of its own server.
	// What waits for the daemon is bounded where it is read from the network (see meter), or
	// the daemon has asked for it.
	ownPending     = 1 << 50
	maxControlLine = 4 << 10          // bytes of one protocol line
	maxSubs        = 144              // subscriptions of one connection: one for each request that may be under way (rpc), and a few
	maxSubTokens   = 7                // tokens of a subscription, as many as those of a link have: each costs some 400 bytes in the subject table
	authTimeout    = 5 * time.Second  // TLS and CONNECT must be done by then
	usualPing      = 20 * time.Second // where Options do not say
	maxPings       = 2
	// MaxPerKey is how many connections one key may have: the daemon, its predecessor whose end
	// was not noticed yet, and several salt-call at once.
	MaxPerKey = 32
	// maxPerUser is how many connections one user may have: an ordinary user of the local
	// socket, which is open to all (see localUsers for all of them together); a remote user; a program that logs others in.
	maxPerUser = 256
	// maxStore means no limit: the streams have bounds of their own (event_max_bytes). The
	// server's default would be three quarters of the disk space that is free now, and it would
	// not open a stream that may grow beyond that: a master would not start on a disk that is
	// large enough for a long time.
	maxStore = 1 << 50
)

// The one account for traffic, and the server's own.
const (
	account = "SALT"
	system  = "SYS"
)

// Peer is who connects: over TLS with a certificate, or over the local socket with the kernel's
// credentials.
type Peer struct {
	Remote string
	Host   string               // its IPv4 address or its IPv6 /64 network, for limits for each host
	Caller bool                 // it says that it is salt-call and wants no jobs
	TLS    *tls.ConnectionState // nil for local peers
	Local  socket.Peer          // for local peers
	Nonce  string               // chosen by the peer for its inbox
	Sudo   string               // the user behind sudo that a local peer claims; not checked
}

// Nobody admits nobody, for a broker that only its own process uses.
func Nobody(Peer) bus.Identity { return bus.Identity{} }

// Sync says when stored messages are synced to the disk.
type Sync int

// SyncSoon is within about a second, SyncAlways before the message is acknowledged.
const (
	SyncSoon Sync = iota
	SyncAlways
)

// Options are what a daemon gives its broker. Log is required.
type Options struct {
	Name     string
	Listen   string      // host:port; "" for no listener at all
	TLS      *tls.Config // required with Listen
	StoreDir string      // the folder of the JetStream file store; "" for none
	Sync     Sync        // when stored messages are synced to the disk
	// Ping is how often a silent connection is pinged. One that does not answer ends after
	// three to four pings. 0 is for local peers, whose end the kernel reports.
	Ping time.Duration
	// Admit says who a peer is. An identity without a role is refused. It is called from many
	// goroutines at once.
	Admit func(Peer) bus.Identity
	// Context is that of the daemon. Once it has ended, local peers that Admit refuses get no
	// refusal: their connection just ends, and they may try again. nil never ends.
	Context context.Context
	// BringsOthers says whose key may have as many connections as a local user: that of a
	// program that logs others in. nil is nobody.
	BringsOthers func(bus.Identity) bool
	// AccountBringsOthers says the same of an account of this machine: its connections do not count for those
	// of all ordinary users together. It is asked for each local connection, and answers at once. nil is none.
	AccountBringsOthers func(uid uint32) bool
	// Gone is called after the end of every connection that was admitted.
	Gone func(bus.Identity)
	// Ready, where it is not nil, is closed when connections may be accepted. Until then they
	// wait in the kernel, where they cost nothing.
	Ready <-chan struct{}
	Log   *slog.Logger
	Link  *LinkOptions // for other masters that mirror the journal; nil for none
	// Cluster makes it a member of a cluster, with a store that the members have in common; nil
	// for one alone.
	Cluster *ClusterOptions
	// Stuck is how long the store of a member may give no answer at all before the daemon ends; 0 is a minute.
	Stuck time.Duration
	// Endpoints are the requests that the daemon answers: connections may send these and no
	// others.
	Endpoints bus.Endpoints
}

// Broker is a running embedded server.
type Broker struct {
	Links   *Links   // nil if nobody may mirror the journal
	Cluster *Cluster // nil if it is not in a cluster
	Minions *Minions // the connections of minions
	Cut     *Cuts    // ends some

	opts     Options
	server   *server.Server
	auth     *authenticator
	health   *Health
	nc       *nats.Conn  // the daemon's own connection
	own      *loopDaemon // the daemon's end of it in this process
	meter    *meter
	failed   chan error // a part of the broker has failed
	quit     chan struct{}
	stopping sync.Once
	ends     chan struct{} // signals that ended is not empty
	mu       sync.Mutex
	ended    []bus.Identity // connections for which Gone is still to be called
	locals   []net.Listener
	users    *localUsers // connections of the local socket
	stateMu  sync.Mutex
	state    *blockfile.State // state of the store, while it is open
	lost     []blockfile.Lost // losses found when it was opened
	losses   losses
	// unchecked means that the store was written again after a failed sync, and not checked since. Only
	// heal uses it.
	unchecked bool
	wg        sync.WaitGroup
}

// Start opens the listener and the store and returns when the server answers.
// A port in use is an error that wraps syscall.EADDRINUSE.
func Start(o Options) (*Broker, error) {
	if err := errors.Join(o.Endpoints.Fault(), readersKnown()); err != nil {
		return nil, err
	}
	g := newAuthenticator(o)
	listener, err := listen(o)
	if err != nil {
		return nil, err
	}
	if g.routes, err = newRoutes(o, g.refused); err != nil {
		closeAll(listener, g.routes)
		return nil, err
	}
	s, so, err := newServer(o, g, listener)
	if err != nil {
		closeAll(listener, g.routes)
		return nil, err
	}
	fatal := make(chan string, 1)
	b := &Broker{opts: o, server: s, auth: g, health: newHealth(o), meter: g.meter, failed: make(chan error, 1), quit: make(chan struct{}), ends: make(chan struct{}, 1)}
	b.Minions, b.Cut = minionsOf(b), cutsOf(b)
	log := o.Log
	if listener == nil {
		log = slog.New(slog.DiscardHandler) // it would be about the network
	}
	apart := 0
	if o.AccountBringsOthers != nil {
		apart = maxPerUser
	}
	limits := openFiles(log, apart)
	b.users = newLocalUsers(limits, o.AccountBringsOthers)
	if listener != nil {
		g.acceptor = newAcceptor(listener, limits, g.meter, o.Log)
		g.acceptor.serve = func(a *arrival) { serveClient(s, a, false) }
		g.acceptor.leave = b.left
	}
	s.SetLoggerV2(&serverLog{log: o.Log.With("part", "bus"), fatal: fatal, health: b.health}, false, false, false)
	if g.link != nil {
		if err := g.link.listen(s, o.Log); err != nil {
			b.Stop()
			return nil, err
		}
		b.Links = &Links{b}
	}
	if g.routes != nil {
		g.routes.server, g.routes.majority = s, b.health.majority
		b.health.ends = b.Fail
		b.Cluster = &Cluster{b, g.routes}
	}
	for _, p := range g.acceptors() {
		p.turns = g.acceptors()[0].turns // the processors are the same for all ports
	}
	if err := b.open(so, fatal); err != nil {
		b.Stop()
		return nil, err
	}
	return b, nil
}

// closeAll closes the ports of a broker that does not start.
func closeAll(listener net.Listener, r *routes) {
	if listener != nil {
		listener.Close()
	}
	if r != nil {
		r.stop()
	}
}

// newServer makes the server; it does not run yet.
func newServer(o Options, g *authenticator, listener net.Listener) (*server.Server, *server.Options, error) {
	so, err := serverOptions(o, g, listener)
	if err != nil {
		return nil, nil, err
	}
	if o.StoreDir != "" {
		if err := os.MkdirAll(o.StoreDir, 0o700); err != nil {
			return nil, nil, fmt.Errorf("make the journal's folder: %w", err)
		}
	}
	s, err := server.NewServer(so)
	if err != nil {
		return nil, nil, fmt.Errorf("start the bus: %w", err)
	}
	if g.account, err = s.LookupAccount(account); err != nil {
		return nil, nil, fmt.Errorf("start the bus: %w", err)
	}
	if g.routes != nil {
		if err := introduceRoutes(s, so); err != nil {
			return nil, nil, fmt.Errorf("start the bus: %w", err)
		}
	}
	if g.link != nil {
		err := introduceLinks(s)
		if err == nil {
			err = g.link.bind(s, g.account)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("start the bus: %w", err)
		}
	}
	return s, so, nil
}

// listen takes the port; nil if there is to be none. Connections wait in the kernel.
func listen(o Options) (net.Listener, error) {
	if o.Listen == "" {
		return nil, nil
	}
	if o.TLS == nil {
		return nil, errors.New("a broker with a listener needs TLS")
	}
	c := net.ListenConfig{KeepAlive: -1} // the server pings silent peers
	l, err := c.Listen(context.Background(), "tcp", o.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		err = salt.WithHint(err, "another program has the port, perhaps a second master: stop it, or set ret_port")
	}
	return l, err
}

func serverOptions(o Options, g *authenticator, listener net.Listener) (*server.Options, error) {
	so := &server.Options{
		ServerName: o.Name, DontListen: true, NoSigs: true, NoLog: true,
		MaxPayload: maxPayload, MaxPending: ownPending, MaxControlLine: maxControlLine, MaxSubs: maxSubs, MaxSubTokens: maxSubTokens,
		AuthTimeout: authTimeout.Seconds(), TLSTimeout: authTimeout.Seconds(), PingInterval: cmp.Or(o.Ping, usualPing), MaxPingsOut: maxPings,
		JetStream: o.StoreDir != "", StoreDir: o.StoreDir, DisableJetStreamBanner: true,
		NoSublistCache: true, // it holds a thousand subjects, and each minion and each answer has its own: they only push each other out
		Accounts:       []*server.Account{server.NewAccount(account), server.NewAccount(system)}, SystemAccount: system,
		CustomClientAuthentication: g, AlwaysEnableNonce: false, MaxClosedClients: 100,
		JetStreamMaxStore: maxStore,
		MaxConn:           1 << 20, // the operating system's limit on open files comes first
		WriteDeadline:     10 * time.Second, DisableShortFirstPing: true,
	}
	so.Cluster.NoAdvertise = true
	if g.link != nil {
		g.link.options(so)
	}
	if g.routes != nil {
		g.routes.options(so)
	}
	if listener == nil {
		return so, nil
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return nil, err
	}
	if so.Host, _, err = net.SplitHostPort(o.Listen); err != nil { // what its greeting says
		return nil, err
	}
	if so.Port, err = strconv.Atoi(port); err != nil {
		return nil, err
	}
	so.TLSConfig = serverTLS(o.TLS)
	so.TLS = true
	return so, nil
}

// serverTLS asks for a certificate and accepts any: Admit decides by the key.
func serverTLS(c *tls.Config) *tls.Config {
	c = c.Clone()
	c.MinVersion = tls.VersionTLS13
	c.ClientAuth = tls.RequireAnyClientCert
	c.SessionTicketsDisabled = true // each connection proves its key again; none of our clients keeps a ticket
	return c
}

// checkStore tries whether the store can be written, since the server's own message for a full
// disk or a closed directory leaves out the cause.
func (b *Broker) checkStore() error {
	const size = 64 << 10 // the first block and the description of each stream
	if b.opts.StoreDir == "" {
		return nil
	}
	err := os.MkdirAll(b.opts.StoreDir, 0o700)
	if err != nil {
		return fmt.Errorf("make the folder of the journal: %w", err)
	}
	f, err := os.CreateTemp(b.opts.StoreDir, ".room")
	if err == nil {
		_, err = f.Write(make([]byte, size))
		err = errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	if err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	return nil
}

func (b *Broker) open(so *server.Options, fatal <-chan string) error {
	if err := b.checkStore(); err != nil {
		return err
	}
	if err := b.recoverStore(); err != nil {
		return err
	}
	if b.auth.routes == nil {
		b.server.Start()
	} else if err := b.auth.routes.startServer(b.server, so); err != nil {
		return err
	}
	if err := b.ready(fatal); err != nil {
		return err
	}
	if b.opts.StoreDir != "" {
		if err := b.auth.account.EnableJetStream(nil, nil); err != nil {
			return fmt.Errorf("open the journal in %s: %w", b.opts.StoreDir, err)
		}
	}
	var err error
	if b.nc, err = b.internal(b.auth.daemon); err != nil {
		return err
	}
	b.wg.Go(b.heal)
	b.wg.Go(b.keepSynced)
	switch {
	case b.opts.StoreDir == "":
	case b.opts.Cluster == nil:
		b.wg.Go(b.learnStore)
	default:
		b.wg.Go(b.watchStreams)
	}
	limitReaders(b.server, so)
	b.wg.Go(b.tellGone)
	for _, p := range b.auth.acceptors() {
		p.wg.Go(func() {
			if p.members || b.isReady() {
				p.accept()
			}
		})
	}
	if b.auth.routes != nil {
		b.auth.routes.start()
	}
	return nil
}

// isReady waits until connections may be accepted; it is false if the broker stops before.
func (b *Broker) isReady() bool {
	if b.opts.Ready == nil {
		return true
	}
	select {
	case <-b.opts.Ready:
		return true
	case <-b.quit:
		return false
	}
}

// ready waits until the server accepts connections. Its own ReadyForConnections polls every 25
// ms, which is longer than the start takes.
func (b *Broker) ready(fatal <-chan string) error {
	deadline := time.Now().Add(30 * time.Second)
	for !b.started() {
		select {
		case why := <-fatal:
			return fmt.Errorf("start the bus: %s", why)
		case <-time.After(200 * time.Microsecond):
		}
		if time.Now().After(deadline) {
			return errors.New("start the bus: it is not ready after 30 s")
		}
	}
	select {
	case why := <-fatal:
		return fmt.Errorf("start the bus: %s", why)
	default:
		return nil
	}
}

func (b *Broker) started() bool {
	if b.opts.StoreDir != "" && !b.server.JetStreamEnabled() {
		return false
	}
	return b.server.Running()
}

// internal connects the daemon to its own server, within the process.
func (b *Broker) internal(secret string) (*nats.Conn, error) {
	nc, err := nats.Connect("nats://self", nats.InProcessServer(loopMaker{b.server, &b.wg, &b.own}), nats.UserInfo(secret, ""), nats.Name(b.opts.Name),
		nats.SkipHostLookup(), nats.NoReconnect(), nats.CustomInboxPrefix("_INBOX.master"), nats.Timeout(10*time.Second),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			if errors.Is(err, nats.ErrSlowConsumer) {
				// Our subscriptions have no limit, so it is a reader of the journal in the
				// client library: after a pause of the whole daemon it may have asked twice. It
				// notices the gap and reads it again.
				b.opts.Log.Debug("a reader of the journal got more than its buffer holds, and reads it again", "subject", subject)
				return
			}
			b.opts.Log.Error("the daemon's own connection", "subject", subject, "err", err)
		}),
		nats.ClosedHandler(func(nc *nats.Conn) {
			err := errors.New("the daemon's own connection has ended")
			if why := nc.LastError(); why != nil {
				err = fmt.Errorf("%w: %w", err, why)
			}
			b.Fail(err)
		}))
	if err != nil {
		return nil, fmt.Errorf("connect to the own bus: %w", err)
	}
	return nc, nil
}

// Store reports whether the journal's disk can be written; it implements journal.Store.
func (b *Broker) Store() *Health { return b.health }

// Conn is the daemon's own connection.
func (b *Broker) Conn() *nats.Conn { return b.nc }

// Addr is the listen address, nil without a listener.
func (b *Broker) Addr() net.Addr {
	if b.auth.acceptor == nil {
		return nil
	}
	return b.auth.acceptor.listener.Addr()
}

// Owner returns the identity of the living connection with this inbox prefix.
func (b *Broker) Owner(inbox string) (bus.Identity, bool) { return b.auth.owner(inbox) }

// Unread returns a function that says how many bytes wait for the living connection with an
// inbox prefix, since it has not read them; 0 if there is no such connection.
func Unread(b *Broker) func(inbox string) int64 {
	return func(inbox string) int64 {
		cid, ok := b.auth.connection(inbox)
		if !ok {
			return 0
		}
		return pending(b.server, cid)
	}
}

// Holds reports whether a connection with this key exists.
func (b *Broker) Holds(token string) bool { return b.auth.holds(token) }

// Connections calls f for every admitted connection, with a function that cuts it.
func (b *Broker) Connections(f func(i bus.Identity, cut func())) {
	b.ConnectionsOf(nil, f)
}

// ConnectionsOf is like Connections, for those that match accepts; nil accepts all. match is
// called under a lock.
func (b *Broker) ConnectionsOf(match func(bus.Identity) bool, f func(i bus.Identity, cut func())) {
	eachConnection(b, b.auth.all(match), f)
}

func eachConnection(b *Broker, found map[uint64]bus.Identity, f func(i bus.Identity, cut func())) {
	for id, i := range found {
		f(i, func() { cutConnection(b, id, i) })
	}
}

func cutConnection(b *Broker, cid uint64, i bus.Identity) {
	if err := b.server.DisconnectClientByID(cid); err != nil {
		b.opts.Log.Debug("connection was gone already", "peer", i.String())
	}
	b.left(cid)
}

// left is called for each connection that has ended. It never blocks: the server calls it with
// its locks held.
func (b *Broker) left(cid uint64) {
	i, ok := b.auth.leave(cid)
	if !ok || b.opts.Gone == nil {
		return
	}
	b.mu.Lock()
	b.ended = append(b.ended, i)
	b.mu.Unlock()
	select {
	case b.ends <- struct{}{}:
	default:
	}
}

// tellGone calls Gone for connections that have ended, until the broker stops.
func (b *Broker) tellGone() {
	for {
		select {
		case <-b.ends:
		case <-b.quit:
			return
		}
		b.mu.Lock()
		ended := b.ended
		b.ended = nil
		b.mu.Unlock()
		for _, i := range ended {
			b.opts.Log.Debug("connection ended", "peer", i.String())
			b.opts.Gone(i)
		}
	}
}

// Stop closes every connection and the store. When it returns, nothing of the broker runs.
func (b *Broker) Stop() {
	b.stopping.Do(func() { close(b.quit) })
	b.health.stop()
	for _, p := range b.auth.acceptors() {
		if !p.members { // the server uses those to hand over the groups that it leads
			p.stop()
		}
	}
	b.mu.Lock()
	for _, l := range b.locals {
		l.Close()
	}
	b.mu.Unlock()
	if b.nc != nil {
		b.nc.Close()
	}
	b.shutDown()
	b.leaveStore()
}

// secret returns a random text that cannot be guessed.
func secret() string { return rand.Text() + rand.Text() }
