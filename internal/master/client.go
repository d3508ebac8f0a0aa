package master

import (
	"crypto/tls"
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// claimedClient reads the name of a client out of a certificate; ok is false for
// the certificate of a minion. The name is only what it says.
func claimedClient(s *tls.ConnectionState) (name string, ok bool) {
	if len(s.PeerCertificates) == 0 {
		return "", false
	}
	return strings.CutPrefix(s.PeerCertificates[0].Subject.CommonName, salt.ClientPrefix)
}

// admitClient lets in a program with the credentials that an operator made for
// it, and nobody else: a key that is not known is not recorded, and nobody waits
// for its acceptance.
func (m *Master) admitClient(p broker.Peer, claimed string) bus.Identity {
	name, err := salt.ParseClientName(claimed)
	if err != nil {
		m.refuseUnaccepted(p, err)
		return bus.Identity{}
	}
	key, err := pki.PublicFromCertificate(p.TLS.PeerCertificates[0])
	if err != nil {
		m.refuseUnaccepted(p, err)
		return bus.Identity{}
	}
	i := bus.Identity{Role: bus.RoleClient, Name: string(name), Key: bus.KeyToken(key.Key()), Source: p.Remote}
	if why := m.clientRefusal(i, time.Now()); why != "" {
		if m.told.First("client "+i.Name+" "+i.Key, time.Now()) {
			m.log.Warn("client refused", "client", name, "remote", p.Remote, "reason", why, "fingerprint", key.SHA256())
		}
		m.auditLog.Note(audit.Entry{
			Kind: audit.Key, Who: audit.Who{User: salt.ClientPrefix + string(name), Source: p.Remote}, Fun: "key.connect", Finger: key.SHA256(), Reason: why,
		})
		return bus.Identity{}
	}
	m.log.Info("client connected", "client", name, "remote", p.Remote)
	return i
}

// clientRefusal says why a client may not be here, "" where it may. What cannot
// be read is a refusal.
func (m *Master) clientRefusal(i bus.Identity, now time.Time) string {
	c, err := m.keys.Store.Client(salt.ClientName(i.Name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "there are no credentials of this name"
	case err != nil:
		return "its credentials cannot be read: " + err.Error()
	case bus.KeyToken(c.Key.Key()) != i.Key:
		return "its credentials have another key"
	case c.Expired(now):
		return "its credentials have expired"
	}
	return ""
}

// cutClient ends the connection of a client whose credentials are no longer good.
func (m *Master) cutClient(i bus.Identity, cut func()) {
	if why := m.clientRefusal(i, time.Now()); why != "" {
		m.log.Info("cutting a connection", "client", i.Name, "reason", why)
		cut()
	}
}

// expiryLook is how long credentials may outlive their time.
const expiryLook = 10 * time.Second

// watchExpiry cuts the clients whose time is over. There are few of them.
func (m *Master) watchExpiry() {
	tick := time.NewTicker(expiryLook)
	defer tick.Stop()
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-tick.C:
		}
		m.broker.Connections(func(i bus.Identity, cut func()) {
			if i.Role == bus.RoleClient {
				m.cutClient(i, cut)
			}
		})
	}
}
