package upstream

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	randv2 "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/salt"
)

// Servers are NATS servers that others run, through which the master is reached. The zero value means
// that it is reached directly.
type Servers struct {
	Addresses []string // host:port
	Trust     pki.ServerPins
	// Refused has the log tell, once, of a server that is not trusted while another one is in use; nil never does.
	Refused *pki.Refused
	tls     *tls.Config
}

func (s Servers) used() bool { return len(s.Addresses) > 0 }

// CheckServers finds mistakes in the settings of NATS servers that take more than a look at them.
func CheckServers(cfg *config.Minion) error {
	if len(cfg.NATSServers) == 0 {
		return nil
	}
	var errs []error
	if cfg.NATSCA != "" {
		_, err := pki.ServerPins{CAFile: cfg.NATSCA}.TLS()
		errs = append(errs, cfg.At("nats_ca", err))
	}
	if _, err := os.Lstat(keyFile(cfg)); pki.KeyType(cfg.KeyType) != pki.Ed25519 && errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, cfg.At("key_type", salt.WithHint(fmt.Errorf("key_type: %w; the one that a start makes would be %s", errKeyType, cfg.KeyType), "set key_type: ed25519, or leave it out")))
	}
	return errors.Join(errs...)
}

// CheckKey finds a key that exists and is of no use at NATS servers: a minion with it runs, and reaches no master.
// What else is wrong with the key is not looked for; without the right to read it the error is fs.ErrPermission.
func CheckKey(cfg *config.Minion) error {
	if len(cfg.NATSServers) == 0 {
		return nil
	}
	text, err := os.ReadFile(keyFile(cfg))
	if errors.Is(err, fs.ErrPermission) {
		return err
	}
	key, bad := pki.ParsePrivate(text)
	if err != nil || bad != nil {
		return nil //nolint:nilerr // the start makes one, or says what is wrong with it
	}
	return cfg.At("nats_servers", usable(key))
}

func keyFile(cfg *config.Minion) string { return filepath.Join(cfg.PKIDir, "minion.pem") }

// errKeyType is about a minion with a key that is of no use at NATS servers.
var errKeyType = errors.New("through nats_servers a minion is known by an Ed25519 key")

// usable returns an error for a key that is of no use at NATS servers.
func usable(key *pki.PrivateKey) error {
	if t := key.Type(); t != pki.Ed25519 {
		return salt.WithHint(fmt.Errorf("%w; the key of this one is %s", errKeyType, t),
			"stop the minion, remove minion.pem and minion.pub from its pki_dir, set key_type: ed25519 or leave it out, start the minion, and accept its new key")
	}
	return nil
}

// lasting reports whether no attempt can succeed before somebody changes a setting, a key or a certificate.
func lasting(err error) bool { return errors.Is(err, errKeyType) || pki.Untrusted(err) }

// throughServers makes one attempt at the master, through each of the servers in random order.
func throughServers(ctx context.Context, o Options) (*Connection, error) {
	err := usable(o.Key)
	if err != nil {
		return nil, err
	}
	if o.Servers.tls, err = o.Servers.Trust.TLS(); err != nil {
		return nil, err
	}
	var refused error
	var failed attempts
	list := o.Servers.Addresses
	for _, n := range randv2.Perm(len(list)) {
		l, err := throughServer(ctx, o, list[n])
		switch {
		case err == nil:
			failed.tellRefused(o)
			return l, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case isRefusal(err):
			refused = err
		default:
			failed = append(failed, serverAttempt{list[n], err})
		}
	}
	if len(failed) == 0 {
		return nil, refused
	}
	return nil, failed.join(o.Name)
}

// serverAttempt is why the master was not reached through one server.
type serverAttempt struct {
	server string
	err    error
}

type attempts []serverAttempt

// tellRefused logs which servers were not trusted, where nothing else would: the master was reached through another one.
func (list attempts) tellRefused(o Options) {
	for _, a := range list {
		if o.Servers.Refused.First(a.server, a.err) {
			o.Log.Warn("the certificate of a NATS server is not trusted: the minion uses another server", "server", a.server, "err", a.err, "hint", salt.Hint(a.err))
		}
	}
}

// unreached is why the master was not reached through any server. It has the hint of what cannot end by waiting, if
// there is one: that helps more than that of another server.
type unreached struct {
	text    string
	reasons []error
}

func (u *unreached) Error() string   { return u.text }
func (u *unreached) Unwrap() []error { return u.reasons }

// join makes one line of all attempts. Servers with the same reason share it.
func (list attempts) join(master string) error {
	u := new(unreached)
	servers := map[string][]string{} // by the reason
	var order []string
	slices.SortFunc(list, func(a, b serverAttempt) int {
		if one := lasting(a.err); one != lasting(b.err) {
			return map[bool]int{true: -1, false: 1}[one]
		}
		return cmp.Compare(a.server, b.server) // they were tried in random order
	})
	for _, a := range list {
		text := strings.ReplaceAll(a.err.Error(), "\n", ", ") // of several addresses of a name
		text = strings.ReplaceAll(text, "dial tcp "+a.server+": ", "")
		if servers[text] == nil {
			order = append(order, text)
		}
		servers[text] = append(servers[text], a.server)
		u.reasons = append(u.reasons, a.err)
	}
	for i, text := range order {
		order[i] = "through " + strings.Join(servers[text], ", ") + ": " + text
	}
	u.text = "connect to the master " + master + " " + strings.Join(order, "; ")
	return u
}

