package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// mirrorAccount is the account of a mirror's server that has a store.
const mirrorAccount = "MIRROR"

// mirrorDomain is its JetStream domain, which over the link distinguishes it from that of the
// journal's owner.
const mirrorDomain = "mirror"

// MirrorOptions are for a mirror of another master's journal. All are required.
type MirrorOptions struct {
	Peer     string // host:port of its links
	TLS      *tls.Config
	StoreDir string
	Log      *slog.Logger
}

// Mirror is a second server, for the mirror of another master's journal. Its store is separate,
// so its disk, failures and pauses do not affect the own journal. No client connects to it. It
// dials the other master until it is connected.
type Mirror struct {
	opts    MirrorOptions
	server  *server.Server
	account *server.Account
	secret  string
	fatal   chan string
	reopens sync.Mutex
	nc      *nats.Conn
	own     *loopDaemon // of nc
	wg      sync.WaitGroup
	delays
}

// StartMirror returns when the store is open, whether or not the other master is reachable.
func StartMirror(ctx context.Context, o MirrorOptions) (*Mirror, error) {
	if err := os.MkdirAll(o.StoreDir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the mirror: %w", err)
	}
	m := &Mirror{opts: o, delays: delays{log: o.Log}, secret: secret(), fatal: make(chan string, 1)}
	so := m.options()
	var err error
	if m.server, err = server.NewServer(so); err != nil {
		return nil, fmt.Errorf("start the mirror: %w", err)
	}
	m.server.SetLoggerV2(&serverLog{log: o.Log.With("part", "mirror"), fatal: m.fatal, health: newHealth(Options{StoreDir: o.StoreDir}), quiet: true}, false, false, false)
	if err := m.start(ctx); err != nil {
		m.Stop()
		return nil, err
	}
	return m, nil
}

func (m *Mirror) options() *server.Options {
	peer := &url.URL{Scheme: "tls", Host: m.opts.Peer}
	so := &server.Options{
		ServerName: "mirror", DontListen: true, NoSigs: true, NoLog: true, DisableJetStreamBanner: true,
		MaxPayload: maxPayload, MaxPending: ownPending, MaxControlLine: maxControlLine,
		JetStream: true, StoreDir: m.opts.StoreDir, JetStreamMaxStore: maxStore, JetStreamDomain: mirrorDomain,
		Accounts: []*server.Account{server.NewAccount(mirrorAccount), server.NewAccount(system)}, SystemAccount: system,
		CustomClientAuthentication: mirrorAuth{m}, NoSublistCache: true, PingInterval: usualPing / 4, MaxPingsOut: maxPings, WriteDeadline: 10 * time.Second,
	}
	so.Cluster.NoAdvertise = true
	so.LeafNode.ReconnectInterval = time.Second
	so.LeafNode.Remotes = []*server.RemoteLeafOpts{{
		LocalAccount: mirrorAccount, URLs: []*url.URL{peer}, TLS: true, TLSConfig: m.opts.TLS, TLSHandshakeFirst: true, TLSTimeout: authTimeout.Seconds(),
		Compression: server.CompressionOpts{Mode: server.CompressionOff},
		// What the other master may not reach here: this store, and answers to the daemon.
		// Denying all of $JS would also hold back the acknowledgements of the mirror.
		DenyImports: []string{"$JS.API.>", "$JS." + mirrorDomain + ".>", "$JS.ACK.>", "$SYS.>", "$KV.>", "$O.>", "_INBOX.>", "_R_.>"},
	}}
	return so
}

func (m *Mirror) start(ctx context.Context) (err error) {
	if m.account, err = m.server.LookupAccount(mirrorAccount); err != nil {
		return err
	}
	m.server.Start()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !m.server.Running() || !m.server.JetStreamEnabled() {
		select {
		case why := <-m.fatal:
			return fmt.Errorf("start the mirror: %s", why)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	if err := m.account.EnableJetStream(nil, nil); err != nil {
		return fmt.Errorf("open the mirror in %s: %w", m.opts.StoreDir, err)
	}
	return m.connect()
}

func (m *Mirror) connect() (err error) {
	m.nc, err = nats.Connect("nats://mirror", nats.InProcessServer(loopMaker{m.server, &m.wg, &m.own}), nats.UserInfo(m.secret, ""), nats.Name("mirror"),
		nats.SkipHostLookup(), nats.NoReconnect(), nats.CustomInboxPrefix("_INBOX.master"))
	if err != nil {
		return fmt.Errorf("connect to the mirror: %w", err)
	}
	return nil
}

// Conn is the daemon's connection to the mirror.
func (m *Mirror) Conn() *nats.Conn { return m.nc }

// Linked reports whether the link to the other master is up.
func (m *Mirror) Linked() bool { return m.server.NumLeafNodes() > 0 }

// Cut ends the link; it is dialled again.
func (m *Mirror) Cut() {
	z, err := m.server.Leafz(nil)
	if err != nil {
		return // the server is stopping
	}
	for _, l := range z.Leafs {
		_ = m.server.DisconnectClientByID(l.ID) // fails if the link has ended
	}
}

// Reopen closes and reopens the store. Afterwards the mirror immediately requests from the
// other master what it lacks; without that it would wait longer and longer. It also makes a
// store writable again that could not be written. What the daemon asks meanwhile waits.
func (m *Mirror) Reopen() error {
	m.reopens.Lock()
	defer m.reopens.Unlock()
	release, waited, err := m.own.quiet(m.server, mirrorAccount, m.secret)
	if err == nil {
		defer release()
	}
	if err = errors.Join(err, waited); err != nil { // that does not keep a store closed which has failed
		m.opts.Log.Debug("the mirror is reopened with requests under way", "err", err)
	}
	_ = m.account.DisableJetStream() // an error means that the server has closed it, on a full disk
	if !m.server.JetStreamEnabled() {
		if err := m.server.EnableJetStream(&server.JetStreamConfig{StoreDir: m.opts.StoreDir, MaxStore: maxStore, MaxMemory: -1, Domain: mirrorDomain}); err != nil {
			return fmt.Errorf("open the mirror again: %w", err)
		}
	}
	if err := m.account.EnableJetStream(nil, nil); err != nil {
		return fmt.Errorf("open the mirror again: %w", err)
	}
	return nil
}

// Stop ends the mirror. When it returns, nothing of it runs.
func (m *Mirror) Stop() {
	if m.nc != nil {
		m.nc.Close()
	}
	m.server.Shutdown()
	m.server.WaitForShutdown()
	m.wg.Wait()
}

// mirrorAuth admits only the daemon: this server dials, and nobody dials it.
type mirrorAuth struct{ m *Mirror }

// Check implements server.Authentication.
func (g mirrorAuth) Check(c server.ClientAuthentication) bool {
	if c.Kind() != server.CLIENT || c.GetTLSConnectionState() != nil || c.GetOpts().Username != g.m.secret {
		return false
	}
	c.RegisterUser(&server.User{Username: "daemon", Account: g.m.account})
	return true
}
