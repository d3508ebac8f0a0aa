package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"brine/internal/bus"
	"brine/internal/logging"
	"brine/internal/socket"
)

// gate decides on every connection. It implements server.Authentication.
type gate struct {
	opts    Options
	log     *slog.Logger
	told    logging.Throttle // of connections that were refused
	account *server.Account
	system  *server.Account
	daemon  string // the secret of the daemon's own connection
	watcher string // the secret of its connection to the system account

	mu      sync.Mutex
	local   map[string]socket.Peer  // one-time secrets of connections through the local socket
	in      map[uint64]bus.Identity // by the server's connection number
	inboxes map[string]bus.Identity
	perKey  map[string]int

	strangers int // connections without an accepted key
}

func newGate(o Options) (*gate, error) {
	return &gate{
		opts: o, log: o.Log, daemon: secret(), watcher: secret(), local: map[string]socket.Peer{},
		in: map[uint64]bus.Identity{}, inboxes: map[string]bus.Identity{}, perKey: map[string]int{},
	}, nil
}

// Check implements server.Authentication: it falls through to refusal.
func (g *gate) Check(c server.ClientAuthentication) bool {
	o := c.GetOpts()
	if c.Kind() != server.CLIENT {
		return false // routes, gateways and leaf nodes are never taken here
	}
	state := c.GetTLSConnectionState()
	if state == nil {
		switch o.Username {
		case g.daemon:
			return g.register(c, bus.Identity{Role: bus.RoleMaster, Nonce: "internal"}, g.account)
		case g.watcher:
			return g.register(c, bus.Identity{Role: bus.RoleMaster, Nonce: "system"}, g.system)
		}
		peer, ok := g.takeLocal(o.Password)
		return ok && g.admit(c, o, Peer{Remote: "local", Local: peer, Sudo: bus.SudoUser(o.Name)})
	}
	return g.admit(c, o, Peer{Remote: c.RemoteAddress().String(), TLS: state, Caller: o.Name == callerName})
}

// callerName in CONNECT asks for the role of salt-call. It asks for less, so no
// proof is needed.
const callerName = "salt-call"

func (g *gate) admit(c server.ClientAuthentication, o *server.ClientOpts, p Peer) bool {
	if err := bus.CheckNonce(o.Username); err != nil {
		g.refused(hostOf(p.Remote), "remote", p.Remote, "err", err)
		return false
	}
	i := g.opts.Admit(p)
	i.Nonce = o.Username
	if i.Role == bus.RoleNobody || i.Role == bus.RoleMaster {
		return false // the reason was logged by who decided
	}
	if err := g.enter(c.GetID(), i); err != nil {
		g.refused(i.String(), "peer", i.String(), "remote", p.Remote, "err", err)
		return false
	}
	return g.register(c, i, g.account)
}

// refused tells the log of a connection that is not let in: of each peer now and then.
func (g *gate) refused(who string, args ...any) {
	if g.told.First(who, time.Now()) {
		g.log.Warn("connection refused", args...)
	}
}

// hostOf leaves out the port, by which each attempt is another.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

// register gives the connection what the table has for its role.
func (g *gate) register(c server.ClientAuthentication, i bus.Identity, a *server.Account) bool {
	c.RegisterUser(&server.User{Username: i.String(), Account: a, Permissions: permissions(i)})
	return true
}

// permissions translates the table. The server takes an empty list of allowed
// subjects for "everything", so where the table has nothing, all is denied.
func permissions(i bus.Identity) *server.Permissions {
	return &server.Permissions{
		Publish:   subjects(bus.Allowed(i, bus.Publish)),
		Subscribe: subjects(bus.Allowed(i, bus.Subscribe)),
	}
}

func subjects(allow []string) *server.SubjectPermission {
	if len(allow) == 0 {
		return &server.SubjectPermission{Deny: []string{">"}}
	}
	return &server.SubjectPermission{Allow: allow}
}

// expect announces a local peer and returns the secret that its connection must
// show, once.
func (g *gate) expect(p socket.Peer) string {
	s := secret()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.local[s] = p
	time.AfterFunc(authTimeout, func() { g.takeLocal(s) })
	return s
}

func (g *gate) takeLocal(secret string) (socket.Peer, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p, ok := g.local[secret]
	delete(g.local, secret)
	return p, ok
}

// enter books the connection. An inbox belongs to one connection: a second one
// with the same nonce could hear the answers of the first. A connection enters
// once: the server would take a second CONNECT for a change of mind, and what the
// first had booked would stay for ever.
func (g *gate) enter(cid uint64, i bus.Identity) error {
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
	case i.Key != "" && g.perKey[i.Key] >= MaxPerKey:
		return fmt.Errorf("its key has %d connections already", MaxPerKey)
	case i.Role == bus.RoleStranger && g.strangers >= maxStrangers:
		return fmt.Errorf("%d connections without an accepted key are waiting already", maxStrangers)
	}
	g.in[cid] = i
	g.inboxes[inbox] = i
	if i.Key != "" {
		g.perKey[i.Key]++
	}
	if i.Role == bus.RoleStranger {
		g.strangers++
	}
	return nil
}

func (g *gate) leave(cid uint64) (bus.Identity, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i, ok := g.in[cid]
	if !ok {
		return i, false
	}
	delete(g.in, cid)
	delete(g.inboxes, i.Inbox())
	if g.perKey[i.Key]--; g.perKey[i.Key] <= 0 {
		delete(g.perKey, i.Key)
	}
	if i.Role == bus.RoleStranger {
		g.strangers--
	}
	return i, true
}

func (g *gate) owner(inbox string) (bus.Identity, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i, ok := g.inboxes[inbox]
	return i, ok
}

func (g *gate) all() map[uint64]bus.Identity {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.in)
}
