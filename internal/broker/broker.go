package broker

import (
	"cmp"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"brine/internal/bus"
	"brine/internal/salt"
	"brine/internal/socket"
)

// Limits against a peer that asks for too much. They hold for each connection;
// MaxPerKey for each key.
const (
	maxPayload     = 1 << 20          // bytes of one message; larger ones travel in pieces
	maxPending     = 64 << 20         // bytes waiting for one slow reader before it is cut off
	maxControlLine = 4 << 10          // bytes of one protocol line
	maxSubs        = 1000             // subscriptions of one connection; a minion has four
	maxSubTokens   = 16               // tokens of a subscription; ours have six
	authTimeout    = 5 * time.Second  // TLS and CONNECT must be done by then
	usualPing      = 20 * time.Second // where Options do not say
	maxPings       = 2
	// MaxPerKey is how many connections one key may have: the daemon, its
	// predecessor that has not noticed its end, and several salt-call at once.
	MaxPerKey = 32
	// maxStrangers is how many connections may wait for their keys to be accepted,
	// since anybody can make keys: a large fleet on its first day. What is beyond
	// tries again; minions with an accepted key do not count.
	maxStrangers = 10_000
	// maxPerUser is how many connections an ordinary user may have through the
	// local socket, which is open to all.
	maxPerUser = 256
	// maxStore is no limit: the streams have bounds of their own (event_max_bytes). The
	// server's would be three quarters of what is free now, and it would not open a
	// stream that may grow beyond: a master would not start on a disk that will do for
	// long.
	maxStore = 1 << 50
)

// The one account for traffic, and the server's own.
const (
	account = "SALT"
	system  = "SYS"
)

// Peer is who knocks: over TLS with a certificate, or over the local socket with
// the kernel's word.
type Peer struct {
	Remote string
	Caller bool                 // it says that it is salt-call and wants no jobs
	TLS    *tls.ConnectionState // nil for local peers
	Local  socket.Peer          // for local peers
	Sudo   string               // whom a local peer names as the user behind sudo; not checked
}

// Options are what a daemon gives its broker. Log is required.
type Options struct {
	Name       string
	Listen     string      // host:port; "" for no listener at all
	TLS        *tls.Config // required with Listen
	StoreDir   string      // the folder of the JetStream file store; "" for none
	SyncAlways bool        // sync each write of the store before it is acknowledged
	// Ping is how often a connection that is silent is tried out. One that does not
	// answer ends after three to four of them; 0 is for local peers, whose end the
	// kernel tells.
	Ping time.Duration
	// Admit says who a peer is. An identity without a role is refused. It is
	// called from many goroutines at once.
	Admit func(Peer) bus.Identity
	// Gone is told of the end of every connection that was admitted.
	Gone func(bus.Identity)
	Log  *slog.Logger
}

// Broker is a running embedded server.
type Broker struct {
	opts   Options
	server *server.Server
	gate   *gate
	health *Health
	nc     *nats.Conn // the daemon's own connection
	sys    *nats.Conn
	mu     sync.Mutex
	locals []net.Listener
	users  map[uint32]int // local connections, by uid
	wg     sync.WaitGroup
}

// Start opens the listener and the store and returns when the server answers.
// A port in use is an error that wraps syscall.EADDRINUSE.
func Start(o Options) (*Broker, error) {
	g, err := newGate(o)
	if err != nil {
		return nil, err
	}
	so, err := serverOptions(o, g)
	if err != nil {
		return nil, err
	}
	if o.StoreDir != "" {
		if err := os.MkdirAll(o.StoreDir, 0o700); err != nil {
			return nil, fmt.Errorf("make the journal's folder: %w", err)
		}
	}
	s, err := server.NewServer(so)
	if err != nil {
		return nil, fmt.Errorf("start the bus: %w", err)
	}
	fatal := make(chan string, 1)
	b := &Broker{opts: o, server: s, gate: g, users: map[uint32]int{}, health: newHealth()}
	s.SetLoggerV2(&serverLog{log: o.Log.With("part", "bus"), fatal: fatal, health: b.health}, false, false, false)
	g.account, err = s.LookupAccount(account)
	if err != nil {
		return nil, fmt.Errorf("start the bus: %w", err)
	}
	g.system, err = s.LookupAccount(system)
	if err != nil {
		return nil, fmt.Errorf("start the bus: %w", err)
	}
	if err := b.open(fatal); err != nil {
		b.Stop()
		return nil, err
	}
	return b, nil
}

