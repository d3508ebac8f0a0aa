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

// Certificate is what the master shows to whoever connects: its key, the signature of the
// key where it is to have one, and the protocols that it speaks.
func (a *Admission) Certificate(key *pki.PrivateKey, signature []byte) (tls.Certificate, error) {
	var shown []pkix.Extension
	if signature != nil {
		shown = append(shown, pkix.Extension{Id: pki.SignatureOID, Value: signature})
	}
	speaks, err := upstream.Spoken(a.Version).Extension()
	if err != nil {
		return tls.Certificate{}, err
	}
	return key.ServerCertificate(bus.ServerName, append(shown, speaks)...)
}

// maxUnfit is how often in a minute that is told.
const maxUnfit = 10
