package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/socket"
)

// authenticator decides on every connection. It implements server.Authentication.
type authenticator struct {
	opts        Options
	log         *slog.Logger
	throttle    logging.Throttle // of refused connections, by peer
	throttleAll logging.Throttle // of all refused connections together
	account     *server.Account
	daemon      string    // the secret of the daemon's own connection
	admin       string    // the secret of its connections for what concerns all members of a cluster
	acceptor    *acceptor // nil without a listener
	rights      bus.Rights
	meter       *meter
	link        *link   // nil if no other master mirrors the journal
	routes      *routes // nil if it is not a member of a cluster

	mu       sync.Mutex
	local    map[string]*localClient // one-time secrets of connections through the local socket
	in       map[uint64]bus.Identity // by the server's connection number
	inboxes  map[string]uint64       // those numbers
	minions  minions[uint64]
	perKey   keys[uint64]
	perLogin map[string]int     // of remote users, by their names
	shares   map[uint64]*inflow // as in
}

// localClient is a connection through the local socket.
type localClient struct {
	socket.Peer
	lifetime
	conn   net.Conn
	secret string // once it is expected
	claim  string // the uid that the process claims to have, in digits
}

// misnamed returns why a peer cannot be served: the kernel names another user than the peer
// claims, or cannot name one here.
func (v *localClient) misnamed() error {
	claim, err := strconv.ParseUint(v.claim, 10, 32)
	switch {
	case err == nil && uint32(claim) != v.UID:
		return fmt.Errorf("it claims uid %d, the kernel says uid %d: it is in another user namespace", claim, v.UID)
	case v.Unnamed():
		return errors.New("it is in a user namespace that this daemon does not know: the kernel has no uid for it")
	}
	return nil
}

func newAuthenticator(o Options) *authenticator {
	if o.Context == nil {
		o.Context = context.Background()
	}
	return &authenticator{
		rights: o.Endpoints.Rights(), meter: newMeter(), link: newLink(o.Link), opts: o, log: o.Log, daemon: secret(), admin: secret(), local: map[string]*localClient{},
		in: map[uint64]bus.Identity{}, inboxes: map[string]uint64{}, minions: newMinions[uint64](), perKey: keys[uint64]{}, perLogin: map[string]int{}, shares: map[uint64]*inflow{},
	}
}

// acceptors are the listeners of the network.
func (g *authenticator) acceptors() (list []*acceptor) {
	if g.acceptor != nil {
		list = append(list, g.acceptor)
	}
	if g.link != nil && g.link.acceptor != nil {
		list = append(list, g.link.acceptor)
	}
	if g.routes != nil {
		list = append(list, g.routes.acceptor)
	}
	return list
}

// Check implements server.Authentication. It refuses whatever no branch allows.
func (g *authenticator) Check(c server.ClientAuthentication) bool {
	o := c.GetOpts()
	if c.Kind() == server.LEAF && g.link != nil {
		return g.link.check(c, g)
	}
	if c.Kind() != server.CLIENT {
		return false // routes, gateways and other leaf nodes are never taken here
	}
	state := c.GetTLSConnectionState()
	if state == nil {
		if g.link != nil && o.Username == g.link.secret {
			c.RegisterUser(&server.User{Username: "daemon", Account: g.link.account})
			return true
		}
		if g.routes != nil && o.Username == g.admin {
			c.RegisterUser(&server.User{Username: "admin", Account: g.routes.server.SystemAccount()})
			return true
		}
		if o.Username == g.daemon {
			return g.register(c, bus.Identity{Role: bus.RoleMaster, Nonce: "internal"})
		}
		v, ok := g.takeLocal(o.Password)
		if !ok {
			return false
		}
		if err := v.misnamed(); err != nil {
			g.refused(fmt.Sprint("uid ", v.UID), "uid", v.UID, "pid", v.PID, "err", err)
			return false
		}
		i, ok := g.admit(c, o, Peer{Remote: "local", Local: v.Peer, Sudo: bus.SudoUser(o.Name)}, &v.lifetime)
		if !ok && g.opts.Context.Err() != nil {
			v.conn.Close() // a daemon that stops cannot decide: this is not a refusal and is not logged
		}
		return ok && g.register(c, i)
	}
	from, ok := c.RemoteAddress().(address)
	if !ok {
		return false // the connection has ended
	}
	a := from.arrival
	i, ok := g.admit(c, o, Peer{Remote: from.String(), Host: a.host, TLS: state, Caller: o.Name == callerName}, &a.lifetime)
	return ok && g.acceptor.letIn(a, i.Role == bus.RoleUnaccepted || i.Role == bus.RoleGuest) && g.register(c, i)
}

