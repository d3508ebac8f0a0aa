package broker

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/brinebus/brine/internal/backoff"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/member"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// ClusterOptions are for a broker that is a member of a cluster: several masters that are one
// system. All are required.
type ClusterOptions struct {
	Rule        member.Rule     // who is a member; its Card names this one, and the cluster
	Certificate tls.Certificate // that this member presents, see Rule.Own
	Listen      string          // host:port for the routes to the other members
	Peers       []string        // host:port of all members, this one included
}

// MaxMembers is the largest number of members. Each message is stored by three to five of them,
// and each of the others also has to learn of each subscription.
const MaxMembers = 9

// CheckName checks the name of a cluster or of a member: both become names of streams, or parts of them.
func CheckName(name string) error { return bus.CheckJournalName(name) }

// check looks for mistakes in the configured values.
func (o *ClusterOptions) check() error {
	card := o.Rule.Card
	if err := CheckName(card.Cluster); err != nil {
		return fmt.Errorf("the name of the cluster: %w", err)
	}
	if err := CheckName(card.Name); err != nil {
		return fmt.Errorf("the name of this member: %w", err)
	}
	if len(o.Peers) < 2 || len(o.Peers) > MaxMembers {
		return salt.WithHint(fmt.Errorf("a cluster has 2 to %d members, and %d are named", MaxMembers, len(o.Peers)), "cluster_peers lists all members, this one included")
	}
	for i, peer := range o.Peers {
		host, port, err := net.SplitHostPort(peer)
		if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 || host == "" {
			return fmt.Errorf("member %.100q is not a host:port", peer)
		}
		if slices.Contains(o.Peers[:i], peer) {
			return salt.WithHint(fmt.Errorf("member %q is named twice", peer), "with one member too many the others would wait for it")
		}
	}
	return nil
}

// Limits of the port of routes. The other members are few and dial again; everybody else is
// refused.
const (
	routeConnections = 96
	routeHalfOpen    = 64
	// maxRoutes is how many connections one member may have: the one in use, one from each side
	// while both dial, and earlier ones whose end was not noticed yet.
	maxRoutes = 4
	// routePing and routePings end a route whose other end has disappeared silently, after about
	// ten seconds.
	routePing  = 3 * time.Second
	routePings = 2
)

// options adds the cluster to the options of the server. They do not make the server listen or
// dial: routes does both.
func (r *routes) options(so *server.Options) {
	_, port, _ := net.SplitHostPort(r.acceptor.listener.Addr().String())
	so.ServerName = r.opts.Rule.Card.Name
	so.Cluster = server.ClusterOpts{
		Name: r.opts.Rule.Card.Cluster, Host: "127.0.0.1", TLSConfig: r.tls(), TLSTimeout: authTimeout.Seconds(), AuthTimeout: authTimeout.Seconds(),
		NoAdvertise: true, PoolSize: -1, Compression: server.CompressionOpts{Mode: server.CompressionOff},
		PingInterval: routePing, MaxPingsOut: routePings, Permissions: routePermissions(),
	}
	so.Cluster.Port, _ = strconv.Atoi(port)
	so.CustomRouterAuthentication = r
	so.SyncAlways, so.SyncInterval = r.sync == SyncAlways, syncEvery
	// The server counts these: it needs half of them for the first election of a leader. The
	// names do not exist, so it never dials them.
	for i := range r.opts.Peers {
		so.Routes = append(so.Routes, &url.URL{Scheme: "nats-route", Host: fmt.Sprintf("member-%d.invalid:1", i)})
	}
}

// startServer starts a server that is a member. At its start, a server with a cluster waits for
// a listener of its own, which it does not have here; so it starts without a cluster, and is
// given the cluster before it opens its store.
func (r *routes) startServer(s *server.Server, so *server.Options) error {
	alone := so.Clone()
	alone.Cluster.Port, alone.JetStream = 0, false
	setOptions(s, alone)
	s.Start()
	setOptions(s, so)
	if !so.JetStream {
		return nil
	}
	err := s.EnableJetStream(&server.JetStreamConfig{
		StoreDir: so.StoreDir, MaxStore: maxStore, MaxMemory: -1, SyncAlways: so.SyncAlways, SyncInterval: so.SyncInterval, Strict: true, CompressOK: true,
	})
	if err != nil {
		return fmt.Errorf("open the store of this member: %w", err)
	}
	return nil
}

// Cluster is what a broker knows about the cluster that it is a member of.
type Cluster struct {
	b *Broker
	r *routes
}

// PeerState is the state of one configured address.
type PeerState struct {
	Address string // as it is configured
	Self    bool   // it is this member
	Name    string // of the member last connected at that address, "" if there was none
	Linked  bool   // there is a route to that member
	Err     error  // why there is no route
}