func serverOptions(o Options, g *gate) (*server.Options, error) {
	so := &server.Options{
		ServerName: o.Name, DontListen: o.Listen == "", NoSigs: true, NoLog: true,
		MaxPayload: maxPayload, MaxPending: maxPending, MaxControlLine: maxControlLine, MaxSubs: maxSubs, MaxSubTokens: maxSubTokens,
		AuthTimeout: authTimeout.Seconds(), TLSTimeout: authTimeout.Seconds(), PingInterval: cmp.Or(o.Ping, usualPing), MaxPingsOut: maxPings,
		JetStream: o.StoreDir != "", StoreDir: o.StoreDir, SyncAlways: o.SyncAlways, DisableJetStreamBanner: true,
		NoSublistCache: true, // it holds a thousand subjects, and each minion and each answer has its own: they only push each other out
		Accounts:       []*server.Account{server.NewAccount(account), server.NewAccount(system)}, SystemAccount: system,
		CustomClientAuthentication: g, AlwaysEnableNonce: false, MaxClosedClients: 100,
		JetStreamMaxStore: maxStore,
		MaxConn:           1 << 20, // the operating system's limit on open files comes first
		WriteDeadline:     10 * time.Second, DisableShortFirstPing: true,
	}
	so.Cluster.NoAdvertise = true
	if o.Listen == "" {
		return so, nil
	}
	if o.TLS == nil {
		return nil, errors.New("a broker that listens needs TLS")
	}
	host, port, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return nil, err
	}
	so.Host = host
	if so.Port, err = net.LookupPort("tcp", port); err != nil {
		return nil, err
	}
	if so.Port == 0 {
		so.Port = server.RANDOM_PORT
	}
	so.TLSConfig = serverTLS(o.TLS)
	so.TLS = true
	return so, nil
}

// serverTLS asks for a certificate and takes any: the key decides, in Admit.
func serverTLS(c *tls.Config) *tls.Config {
	c = c.Clone()
	c.MinVersion = tls.VersionTLS13
	c.ClientAuth = tls.RequireAnyClientCert
	return c
}

// checkStore tries out whether the store can be written, since the server's words
// for a full disk or a closed directory leave the cause out.
func (b *Broker) checkStore() error {
	const room = 64 << 10 // a first block of each stream, and what describes it
	if b.opts.StoreDir == "" {
		return nil
	}
	err := os.MkdirAll(b.opts.StoreDir, 0o700)
	if err != nil {
		return fmt.Errorf("make the folder of the journal: %w", err)
	}
	f, err := os.CreateTemp(b.opts.StoreDir, ".room")
	if err == nil {
		_, err = f.Write(make([]byte, room))
		err = errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	if err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	return nil
}

func (b *Broker) open(fatal <-chan string) error {
	if err := b.checkPort(); err != nil {
		return err
	}
	if err := b.checkStore(); err != nil {
		return err
	}
	b.server.Start()
	if err := b.ready(fatal); err != nil {
		return err
	}
	if b.opts.StoreDir != "" {
		if err := b.gate.account.EnableJetStream(nil, nil); err != nil {
			return fmt.Errorf("open the journal in %s: %w", b.opts.StoreDir, err)
		}
	}
	var err error
	b.wg.Go(b.heal)
	if b.nc, err = b.internal(b.gate.daemon); err != nil {
		return err
	}
	if b.sys, err = b.internal(b.gate.watcher); err != nil {
		return err
	}
	ended, err := b.sys.Subscribe("$SYS.ACCOUNT.*.DISCONNECT", b.disconnected)
	if err != nil {
		return err
	}
	if err := ended.SetPendingLimits(-1, -1); err != nil { // each one missed would be a ghost
		return err
	}
	return b.sys.Flush()
}

// checkPort finds out before the server does whether the port is free, since the
// server only logs that it is not.
func (b *Broker) checkPort() error {
	if b.opts.Listen == "" {
		return nil
	}
	l, err := net.Listen("tcp", b.opts.Listen)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			err = salt.WithHint(err, "another program has the port, perhaps a second master: stop it, or set ret_port")
		}
		return err
	}
	return l.Close()
}

