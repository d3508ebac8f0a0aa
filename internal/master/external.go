package master

import (
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/runner"
)

// external is the additional state of a master with nats_servers: minions reach it through
// these, and programs of its machine through its own bus.
type external struct {
	*broker.External
	server *rpc.Server // of the minions' requests
}

// minionEndpoints are what can be requested through NATS servers.
var minionEndpoints = bus.MasterEndpoints.Of(bus.RoleMinion, bus.RoleCaller, bus.RoleUnaccepted)

// listens returns the address for minions, "" with nats_servers.
func (m *Master) listens() string {
	if len(m.cfg.NATSServers) > 0 {
		return ""
	}
	return net.JoinHostPort(m.cfg.Interface, strconv.Itoa(m.cfg.RetPort))
}

// reached is where minions reach the master, for the log.
func (m *Master) reached() string {
	if a := m.Addr(); a != nil {
		return a.String()
	}
	return "nats_servers " + strings.Join(m.cfg.NATSServers, ", ")
}

// openExternal begins to connect to nats_servers, where there are any. certificate is what the
// master shows in TLS.
func (m *Master) openExternal(certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) error {
	if len(m.cfg.NATSServers) == 0 {
		return nil
	}
	credentials, err := broker.FindCredentials(m.cfg.NATSSeed(), m.cfg.NATSCreds != "", func(file string) {
		m.log.Warn("a new seed for nats_servers was made", "file", file, "hint", "these servers do not know it yet: "+NewSeedHint)
	})
	if err != nil {
		return err
	}
	x, err := broker.NewExternal(broker.ExternalOptions{
		Servers: m.cfg.NATSServers, Fingers: m.cfg.NATSFinger, CAFile: m.cfg.NATSCA, Credentials: credentials, Name: "salt-master",
		Admit: m.admission.Admit, Version: m.admission.CheckVersion, Gone: m.gone, Fail: m.broker.Fail, Endpoints: minionEndpoints, Journal: m.hosted != nil, Log: m.log,
	})
	if err != nil {
		return err
	}
	m.undo = append(m.undo, x.Close)
	m.external = &external{External: x}
	m.admission.Prove = func(text []byte) ([]byte, []byte, error) {
		c, err := certificate(&tls.ClientHelloInfo{ServerName: bus.ServerName})
		if err != nil {
			return nil, nil, err
		}
		proof, err := m.key.Sign(text)
		return c.Certificate[0], proof, err
	}
	return nil
}

// openExternalServer makes what answers the requests of minions there.
func (m *Master) openExternalServer() error {
	x := m.external
	if x == nil {
		return nil
	}
	s := rpc.NewServer(x.Conn(), x.Owner, minionEndpoints, m.log)
	s.Room, s.Cut, s.CutKey, s.Authorize = m.server.Room, m.server.Cut, x.Cut.Unaccepted, m.server.Authorize
	s.GrainsCount, s.Pending, s.Numbers = m.keys.GrainsCount, x.Pending(), true
	x.server = s
	m.register(s, minionEndpoints)
	return s.Served()
}

// runExternal serves minions through nats_servers until the master stops. If it cannot, the master ends.
func (m *Master) runExternal() {
	if m.external == nil {
		return
	}
	m.wg.Go(func() {
		if err := m.external.Serve(m.ctx, m.external.server.Start); err != nil && m.ctx.Err() == nil {
			m.broker.Fail(fmt.Errorf("minions cannot be served through the NATS servers: %w", err))
		}
	})
}

// starting returns what a start with the journal at the NATS servers waits for, nil for the end of another master: this one
// is a standby then, and ready.
func (x *external) starting() error {
	if err := broker.Unreached(x.External); err != nil {
		return fmt.Errorf("the master is starting: %w", err)
	}
	if x.otherAtWork() {
		return nil
	}
	return errStarting
}

// otherAtWork reports whether this master is a standby: it waits for the end of another one, and has no minions meanwhile.
func (x *external) otherAtWork() bool { return x != nil && broker.OtherAtWork(x.External) }

// stop ends the answers under way.
func (x *external) stop() {
	if x != nil && x.server != nil {
		x.server.Stop()
	}
}

