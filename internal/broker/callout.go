package broker

import (
	"bytes"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/brinebus/brine/internal/bus"
)

// The accounts on servers that others run: that of the minions, that of whoever answers the
// servers, and that of the journal.
const (
	ExternalAccount = "BRINE"
	answererAccount = "BRINE_AUTH"
	// storeAccount is that of the journal: the master alone has a user there.
	storeAccount = "BRINE_JOURNAL"
)

const (
	authSubject = server.AuthCalloutSubject
	serverXKey  = server.AuthRequestXKeyHeader
	// maxQuestion limits the question of a server: the certificate of a peer is a few hundred
	// bytes, and the servers limit the line that it comes in.
	maxQuestion = 64 << 10
)

// asked answers the questions of servers who somebody is who has connected there.
func (x *External) asked() {
	for m := x.callouts.next(); m != nil; m = x.callouts.next() {
		answer, err := x.answer(m)
		if err == nil {
			err = m.Respond(answer)
		}
		if err != nil {
			x.throttle.Log(x.log, slog.LevelWarn, "asked", maxRefused, "a question of a NATS server was not answered, so the connection is refused", "err", err)
		}
	}
}

// answer returns the answer to a question. An error means that it does not come from a server
// that has the right configuration.
func (x *External) answer(m *nats.Msg) ([]byte, error) {
	xkey := m.Header.Get(serverXKey)
	if xkey == "" {
		return nil, errors.New("it is not encrypted: xkey is missing in auth_callout of the server")
	}
	if len(m.Data) > maxQuestion {
		return nil, fmt.Errorf("it has %d bytes", len(m.Data))
	}
	text, err := x.opts.Credentials.curve.Open(m.Data, xkey)
	if err != nil {
		return nil, fmt.Errorf("open it: %w", err)
	}
	q, err := jwt.DecodeAuthorizationRequestClaims(string(text))
	if err != nil {
		return nil, err
	}
	if q.Server.XKey != xkey || q.Audience != server.AuthRequestSubject {
		return nil, errors.New("it is not by the server that has encrypted it")
	}
	x.callouts.opened(q)
	a := jwt.NewAuthorizationResponseClaims(q.UserNkey)
	a.Audience = q.Server.ID
	i, err := x.judge(q)
	if err == nil {
		a.Jwt, err = x.claims(q.UserNkey, i)
	}
	if err != nil {
		x.refused(q, err)
		a.Jwt, a.Error = "", "not admitted" // the reason is for the master's log
	}
	token, err := a.Encode(x.opts.Credentials.issuer)
	if err != nil {
		return nil, err
	}
	return x.opts.Credentials.curve.Seal([]byte(token), xkey)
}

// errNotAdmitted is a refusal whose reason was logged by whoever has decided.
var errNotAdmitted = errors.New("not admitted")

func (x *External) refused(q *jwt.AuthorizationRequestClaims, err error) {
	if errors.Is(err, errNotAdmitted) {
		return
	}
	host := q.ClientInformation.Host
	if x.throttle.First(host, time.Now()) {
		x.throttle.Log(x.log, slog.LevelWarn, "", maxRefused, "connection refused", "remote", host, "server", q.Server.Name, "err", err)
	}
}

// judge identifies whoever has connected, and registers the connection.
func (x *External) judge(q *jwt.AuthorizationRequestClaims) (bus.Identity, error) {
	state, err := proof(q)
	if err != nil {
		return bus.Identity{}, err
	}
	if x.opts.Version != nil {
		if err := x.opts.Version(state); err != nil {
			return bus.Identity{}, fmt.Errorf("%w: %w", errNotAdmitted, err)
		}
	}
	o, from := q.ConnectOptions, q.ClientInformation
	if err := bus.CheckNonce(o.Username); err != nil {
		return bus.Identity{}, err
	}
	i := x.opts.Admit(Peer{Remote: from.Host, Host: networkOf(from.Host), Caller: o.Name == callerName, TLS: &state, Nonce: o.Username})
	i.Nonce = o.Username
	switch i.Role {
	case bus.RoleMinion, bus.RoleCaller, bus.RoleUnaccepted:
	case bus.RoleNobody:
		return bus.Identity{}, errNotAdmitted
	default:
		return bus.Identity{}, fmt.Errorf("a %s is not served through NATS servers", i.Role)
	}
	return i, x.enter(place{q.Server.ID, from.ID}, i)
}

// proof returns the certificate that a peer has sent, after the proof that it has the key of
// it: the server has not checked the signature over its nonce, which is ours to do.
func proof(q *jwt.AuthorizationRequestClaims) (none tls.ConnectionState, err error) {
	o, from := q.ConnectOptions, q.ClientInformation
	if from.Kind != "Client" || from.Type != "nats" {
		return none, fmt.Errorf("it is a %s of type %s: only clients of NATS are served", from.Kind, from.Type)
	}
	if q.TLS == nil {
		return none, errors.New("it does not use TLS")
	}
	der, err := base64.RawStdEncoding.DecodeString(o.Token)
	if err != nil || len(der) == 0 {
		return none, errors.New("it has sent no certificate")
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return none, err
	}
	key, ok := cert.PublicKey.(ed25519.PublicKey)
	if !ok {
		return none, fmt.Errorf("its key is %s: through NATS servers only Ed25519 keys can be proved", cert.PublicKeyAlgorithm)
	}
	raw, err := nkeys.Decode(nkeys.PrefixByteUser, []byte(o.Nkey))
	if err != nil || !bytes.Equal(raw, key) {
		return none, errors.New("its nkey is not the key of its certificate")
	}
	sig, err := base64.RawURLEncoding.DecodeString(o.SignedNonce)
	if err != nil || from.Nonce == "" || !ed25519.Verify(key, []byte(from.Nonce), sig) {
		return none, errors.New("it has not signed the nonce of this connection")
	}
	return tls.ConnectionState{Version: tls.VersionTLS13, HandshakeComplete: true, PeerCertificates: []*x509.Certificate{cert}}, nil
}

// networkOf returns what an address counts for in limits for each host.
func networkOf(host string) string {
	ip := net.ParseIP(host)
	if ip == nil {
		return host
	}
	return hostGroup(&net.TCPAddr{IP: ip})
}

// claims turns the rights of an identity into what the server enforces. An empty list would be
// "everything" to the server, so there all is denied.
func (x *External) claims(user string, i bus.Identity) (string, error) {
	c := jwt.NewUserClaims(user)
	c.Audience, c.Name = ExternalAccount, i.String()
	c.AllowedConnectionTypes.Add(jwt.ConnectionTypeStandard)
	c.Subs, c.Limits.Payload = maxSubs, maxPayload
	grant(&c.Pub, x.rights.Allowed(i, bus.Publish))
	grant(&c.Sub, x.rights.Allowed(i, bus.Subscribe))
	return c.Encode(x.opts.Credentials.issuer)
}

func grant(p *jwt.Permission, allow []string) {
	if len(allow) == 0 {
		p.Deny.Add(">")
		return
	}
	p.Allow.Add(allow...)
}
