package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"log/slog"
	"strings"
	"time"

	"github.com/brinebus/brine/internal/audit"
	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// claimedClient reads the name of a client from a certificate; ok is false for the certificate
// of a minion. The name is only claimed.
func claimedClient(s *tls.ConnectionState) (name string, ok bool) {
	if len(s.PeerCertificates) == 0 {
		return "", false
	}
	return strings.CutPrefix(s.PeerCertificates[0].Subject.CommonName, salt.ClientPrefix)
}

// admitClient admits a program with credentials that an operator has made for it: an unknown
// key is not recorded and cannot be accepted later.
func (a *Admission) admitClient(p broker.Peer, claimed string) bus.Identity {
	name, err := salt.ParseClientName(claimed)
	if err != nil {
		a.refuseUnaccepted(p, err)
		return bus.Identity{}
	}
	key, err := pki.PublicFromCertificate(p.TLS.PeerCertificates[0])
	if err != nil {
		a.refuseUnaccepted(p, err)
		return bus.Identity{}
	}
	i := bus.Identity{Role: bus.RoleClient, Name: string(name), Key: bus.KeyToken(key.Key()), Source: p.Remote}
	if why := a.clientRefusal(i, time.Now()); why != "" {
		a.throttle.Log(a.Log, slog.LevelWarn, "client "+i.Name+" "+i.Key, 1, "client refused", "client", name, "remote", p.Remote, "reason", why, "fingerprint", key.SHA256())
		a.Audit.Note(audit.Entry{
			Kind: audit.Key, Who: audit.Who{User: salt.ClientPrefix + string(name), Source: p.Remote}, Fun: "key.connect", Finger: key.SHA256(), Reason: why,
		})
		return bus.Identity{}
	}
	a.often.Log(a.Log, slog.LevelInfo, "client "+i.Name, maxConnected, "client connected", "client", name, "remote", p.Remote)
	return i
}

// clientRefusal returns why a client may not be connected, "" if it may. If that cannot be
// read, it is refused.
func (a *Admission) clientRefusal(i bus.Identity, now time.Time) string {
	c, err := a.Keys.Store.Client(salt.ClientName(i.Name))
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

// cutClient ends the connection of a client whose credentials are no longer valid.
func (a *Admission) cutClient(i bus.Identity, cut func()) {
	if why := a.clientRefusal(i, time.Now()); why != "" {
		a.Log.Info("cutting a connection", "client", i.Name, "reason", why)
		cut()
	}
}

// expiryLook is how long credentials may still be used after they expire.
const expiryLook = 10 * time.Second

// WatchExpiry cuts clients with expired credentials. There are few clients.
func (a *Admission) WatchExpiry(ctx context.Context) {
	look(ctx, func() {
		a.Connections.ConnectionsOf(nil, func(i bus.Identity, cut func()) {
			if i.Role == bus.RoleClient {
				a.cutClient(i, cut)
			}
		})
	})
}

// look calls f every expiryLook until ctx ends.
func look(ctx context.Context, f func()) {
	tick := time.NewTicker(expiryLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f()
		}
	}
}