// callerName in CONNECT asks for the role of salt-call. That role has fewer rights, so no proof
// is needed.
const callerName = "salt-call"

// admit finds out who a peer is and registers its connection.
func (g *authenticator) admit(c server.ClientAuthentication, o *server.ClientOpts, p Peer, t *lifetime) (bus.Identity, bool) {
	if err := bus.CheckNonce(o.Username); err != nil {
		g.refused(hostOf(p.Remote), "remote", p.Remote, "err", err)
		return bus.Identity{}, false
	}
	p.Nonce = o.Username
	i := g.opts.Admit(p)
	i.Nonce = o.Username
	if i.Role == bus.RoleNobody || i.Role == bus.RoleMaster {
		return bus.Identity{}, false // the code that refused it has logged the reason
	}
	if err := g.enter(c.GetID(), i, p.Host, t); err != nil {
		g.refused(i.String(), "peer", i.String(), "remote", p.Remote, "err", err)
		return bus.Identity{}, false
	}
	return i, true
}

// maxRefused is how many refused peers are logged in a minute.
const maxRefused = 50

// refused logs that a connection was refused: occasionally for each peer, and at most
// maxRefused times in a minute.
func (g *authenticator) refused(who string, args ...any) {
	if g.throttle.First(who, time.Now()) {
		g.throttleAll.Log(g.log, slog.LevelWarn, "", maxRefused, "connection refused", args...)
	}
}

// hostOf cuts off the port, which differs with each attempt.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

// register gives the connection the permissions of its role.
func (g *authenticator) register(c server.ClientAuthentication, i bus.Identity) bool {
	c.RegisterUser(&server.User{Username: i.String(), Account: g.account, Permissions: permissions(g.rights, i)})
	return true
}

// permissions translates the table. The server treats an empty list of allowed subjects as
// "everything", so if the table has nothing, everything is denied.
func permissions(rights bus.Rights, i bus.Identity) *server.Permissions {
	return &server.Permissions{
		Publish:   subjects(rights.Allowed(i, bus.Publish)),
		Subscribe: subjects(rights.Allowed(i, bus.Subscribe)),
	}
}

func subjects(allow []string) *server.SubjectPermission {
	if len(allow) == 0 {
		return &server.SubjectPermission{Deny: []string{">"}}
	}
	return &server.SubjectPermission{Allow: allow}
}

// expect registers a local peer and returns the secret that its connection must present, once.
// The caller withdraws it when the connection has ended. It has no timeout: the secret could
// expire before a busy daemon has checked it, which would look like a refusal.
func (g *authenticator) expect(v *localClient) string {
	s := secret()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.local[s] = v
	return s
}

func (g *authenticator) takeLocal(secret string) (*localClient, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v, ok := g.local[secret]
	delete(g.local, secret)
	return v, ok
}