// connections are those to the master itself and those through NATS servers.
type connections struct {
	*broker.Broker
	external *external
}

func (m *Master) connections() connections { return connections{m.broker, m.external} }

// Owner returns the identity of the living connection with this inbox prefix.
func (c connections) Owner(inbox string) (bus.Identity, bool) {
	i, ok := c.Broker.Owner(inbox)
	if !ok && c.external != nil {
		return c.external.Owner(inbox)
	}
	return i, ok
}

// ConnectionsOf calls f for every admitted connection that matches.
func (c connections) ConnectionsOf(match func(bus.Identity) bool, f func(i bus.Identity, cut func())) {
	c.Broker.ConnectionsOf(match, f)
	if c.external != nil {
		c.external.ConnectionsOf(match, f)
	}
}

// CutInbox ends the connection with this inbox prefix.
func (c connections) CutInbox(inbox string) {
	c.Cut.Inbox(inbox)
	if c.external != nil {
		c.external.Cut.Inbox(inbox)
	}
}

// ConnectionsOfID calls f for those with the key of a minion.
func (c connections) ConnectionsOfID(id string, f func(i bus.Identity, cut func())) {
	c.Broker.Minions.WithCallers(id, f)
	if c.external != nil {
		c.external.Minions.WithCallers(id, f)
	}
}

// ConnectionsOfMinion calls f for those of the daemon of a minion.
func (c connections) ConnectionsOfMinion(id string, f func(i bus.Identity, cut func())) {
	c.Broker.Minions.Of(id, f)
	if c.external != nil {
		c.external.Minions.Of(id, f)
	}
}

// CountMinions returns how many minions have a connection. One that has moved from the one to the
// other counts twice for a moment.
func (c connections) CountMinions() int {
	n := c.Broker.Minions.Count()
	if c.external != nil {
		n += c.external.Minions.Count()
	}
	return n
}

// Holds reports whether a connection with this key exists.
func (c connections) Holds(token string) bool {
	return c.Broker.Holds(token) || c.external != nil && c.external.Holds(token)
}

// PublishMsg sends a message to a minion; it implements rpc.Publisher.
func (c connections) PublishMsg(m *nats.Msg) error {
	if c.external != nil {
		return c.external.Conn().PublishMsg(m)
	}
	return c.Conn().PublishMsg(m)
}

// figures are the connections of both.
func (c connections) figures() broker.Figures {
	f := c.Figures()
	if c.external != nil {
		return c.external.Figures(f)
	}
	return f
}

// servers implements runner.NATS.
type servers struct{ *Master }

// ServerConfig implements runner.NATS: it returns what NATS servers need to know of this
// system.
func (m servers) ServerConfig() (string, error) {
	return ServerConfig(m.cfg, func(file string) {
		m.log.Warn("the seed for nats_servers was gone, and a new one was made", "file", file)
	})
}

// NewSeedHint is what to do with a seed that was just made.
const NewSeedHint = "give them what 'salt-master --nats-config' prints, unless another master uses them: then copy its file here, and start again"

// ServerConfig returns what the NATS servers of a master with this configuration need to know of
// it. It makes the master's file with the secret if there is none and nats_creds names none, and calls made.
func ServerConfig(cfg *config.Master, made func(file string)) (string, error) {
	if err := cfg.RequireNATS(); err != nil {
		return "", err
	}
	c, err := broker.FindCredentials(cfg.NATSSeed(), cfg.NATSCreds != "", made)
	if err != nil {
		return "", err
	}
	return broker.ExternalConfig(c, minionEndpoints, cfg.NATSJetStream), nil
}

var _ runner.NATS = servers{}

// CheckNATS finds mistakes in the settings of NATS servers that take more than a look at them.
func CheckNATS(cfg *config.Master) error {
	if len(cfg.NATSServers) == 0 {
		return nil
	}
	ca := broker.CheckAuthorities(cfg.NATSCA)
	seed := broker.CheckCredentials(cfg.NATSSeed(), cfg.NATSCreds != "")
	return config.Join(cfg.At("nats_ca", ca), cfg.At("nats_creds", seed))
}
