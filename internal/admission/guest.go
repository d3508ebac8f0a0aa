package admission

import (
	"context"
	"crypto/tls"
	"log/slog"

	"github.com/brinebus/brine/internal/broker"
	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/pki"
)

// isGuest reports whether a peer says that it has no credentials.
func isGuest(s *tls.ConnectionState) bool {
	return len(s.PeerCertificates) > 0 && s.PeerCertificates[0].Subject.CommonName == bus.GuestCertificate
}

// admitGuest admits a peer without credentials, for a login only; its key is not recorded. A
// peer that has just logged in, with the same key on another connection, is admitted as the
// user whose login announced this connection.
func (a *Admission) admitGuest(p broker.Peer) bus.Identity {
	key, err := pki.PublicFromCertificate(p.TLS.PeerCertificates[0])
	if err != nil {
		a.refuseUnaccepted(p, err)
		return bus.Identity{}
	}
	i := bus.Identity{Role: bus.RoleGuest, Name: p.Host, Key: bus.KeyToken(key.Key()), Nonce: p.Nonce, Source: p.Remote}
	if name := a.Logins.Remote(i.Inbox()); name != "" {
		i.Role, i.Name = bus.RoleRemote, name
		a.often.Log(a.Log, slog.LevelInfo, "user "+name, maxConnected, "remote user connected", "user", name, "remote", p.Remote)
	}
	return i
}

// WatchLogins cuts the connections of remote users whose login is no longer valid. They could
// request nothing, but would count for the limits.
func (a *Admission) WatchLogins(ctx context.Context) {
	look(ctx, func() { a.CutEnded(ctx) })
}

// CutEnded cuts those of the present connections.
func (a *Admission) CutEnded(ctx context.Context) {
	remote := func(i bus.Identity) bool { return i.Role == bus.RoleRemote }
	a.Connections.ConnectionsOf(remote, func(i bus.Identity, cut func()) {
		if !a.Logins.Holds(ctx, i) {
			a.Log.Info("cutting a connection: its login has ended", "user", i.Name, "remote", i.Source)
			cut()
		}
	})
}
