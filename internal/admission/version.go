package admission

import (
	"crypto/tls"
	"crypto/x509/pkix"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/upstream"
)

// CheckVersion refuses, within the handshake, peers without a protocol that this master
// supports.
func (a *Admission) CheckVersion(s tls.ConnectionState) error {
	err := upstream.Spoken(a.Version).CheckMinion(s)
	if err != nil && a.often.Few("version", time.Now(), maxUnfit) {
		id, _, _ := claim(&s) // only for the log
		a.Log.Warn("connection refused", "minion", id, "err", err)
	}
	return err
}

// Certificates returns the certificates for peers: with the master's key, its signature if
// there is one, the supported protocols, and the name that the peer connects to.
func (a *Admission) Certificates(key *pki.PrivateKey, signature []byte) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	var shown []pkix.Extension
	if signature != nil {
		shown = append(shown, pkix.Extension{Id: pki.SignatureOID, Value: signature})
	}
	speaks, err := upstream.Spoken(a.Version).Extension()
	if err != nil {
		return nil, err
	}
	shown = append(shown, speaks)
	return newCertificates(func(others ...string) (tls.Certificate, error) {
		return key.NamedCertificate(bus.ServerName, others, shown...)
	})
}

// maxUnfit is how often in a minute that is logged.
const maxUnfit = 10
