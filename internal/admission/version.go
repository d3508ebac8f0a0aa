package admission

import (
	"crypto/tls"
	"crypto/x509/pkix"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/upstream"
)

// CheckVersion refuses, within the handshake, who speaks no protocol that this master
// does.
func (a *Admission) CheckVersion(s tls.ConnectionState) error {
	err := upstream.Spoken(a.Version).CheckMinion(s)
	if err != nil && a.often.Few("version", time.Now(), maxUnfit) {
		id, _, _ := claim(&s) // it is only told
		a.Log.Warn("connection refused", "minion", id, "err", err)
	}
	return err
}

// Certificates are what the master shows to whoever connects: its key, the signature of the
// key where it is to have one, the protocols that it speaks, and the name by which it is
// connected to.
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

// maxUnfit is how often in a minute that is told.
const maxUnfit = 10
