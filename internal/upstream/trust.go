package upstream

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"github.com/brinebus/brine/internal/atomicfile"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// Trust is which master keys a minion trusts. The zero value pins the key of the first contact.
type Trust struct {
	Fingers    []string // master_finger: the key must have one of these; none accepts any
	FingerHash string   // hash_type, for Fingers
	FirstUse   FirstUse // master_trust_on_first_use
	OpenMode   bool     // a key other than the pinned one is accepted, but not stored

	// Members are the fingerprints of the keys that a trusted master has named as those of the
	// members of its cluster. Learned means that the address was named with them, and is not in the
	// configuration: then nothing is trusted that is neither signed nor pinned nor one of them, and
	// nothing is pinned.
	Members []string
	Learned bool

	Verify        bool          // verify_master_pubkey_sign: only a signed key is accepted
	AllowUnsigned bool          // allow_unsigned_master: a key without a signature is handled as without Verify
	VerifyFile    string        // the public key that signatures are checked with
	VerifyKey     pki.PublicKey // its content; zero if it is missing
	VerifyErr     error         // why it cannot be used; nil if it is only missing
	SHA1          bool          // signing_algorithm is SHA-1: signatures of old key pairs are accepted
}

// FirstUse is which new keys are trusted without any other proof.
type FirstUse int

// The zero value trusts one key, as Salt does: that of the first contact.
const (
	FirstOnly  FirstUse = iota // as long as no key is pinned at all
	EachMaster                 // the first key at each address
	NeverFirst                 // none
)

// basis is why a master is trusted. The zero value is a refusal.
type basis int

const (
	refused   basis = iota
	onSign          // a signature: the key replaces the pinned one
	onPin           // the key is pinned
	onMember        // a trusted master has named it; it is not stored, so that it can be forgotten
	onFinger        // master_finger names it
	onFirst         // the first contact
	onOpening       // open_mode: the key is not stored
)

// judge decides why a master with this key and signature (nil for none) is trusted. If no case
// applies, it refuses with an error.
func (t Trust) judge(address string, p pins, shown pki.PublicKey, sig []byte) (basis, error) {
	if err := t.judgeFinger(address, shown); err != nil {
		return refused, err
	}
	switch {
	case t.Verify && t.VerifyErr != nil:
		return refused, t.VerifyErr
	case t.Verify && sig == nil && !t.AllowUnsigned:
		return refused, salt.WithHint(fmt.Errorf("%w: The master did not send its public-key signature, but signature verification is enabled on the minion. Either disable signature verification on the minion or enable signing the public on the master! The master at %s has the fingerprint %s", ErrSignature, address, shown.SHA256()),
			"the settings are verify_master_pubkey_sign of the minion and master_sign_pubkey of the master")
	case !t.Verify && sig != nil:
		return refused, salt.WithHint(fmt.Errorf("%w: The masters sent its public-key signature, but signature verification is not enabled on the minion. Either enable signature verification on the minion or disable signing the public key on the master! The master at %s has the fingerprint %s", ErrSignature, address, shown.SHA256()),
			"the settings are verify_master_pubkey_sign of the minion, with the public half of the signing pair beside its keys, and master_sign_pubkey of the master")
	case t.Verify && sig != nil:
		if err := t.judgeSignature(address, shown, sig); err != nil {
			return refused, err
		}
		return onSign, nil
	}
	return t.judgePins(address, p, shown)
}

// judgePins compares the key with the pinned ones. If a key is pinned for the address, only
// that one is trusted; otherwise any pinned one is.
func (t Trust) judgePins(address string, p pins, shown pki.PublicKey) (basis, error) {
	switch here := p.here(); {
	case here.Equal(shown), here.IsZero() && p.has(shown):
		return onPin, nil
	case here.IsZero() && slices.Contains(t.Members, shown.SHA256()):
		return onMember, nil
	case t.Learned:
		return refused, t.refuseMember(address, p, shown)
	case len(t.Fingers) > 0 && (p.empty() || p.isNew()): // judgeFinger has checked it already
		return onFinger, nil
	case p.empty() && t.FirstUse != NeverFirst:
		return onFirst, nil
	case p.isNew() && t.FirstUse == EachMaster && !p.homeless():
		return onFirst, nil
	case t.OpenMode:
		return onOpening, nil
	}
	return refused, p.refusal(address, shown)
}

