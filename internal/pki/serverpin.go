package pki

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/brinebus/brine/internal/salt"
)

// ServerPins say which certificates of servers that others run are trusted. The zero value
// trusts none.
type ServerPins struct {
	Fingers []string // SHA-256 of certificates, as openssl x509 -fingerprint -sha256 prints them
	CAFile  string   // PEM file with the certificates of authorities; names are checked, too
}

// ErrServerPin is wrapped by the error about a server that is not one of those trusted.
var ErrServerPin = errors.New("the certificate of the server is not a trusted one")

// Untrusted reports whether err says that a server has shown a certificate that is not trusted.
func Untrusted(err error) bool {
	_, ca := errors.AsType[*tls.CertificateVerificationError](err)
	return ca || errors.Is(err, ErrServerPin)
}

// UntrustedHint adds a hint to such an error that has none: the one about authorities comes from the standard library.
func UntrustedHint(err error) error {
	if !Untrusted(err) || salt.Hint(err) != "" {
		return err
	}
	return salt.WithHint(err, "nats_ca must have the authority of the server's certificate, and the certificate the name or address that nats_servers has")
}

// Refused remembers which certificates of which servers were refused. The zero value is ready, and may be used
// concurrently; nil is never told anything.
type Refused struct {
	mu   sync.Mutex
	seen map[string]bool
}

// maxRefused is how many certificates are remembered. A server that shows a new one each time is not told of any more.
const maxRefused = 256

// First reports whether err is the first one that says that this certificate of this server is not trusted.
func (r *Refused) First(server string, err error) bool {
	if r == nil || !Untrusted(err) {
		return false
	}
	which := server + " " + err.Error()
	if ca, ok := errors.AsType[*tls.CertificateVerificationError](err); ok && len(ca.UnverifiedCertificates) > 0 { // the text has the time
		which = fmt.Sprintf("%s %x", server, sha256.Sum256(ca.UnverifiedCertificates[0].Raw))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[which] || len(r.seen) >= maxRefused {
		return false
	}
	if r.seen == nil {
		r.seen = map[string]bool{}
	}
	r.seen[which] = true
	return true
}

// TLS returns the client's side of TLS. If both fingerprints and authorities are given, a
// certificate must satisfy both.
func (p ServerPins) TLS() (*tls.Config, error) {
	if len(p.Fingers) == 0 && p.CAFile == "" {
		return nil, salt.WithHint(errors.New("neither nats_finger nor nats_ca is set: anybody could pretend to be the server"),
			"set nats_finger to what 'openssl x509 -noout -fingerprint -sha256 -in CERTIFICATE' prints for each server")
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS13}
	if p.CAFile != "" {
		text, err := os.ReadFile(p.CAFile)
		if err != nil {
			return nil, fmt.Errorf("nats_ca: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("nats_ca: there is no certificate in %s", p.CAFile)
		}
	}
	if len(p.Fingers) == 0 {
		return conf, nil
	}
	var sums [][]byte
	for _, f := range p.Fingers {
		sum, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(f), ":", ""))
		if err != nil || len(sum) != sha256.Size {
			return nil, salt.WithHint(fmt.Errorf("nats_finger: %q is not a SHA-256 fingerprint", f), "write its 64 hexadecimal digits, with or without colons")
		}
		sums = append(sums, sum)
	}
	conf.InsecureSkipVerify = p.CAFile == "" // without an authority, the fingerprint alone decides
	conf.VerifyConnection = func(s tls.ConnectionState) error { return checkPin(s, sums) }
	return conf, nil
}

// checkPin compares the certificate that the handshake has proved with the trusted ones.
func checkPin(s tls.ConnectionState, sums [][]byte) error {
	if len(s.PeerCertificates) == 0 {
		return fmt.Errorf("%w: it showed none", ErrServerPin)
	}
	have := sha256.Sum256(s.PeerCertificates[0].Raw)
	for _, sum := range sums {
		if bytes.Equal(sum, have[:]) {
			return nil
		}
	}
	return salt.WithHint(fmt.Errorf("%w: it has the fingerprint %s", ErrServerPin, colonHex(have[:])),
		"compare with the server's certificate; if it is the right one, add it to nats_finger")
}