// enter registers the connection. An inbox belongs to one connection: a second one with the
// same nonce could read the answers of the first. A connection enters only once: the server
// would accept a second CONNECT, and what the first had registered would stay forever. A
// connection that ended during authentication does not enter, since nobody would remove it.
func (g *authenticator) enter(cid uint64, i bus.Identity, host string, t *lifetime) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	inbox := i.Inbox()
	_, again := g.in[cid]
	_, taken := g.inboxes[inbox]
	switch {
	case again:
		return errors.New("a second CONNECT")
	case taken:
		return errors.New("its inbox belongs to another connection")
	case i.Role == bus.RoleRemote && g.perLogin[i.Name] >= maxPerUser:
		return fmt.Errorf("this user has %d connections, which is the limit", maxPerUser)
	case i.Key != "" && len(g.perKey[i.Key]) >= g.mostOf(i):
		return fmt.Errorf("its key has %d connections already", g.mostOf(i))
	case !t.enter(cid):
		return errors.New("it ended while it was checked")
	}
	g.in[cid] = i
	g.inboxes[inbox] = cid
	g.minions.add(i, cid)
	g.shares[cid] = &inflow{flow: g.meter.join(i, host)}
	t.share.Store(g.shares[cid])
	if i.Key != "" {
		g.perKey.add(i.Key, cid)
	}
	if i.Role == bus.RoleRemote {
		g.perLogin[i.Name]++ // each may have a key of its own
	}
	return nil
}

// mostOf is how many connections the key of an identity may have.
func (g *authenticator) mostOf(i bus.Identity) int {
	if g.opts.BringsOthers != nil && g.opts.BringsOthers(i) {
		return maxPerUser
	}
	return MaxPerKey
}

func (g *authenticator) leave(cid uint64) (bus.Identity, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i, ok := g.in[cid]
	if !ok {
		return i, false
	}
	delete(g.in, cid)
	if r := g.shares[cid]; r != nil {
		g.meter.leave(r.flow)
	}
	delete(g.shares, cid)
	delete(g.inboxes, i.Inbox())
	g.minions.remove(i, cid)
	g.perKey.remove(i.Key, cid)
	if i.Role == bus.RoleRemote {
		if g.perLogin[i.Name]--; g.perLogin[i.Name] <= 0 {
			delete(g.perLogin, i.Name)
		}
	}
	return i, true
}

func (g *authenticator) owner(inbox string) (bus.Identity, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	cid, ok := g.inboxes[inbox]
	return g.in[cid], ok
}

// connection returns the number of the connection with this inbox prefix.
func (g *authenticator) connection(inbox string) (cid uint64, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	cid, ok = g.inboxes[inbox]
	return cid, ok
}

// inflow returns the connection with this inbox prefix as the meter knows it, nil for none.
func (g *authenticator) inflow(inbox string) *inflow {
	g.mu.Lock()
	defer g.mu.Unlock()
	cid, ok := g.inboxes[inbox]
	if !ok {
		return nil
	}
	return g.shares[cid]
}

func (g *authenticator) holds(token string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.perKey[token]) > 0
}

// all returns the connections that match; nil matches every one.
func (g *authenticator) all(match func(bus.Identity) bool) map[uint64]bus.Identity {
	g.mu.Lock()
	defer g.mu.Unlock()
	found := map[uint64]bus.Identity{}
	for id, i := range g.in {
		if match == nil || match(i) {
			found[id] = i
		}
	}
	return found
}

// ofMinion returns the connections of a minion that have one of the roles.
func (g *authenticator) ofMinion(id string, roles ...bus.Role) map[uint64]bus.Identity {
	g.mu.Lock()
	defer g.mu.Unlock()
	found := map[uint64]bus.Identity{}
	for _, cid := range g.minions.of(id, roles) {
		found[cid] = g.in[cid]
	}
	return found
}

// ofKey returns the connections of a key that have one of the roles.
func (g *authenticator) ofKey(key string, roles ...bus.Role) map[uint64]bus.Identity {
	g.mu.Lock()
	defer g.mu.Unlock()
	found := map[uint64]bus.Identity{}
	for _, cid := range g.perKey[key] {
		if i := g.in[cid]; slices.Contains(roles, i.Role) {
			found[cid] = i
		}
	}
	return found
}

// countMinions returns how many minions have a connection.
func (g *authenticator) countMinions() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.minions.daemons)
}