// ready waits until the server takes connections. Its own ReadyForConnections
// looks only every 25 ms, which is longer than the start takes.
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
	if b.opts.Listen != "" {
		return b.server.Addr() != nil
	}
	return b.server.Running()
}

// internal makes a connection of the daemon to its own server, in the process.
func (b *Broker) internal(secret string) (*nats.Conn, error) {
	nc, err := nats.Connect("nats://self", nats.InProcessServer(b.server), nats.UserInfo(secret, ""), nats.Name(b.opts.Name),
		nats.SkipHostLookup(), nats.NoReconnect(), nats.CustomInboxPrefix("_INBOX.master"), nats.Timeout(10*time.Second),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			b.opts.Log.Error("the daemon's own connection", "subject", subject, "err", err)
		}))
	if err != nil {
		return nil, fmt.Errorf("connect to the own bus: %w", err)
	}
	return nc, nil
}

// Store tells whether the journal's disk can be written; it implements
// journal.Store.
func (b *Broker) Store() *Health { return b.health }

// Conn is the daemon's own connection.
func (b *Broker) Conn() *nats.Conn { return b.nc }

// Addr is where the broker listens, nil without a listener.
func (b *Broker) Addr() net.Addr {
	if b.opts.Listen == "" {
		return nil
	}
	return b.server.Addr()
}

// Owner returns the identity of the living connection with this inbox prefix.
func (b *Broker) Owner(inbox string) (bus.Identity, bool) { return b.gate.owner(inbox) }

// Connections calls f for every admitted connection, with a function that cuts it.
func (b *Broker) Connections(f func(i bus.Identity, cut func())) {
	for id, i := range b.gate.all() {
		f(i, func() {
			if err := b.server.DisconnectClientByID(id); err != nil {
				b.opts.Log.Debug("connection was gone already", "peer", i.String())
			}
		})
	}
}

// disconnected is told by the server of each connection that ended.
func (b *Broker) disconnected(m *nats.Msg) {
	var e server.DisconnectEventMsg
	if err := json.Unmarshal(m.Data, &e); err != nil {
		b.opts.Log.Error("unreadable word of a lost connection", "err", err)
		return
	}
	if i, ok := b.gate.leave(e.Client.ID); ok {
		b.opts.Log.Debug("connection ended", "peer", i.String(), "reason", e.Reason)
		if b.opts.Gone != nil {
			b.opts.Gone(i)
		}
	}
}

// Stop closes every connection and the store. When it returns nothing of the
// broker runs.
func (b *Broker) Stop() {
	b.health.stop()
	b.mu.Lock()
	for _, l := range b.locals {
		l.Close()
	}
	b.mu.Unlock()
	for _, nc := range []*nats.Conn{b.nc, b.sys} {
		if nc != nil {
			nc.Close()
		}
	}
	b.server.Shutdown()
	b.server.WaitForShutdown()
	b.wg.Wait()
}

// secret returns what nobody can guess.
func secret() string { return rand.Text() + rand.Text() }