// refuseMember returns why shown is not trusted at the address of a member.
func (t Trust) refuseMember(address string, p pins, shown pki.PublicKey) error {
	if here := p.here(); !here.IsZero() {
		return p.refusal(address, shown)
	}
	named := "no key of it is known"
	if len(t.Members) > 0 {
		named = "its key has " + strings.Join(t.Members, ", ")
	}
	return salt.WithHint(fmt.Errorf("%w: the master at %s has the fingerprint %s; it was named as a member of the masters' cluster, and %s", ErrMasterKey, address, shown.SHA256(), named),
		"compare with 'salt-key -F master' on that master; if its key was changed on purpose, the minion learns about it from another member")
}

// refusal returns why shown is not trusted, and what an operator can do.
func (p pins) refusal(address string, shown pki.PublicKey) error {
	const compare = "compare with 'salt-key -F master' on the master; "
	changed := func(file string) error {
		return fmt.Errorf("%w: The master key has changed, the salt master could have been subverted, verify salt master's public key: the master at %s has the fingerprint %s, the trusted key in %s has %s",
			ErrMasterKey, address, shown.SHA256(), file, p.keys[file].SHA256())
	}
	files := p.files()
	switch {
	case p.empty():
		return salt.WithHint(fmt.Errorf("%w: no key is pinned, and master_trust_on_first_use is never; the master at %s has the fingerprint %s", ErrMasterKey, address, shown.SHA256()),
			compare+"if it is the right one, name it in master_finger, or write its master.pub to "+p.own)
	case len(files) == 1 && len(p.damaged) == 0 && (files[0] == p.own || isPlain(p.own)):
		return salt.WithHint(changed(files[0]), compare+"if its key was changed on purpose, remove "+files[0]+" and restart the minion")
	case !p.here().IsZero():
		return salt.WithHint(changed(p.own), compare+"if its key was changed on purpose, remove "+p.own+" and write the new master.pub there")
	}
	hint := compare + "if it is a master of this minion, write its master.pub to " + p.own
	if p.isNew() {
		hint += ", or name its fingerprint in master_finger; with master_trust_on_first_use: each, each master of a list is pinned when it is first met, after those whose keys are pinned were met again"
	}
	return salt.WithHint(fmt.Errorf("%w: the master at %s has the fingerprint %s, which no pinned key has: %s", ErrMasterKey, address, shown.SHA256(), p), hint)
}

func (t Trust) judgeFinger(address string, shown pki.PublicKey) error {
	if len(t.Fingers) == 0 {
		return nil
	}
	have, err := shown.Fingerprint(t.FingerHash)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(t.Fingers, func(f string) bool { return strings.EqualFold(have, f) }) {
		return nil
	}
	return salt.WithHint(fmt.Errorf("%w: the master at %s has the fingerprint %s, master_finger says %s", ErrMasterKey, address, have, strings.Join(t.Fingers, ", ")),
		"compare with 'salt-key -F master' on the master; if it is the right one, correct master_finger")
}

// judgeSignature checks the signature each time, even of a pinned key.
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

// handshake checks the master in one connection.
type handshake struct {
	trust   Trust
	master  string // its name
	latest  string // second file for signed keys, "" for none
	log     *slog.Logger
	pins    pins
	shown   pki.PublicKey
	sig     []byte
	basis   basis
	refusal error
	server  bool // a NATS server between has shown a trusted certificate
	speaks  Protocol
	other   Protocol // of the master
	unfit   error    // the master has another protocol; the handshake goes on, so that it learns the same about us
}

func newHandshake(o Options) (*handshake, error) {
	h := &handshake{trust: o.Trust, master: o.Name, latest: o.LatestFile, log: o.Log, speaks: o.Speaks}
	var err error
	if h.pins, err = loadPins(o.PinFile); err != nil {
		// Unreadable pins mean no trust.
		return nil, salt.WithHint(fmt.Errorf("%w: %w", ErrMasterKey, err),
			"repair the file; or compare with 'salt-key -F master' on the master, remove the file, and restart the minion")
	}
	return h, nil
}

