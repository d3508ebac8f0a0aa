package link

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"

	"brine/internal/atomicfile"
	"brine/internal/pki"
	"brine/internal/salt"
)

// SignatureOID marks the certificate extension in which a master shows the
// signature of its public key, so that a minion has it within the handshake,
// before it sends anything.
var SignatureOID = asn1.ObjectIdentifier{2, 25, 1298494721, 1}

// Trust says which master keys a minion takes. The zero value pins the key of
// the first contact.
type Trust struct {
	Finger     string // master_finger: what every contact must show; "" takes any
	FingerHash string // hash_type, for Finger
	OpenMode   bool   // a changed key is taken, too

	Verify     bool          // verify_master_pubkey_sign: only a signed key is taken
	VerifyFile string        // the public key that signatures are checked with
	VerifyKey  pki.PublicKey // what is in it; zero when it is missing
	SHA1       bool          // signing_algorithm names SHA-1: signatures of old pairs are taken
}

// judge says whether a master that shows this key and signature (nil for none) is
// trusted. pinned is the key that was trusted before, zero at the first contact.
// It falls through to the comparison with pinned; each error is a refusal.
func (t Trust) judge(address, pinFile string, pinned, shown pki.PublicKey, sig []byte) error {
	if err := t.judgeFinger(address, shown); err != nil {
		return err
	}
	switch {
	case t.Verify && sig == nil:
		return salt.WithHint(fmt.Errorf("%w: The master did not send its public-key signature, but signature verification is enabled on the minion. Either disable signature verification on the minion or enable signing the public on the master! The master at %s has the fingerprint %s", ErrSignature, address, shown.SHA256()),
			"the settings are verify_master_pubkey_sign of the minion and master_sign_pubkey of the master")
	case !t.Verify && sig != nil:
		return salt.WithHint(fmt.Errorf("%w: The masters sent its public-key signature, but signature verification is not enabled on the minion. Either enable signature verification on the minion or disable signing the public key on the master! The master at %s has the fingerprint %s", ErrSignature, address, shown.SHA256()),
			"the settings are verify_master_pubkey_sign of the minion, with the public half of the signing pair beside its keys, and master_sign_pubkey of the master")
	case t.Verify:
		return t.judgeSignature(address, shown, sig)
	case pinned.IsZero(), pinned.Equal(shown), t.OpenMode:
		return nil
	}
	return salt.WithHint(fmt.Errorf("%w: The master key has changed, the salt master could have been subverted, verify salt master's public key: the master at %s has the fingerprint %s, the trusted key in %s has %s",
		ErrMasterKey, address, shown.SHA256(), pinFile, pinned.SHA256()),
		"compare with 'salt-key -F master' on the master; if its key was changed on purpose, remove "+pinFile+" and restart the minion")
}

func (t Trust) judgeFinger(address string, shown pki.PublicKey) error {
	if t.Finger == "" {
		return nil
	}
	have, err := shown.Fingerprint(t.FingerHash)
	if err != nil {
		return err
	}
	if strings.EqualFold(have, t.Finger) {
		return nil
	}
	return salt.WithHint(fmt.Errorf("%w: the master at %s has the fingerprint %s, master_finger says %s", ErrMasterKey, address, have, t.Finger),
		"compare with 'salt-key -F master' on the master; if it is the right one, correct master_finger")
}

// judgeSignature checks the signature every time, also of a key that is pinned
// already.
func (t Trust) judgeSignature(address string, shown pki.PublicKey, sig []byte) error {
	if t.VerifyKey.IsZero() {
		return salt.WithHint(fmt.Errorf("%w: Verification public key %s does not exist. You need to copy it from the master to the minions pki directory; the master at %s has the fingerprint %s",
			ErrSignature, filepath.Base(t.VerifyFile), address, shown.SHA256()), "copy it to "+t.VerifyFile)
	}
	err := t.VerifyKey.VerifyPublic(shown, sig)
	if err != nil && t.SHA1 {
		err = t.VerifyKey.VerifyPublicSHA1(shown, sig)
	}
	if err == nil {
		return nil
	}
	return salt.WithHint(fmt.Errorf("%w: Received signed public-key from master %s but signature verification failed! The master's key has the fingerprint %s; the verification key in %s has %s",
		ErrSignature, address, shown.SHA256(), t.VerifyFile, t.VerifyKey.SHA256()),
		"on the master, 'salt-key --verify-signature' tells which keys belong to its signature; the verification key must be the public half of its signing key")
}

// handshake is the judgement of one connection.
type handshake struct {
	trust   Trust
	master  string // its name
	pinFile string
	log     *slog.Logger
	pinned  pki.PublicKey // zero at the first contact
	shown   pki.PublicKey
	refusal error
}

func newHandshake(o Options) (*handshake, error) {
	h := &handshake{trust: o.Trust, master: o.Name, pinFile: o.PinFile, log: o.Log}
	var err error
	h.pinned, err = pki.LoadPublic(o.PinFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		// What can not be read is no trust.
		return nil, salt.WithHint(fmt.Errorf("%w: %w", ErrMasterKey, err),
			"repair the file; or compare with 'salt-key -F master' on the master, remove the file, and restart the minion")
	}
	return h, nil
}

// verify is called within the handshake, before anything is sent to the master.
func (h *handshake) verify(s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the master showed no certificate")
	}
	key, err := pki.PublicFromCertificate(s.PeerCertificates[0])
	if err != nil {
		return err
	}
	h.shown = key
	sig := signatureOf(s.PeerCertificates[0])
	if sig != nil && h.trust.Verify {
		h.log.Debug("salt.crypt.verify_signature: Loading public key")
		h.log.Debug("salt.crypt.verify_signature: Verifying signature")
	}
	h.refusal = h.trust.judge(h.master, h.pinFile, h.pinned, key, sig)
	if h.refusal == nil && h.trust.Verify {
		h.log.Debug("Successfully verified signature of master public key with verification public key " + filepath.Base(h.trust.VerifyFile))
		h.log.Info("Received signed and verified master pubkey from master " + h.master)
	}
	if errors.Is(h.refusal, ErrSignature) && sig != nil && h.trust.Verify {
		h.log.Debug("Failed to verify signature of public key")
	}
	return h.refusal
}

func signatureOf(c *x509.Certificate) []byte {
	for _, e := range c.Extensions {
		if e.Id.Equal(SignatureOID) {
			return e.Value
		}
	}
	return nil
}

// pin keeps the key that the handshake has proven, if it is not the one that is
// kept already.
func (h *handshake) pin() error {
	if h.pinned.Equal(h.shown) {
		return nil
	}
	switch {
	case !h.pinned.IsZero() && h.trust.Verify: // masters with one signing key take turns
		h.log.Debug("a signed key of another master", "master", h.master, "fingerprint", h.shown.SHA256(), "before", h.pinned.SHA256())
	case !h.pinned.IsZero():
		h.log.Warn("the master's key has changed; the new one is trusted from now on", "master", h.master, "fingerprint", h.shown.SHA256(), "before", h.pinned.SHA256())
	default:
		h.log.Info("trusting the master's key from now on", "master", h.master, "fingerprint", h.shown.SHA256(), "file", h.pinFile)
	}
	if err := atomicfile.Write(h.pinFile, h.shown.PEM(), 0o644); err != nil {
		return fmt.Errorf("keep the master's key: %w", err)
	}
	return nil
}