func throughServer(ctx context.Context, o Options, server string) (*Connection, error) {
	o.Address = server
	addresses, err := resolve(ctx, o)
	if err != nil {
		return nil, err
	}
	var conn net.Conn
	if conn, _, err = dialFirst(ctx, o, addresses); err != nil {
		return nil, err
	}
	return connectOver(ctx, o, conn)
}

// login returns the options that identify the minion to the other side: by its certificate in
// TLS where the master is there, otherwise by its key as an nkey, with the certificate beside.
func (o Options) login(self bus.Identity, certificate tls.Certificate, hand *handshake) []nats.Option {
	if !o.Servers.used() {
		return []nats.Option{nats.UserInfo(self.Nonce, ""), nats.Secure(&tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate},
			// Names and dates in certificates do not count: verify compares the key.
			InsecureSkipVerify: true, VerifyConnection: hand.verify, //nolint:gosec
		})}
	}
	key, _ := o.Key.Public().Key().(ed25519.PublicKey) // throughServers has checked the type
	nkey, err := nkeys.Encode(nkeys.PrefixByteUser, key)
	if err != nil {
		return []nats.Option{func(*nats.Options) error { return err }}
	}
	conf := o.Servers.tls.Clone()
	trusted := conf.VerifyConnection
	conf.VerifyConnection = func(s tls.ConnectionState) error {
		if trusted != nil {
			if err := trusted(s); err != nil {
				return err
			}
		}
		hand.server = true
		return nil
	}
	return []nats.Option{
		nats.UserInfo(self.Nonce, ""), nats.Secure(conf), nats.Token(base64.RawStdEncoding.EncodeToString(certificate.Certificate[0])),
		nats.Nkey(string(nkey), func(nonce []byte) ([]byte, error) { return signNonce(o.Key, nonce) }),
	}
}

// maxServerNonce is more than the nonce of a NATS server has.
const maxServerNonce = 64

// signNonce signs the nonce of a server, and nothing that is more than that: the same key signs
// TLS handshakes with masters, and a server that could choose the text could pretend to be this
// minion there.
func signNonce(key *pki.PrivateKey, nonce []byte) ([]byte, error) {
	if len(nonce) == 0 || len(nonce) > maxServerNonce {
		return nil, fmt.Errorf("the server asks for a signature of %d bytes, and a nonce has fewer, or none: is there an nkey user in its configuration?", len(nonce))
	}
	for _, c := range nonce {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
			return nil, errors.New("the server asks for a signature of a text that cannot be a nonce")
		}
	}
	return key.Sign(nonce)
}

// challenge returns what the master has to sign, nil where TLS has proved its key.
func (o Options) challenge() []byte {
	if !o.Servers.used() {
		return nil
	}
	b := make([]byte, protocol.ChallengeSize)
	_, _ = rand.Read(b) // never fails
	return b
}

// checkProof checks that the master itself has answered, as the handshake does where TLS ends
// at the master. Without it, nothing of the answer counts.
func (l *Connection) checkProof(h *handshake, challenge []byte, a protocol.AskAnswer) error {
	if challenge == nil {
		return nil
	}
	cert, err := x509.ParseCertificate(a.Certificate)
	if err != nil {
		return fmt.Errorf("the answer proves no key of a master: %w", err)
	}
	key, err := pki.PublicFromCertificate(cert)
	if err != nil {
		return err
	}
	if err := key.Verify(protocol.ProofText(challenge, l.Inbox()), a.Proof); err != nil {
		return fmt.Errorf("%w: the answer through the NATS servers does not prove its key: %w", ErrMasterKey, err)
	}
	if err := h.verify(tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}); err != nil {
		return err
	}
	l.Master = h.shown
	return h.unfit
}

// errUnanswered is about a connection that a NATS server has refused, or has not decided about.
// It does not say whether a master has refused it, or none was there to ask.
var errUnanswered = errors.New("the NATS server does not let this minion in: no master is at work there, or it does not take this connection")

// serverError finds the cause of a failed connection through a server.
func (h *handshake) serverError(err error) error {
	switch {
	case errors.Is(err, nats.ErrNkeysNotSupported):
		return salt.WithHint(err, "the server has not the configuration of the master: give it what 'salt-master --nats-config' prints, and restart it")
	case h.server && bus.Undecided(err):
		return salt.WithHint(errUnanswered, "see the log of the master")
	case h.server:
		return salt.WithHint(fmt.Errorf("%w: %w", errUnanswered, err), "see the log of the master")
	case errors.Is(err, nats.ErrSecureConnWanted), errors.Is(err, nats.ErrSecureConnRequired):
		return errors.New("the NATS server does not offer TLS")
	}
	return pki.UntrustedHint(err)
}