// Addr is the listen address for routes.
func (c *Cluster) Addr() string { return c.r.acceptor.listener.Addr().String() }

// Members returns the other members to which there are routes, in order of their names.
func (c *Cluster) Members() []member.Member { return c.r.members() }

// Linked is Members, and a channel that is closed when that may have changed.
func (c *Cluster) Linked() ([]member.Member, <-chan struct{}) {
	c.r.mu.Lock()
	changed := c.r.changed
	c.r.mu.Unlock()
	return c.r.members(), changed
}

// Peers returns the state of each configured address.
func (c *Cluster) Peers() []PeerState { return c.r.states() }

// Cut ends the routes to members that the rule no longer accepts. The broker does this itself
// several times a second.
func (c *Cluster) Cut() { c.r.cut() }

// newRoutes takes the port of the routes; nil without a cluster.
func newRoutes(o Options, refused func(who string, args ...any)) (*routes, error) {
	if o.Cluster == nil {
		return nil, nil
	}
	if err := o.Cluster.check(); err != nil {
		return nil, err
	}
	if o.Cluster.Certificate.Leaf == nil {
		return nil, errors.New("a member of a cluster needs a certificate")
	}
	key, err := pki.PublicFromCertificate(o.Cluster.Certificate.Leaf)
	if err != nil {
		return nil, fmt.Errorf("the certificate of this member: %w", err)
	}
	r := &routes{
		opts: *o.Cluster, sync: o.Sync, log: o.Log.With("port", "routes"), refused: refused, changed: make(chan struct{}),
		accepted: map[net.Addr]*routeEnd{}, dialled: map[string]*routeEnd{}, live: map[*routeEnd]bool{}, peers: map[string]*PeerState{},
	}
	r.opts.Rule.Key = key
	for _, peer := range r.opts.Peers {
		r.peers[peer] = &PeerState{Address: peer}
	}
	return r, r.listen()
}

// Routes returns with how many other members the server exchanges messages. A route counts
// slightly later than its member: the server has to be informed by the other end.
func (c *Cluster) Routes() int { return c.r.server.NumRoutes() }

// Current reports whether this member's copy of a stream has all that was stored, as far as it knows, and is not just
// getting what it lacks.
func (c *Cluster) Current(stream string) bool {
	return c.r.server.JetStreamIsStreamCurrent(account, stream)
}

// errLeaderless is why nothing can be stored although most members are linked.
var errLeaderless error = salt.Unanswered("the members of the cluster have no leader")

// Leader waits until the members have a leader, so that streams and tables can be opened. A new
// cluster needs some seconds; after a kill of the leader it takes up to eleven. If ctx ends
// first, the error says what is missing.
func (c *Cluster) Leader(ctx context.Context) error {
	for {
		once, cancel := context.WithTimeout(ctx, leaderAsk)
		m, err := c.b.nc.RequestWithContext(once, "$JS.API.INFO", nil)
		cancel()
		if err == nil && !bytes.Contains(m.Data, []byte(`"error"`)) {
			return nil
		}
		if !backoff.Sleep(ctx, leaderPause) {
			return c.leaderless()
		}
	}
}

const (
	leaderAsk   = 500 * time.Millisecond
	leaderPause = 50 * time.Millisecond
)

func (c *Cluster) leaderless() error {
	if err := c.r.minority(); err != nil {
		return err
	}
	return errLeaderless
}

// minority returns why this member alone cannot decide anything; nil if it reaches most others. The
// configuration may still name members that have left or were removed: those do not count.
func (r *routes) minority() error {
	linked, all := r.server.NumRoutes(), len(r.opts.Peers)
	if 2*(linked+1) > all {
		return nil
	}
	if n := r.counted(time.Now()); n > 0 && 2*(linked+1) > n {
		return nil
	}
	return salt.WithHint(fmt.Errorf("%w: this member reaches %d of the %d others", ErrMinority, linked, all-1), "start the other members, or look why they are not reached: salt-run cluster.status. If they are lost for ever, salt-master --repair opens the store of this one alone")
}

// electionTime is longer than an election takes.
const electionTime = 15 * time.Second

// counted returns how many members count for elections: what the last leader knew, if that was seen within
// the time that an election takes; otherwise 0.
func (r *routes) counted(now time.Time) int {
	n := voting(r.server)
	r.mu.Lock()
	defer r.mu.Unlock()
	if n > 0 {
		r.voters, r.votersAt = n, now
	}
	if now.Sub(r.votersAt) > electionTime {
		return 0
	}
	return r.voters
}

// ErrMinority is wrapped by the reason why a member can store nothing.
var ErrMinority error = salt.Unanswered("most members of the cluster are not reached")