// verify is called during the handshake, before anything is sent to the master.
func (h *handshake) verify(s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the master showed no certificate")
	}
	key, err := pki.PublicFromCertificate(s.PeerCertificates[0])
	if err != nil {
		return err
	}
	h.shown, h.sig = key, pki.SignatureIn(s.PeerCertificates[0])
	signed := h.sig != nil && h.trust.Verify
	if signed {
		h.log.Debug("salt.crypt.verify_signature: Loading public key")
		h.log.Debug("salt.crypt.verify_signature: Verifying signature")
	}
	h.basis, h.refusal = h.trust.judge(h.master, h.pins, key, h.sig)
	switch {
	case h.basis == onSign:
		h.log.Debug("Successfully verified signature of master public key with verification public key " + filepath.Base(h.trust.VerifyFile))
		h.log.Info("Received signed and verified master pubkey from master " + h.master)
	case errors.Is(h.refusal, ErrSignature) && signed:
		h.log.Debug("Failed to verify signature of public key")
	}
	if h.refusal == nil {
		other, err := protocolOf(s.PeerCertificates[0])
		if err == nil {
			err = agree(other, h.speaks)
		}
		h.other, h.unfit = other, err
	}
	return h.refusal
}

// pin stores the key that the handshake has proved, unless it is stored already.
func (h *handshake) pin() error {
	h.tell()
	if !h.outdated(h.pins.own) && !h.outdated(h.latest) {
		return nil
	}
	unlock, err := pki.LockDir(filepath.Dir(h.pins.own))
	if err != nil {
		return err
	}
	defer unlock()
	// Of two first contacts at the same time, of two masters or of salt-call and the daemon,
	// only one may count as the first.
	if h.pins, err = loadPins(h.pins.own); err == nil {
		h.basis, err = h.trust.judge(h.master, h.pins, h.shown, h.sig)
	}
	if err != nil {
		return err
	}
	for _, file := range []string{h.pins.own, h.latest} {
		if err := h.keep(file); err != nil {
			return err
		}
	}
	return nil
}

// tell logs warnings if trust is weaker than configured.
func (h *handshake) tell() {
	if h.trust.Verify && h.basis != onSign {
		h.log.Warn("the master did not send a signature of its public key; allow_unsigned_master lets it pass", "master", h.master, "fingerprint", h.shown.SHA256())
	}
	if h.basis == onOpening {
		h.log.Warn("the master's key is not a pinned one; open_mode lets it pass, and it is not kept", "master", h.master, "fingerprint", h.shown.SHA256(), "pinned", h.pins.String())
	}
}

// outdated reports whether the file of a pinned key must be written: it is missing, or contains
// another key than the signed one.
func (h *handshake) outdated(file string) bool {
	have, ok := h.pins.keys[file]
	switch {
	case file == "", h.basis == onOpening, h.basis == onMember, h.trust.Learned:
		return false
	case ok:
		return h.basis == onSign && !have.Equal(h.shown)
	}
	return file == h.pins.own || h.basis == onSign
}

// keep writes the file of a pinned key, if it is outdated.
func (h *handshake) keep(file string) error {
	if !h.outdated(file) {
		return nil
	}
	before, known := h.pins.keys[file]
	switch {
	case known && file == h.latest: // several masters have the same signing key
		h.log.Debug("a signed key of another master", "master", h.master, "fingerprint", h.shown.SHA256(), "before", before.SHA256())
	case known:
		h.log.Warn("the master has a new key, which is signed; it is trusted from now on", "master", h.master, "fingerprint", h.shown.SHA256(), "before", before.SHA256())
	case h.basis == onPin:
		h.log.Info("the master has a key that is pinned already; it is now kept for its address, too", "master", h.master, "fingerprint", h.shown.SHA256(), "file", file)
	default:
		h.log.Info("trusting the master's key from now on", "master", h.master, "fingerprint", h.shown.SHA256(), "file", file)
	}
	if err := atomicfile.Write(file, h.shown.PEM(), 0o644); err != nil {
		return fmt.Errorf("keep the master's key: %w", err)
	}
	return nil
}
