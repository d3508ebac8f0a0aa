package member

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/salt"
)

// The kinds of refusals: errors of Judge wrap one of these, or ErrUnread.
var (
	ErrNoMember = errors.New("it is not a master of this system") // no card: a minion's key, or a tool's
	ErrUnsigned = errors.New("its key is not signed")
	ErrForeign  = errors.New("its key is signed by another signing key")
	ErrCluster  = errors.New("it is a member of another system")
	ErrRemoved  = errors.New("it was removed")
	ErrSame     = errors.New("it has the key of this member")
	ErrTwin     = errors.New("it has the name or the key of another member")
	ErrVersion  = errors.New("its version does not fit")
)

// Rule decides who is a member. The zero value accepts nobody.
type Rule struct {
	Card   Card          // of this member
	Key    pki.PublicKey // of this member
	Signer pki.PublicKey // the public half of master_sign, which all members share
	// Removed returns the fingerprints of removed keys. It is called at each handshake, so that
	// a removal applies at once. If it fails, nobody is accepted; nil means that none are
	// removed.
	Removed func() (Fingerprints, error)
}

// LoadRule returns the rule of the member with this card and key. pkiDir has the public half of the
// signing key, in the file signer.pub, and the list of removed members.
func LoadRule(c Card, key pki.PublicKey, pkiDir, signer string) (Rule, error) {
	shared, err := pki.LoadPublic(filepath.Join(pkiDir, signer+".pub"))
	removed := RemovedFile(pkiDir)
	return Rule{Card: c, Key: key, Signer: shared, Removed: func() (Fingerprints, error) { return ReadRemoved(removed) }}, err
}

// Member is an accepted member.
type Member struct {
	Card
	Key pki.PublicKey
}

// Judge decides whether the owner of this certificate is a member; each end of a link calls it
// about the other. What no case accepts is refused. That the other end is that owner is known only
// when the handshake is finished.
func (r Rule) Judge(cert *x509.Certificate) (Member, error) {
	if cert == nil {
		return Member{}, refusal(ErrNoMember, pki.PublicKey{}, "", "it has shown no certificate")
	}
	key, err := pki.PublicFromCertificate(cert)
	if err != nil {
		return Member{}, refusal(ErrNoMember, key, "", err.Error())
	}
	card, ok, err := cardOf(cert)
	if !ok || err != nil {
		return Member{}, refusal(ErrNoMember, key, "only masters of this system may connect to this port; minions and tools use ret_port", cardFault(cert, err))
	}
	m := Member{card, key}
	if err := r.judgeKey(cert, m); err != nil {
		return Member{}, err
	}
	if err := r.judgeCard(m); err != nil {
		return Member{}, err
	}
	return m, nil
}

func cardFault(cert *x509.Certificate, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("its certificate is that of a minion or a tool, %.80q", cert.Subject.CommonName)
}

// judgeKey checks what only the holder of the signing key can have given.
func (r Rule) judgeKey(cert *x509.Certificate, m Member) error {
	sig := pki.SignatureIn(cert)
	switch {
	case r.Signer.IsZero():
		return refusal(ErrUnsigned, m.Key, "put the public half of the signing pair to the keys of this master", "this member has no key to check signatures with")
	case len(sig) == 0:
		return refusal(ErrUnsigned, m.Key, "sign it with the master_sign pair of this system: set master_sign_pubkey: True there, and copy the pair to it", fmt.Sprintf("%.80q shows no signature", m.Name))
	}
	if err := r.Signer.VerifyPublic(m.Key, sig); err != nil {
		return refusal(ErrForeign, m.Key, "members share one master_sign pair: compare master_sign.pub of both. To the one that has another pair copy master_sign.pem and master_sign.pub from another member, with owner and mode, and restart it",
			fmt.Sprintf("%.80q shows a signature that is not by %s", m.Name, r.Signer.SHA256()))
	}
	if m.Key == r.Key {
		return refusal(ErrSame, m.Key, "each member has a master key of its own: make a new one there (salt-key --gen-keys master)", fmt.Sprintf("%.80q was copied from here, or this member reaches itself under another address", m.Name))
	}
	return r.judgeRemoved(m)
}

func (r Rule) judgeRemoved(m Member) error {
	if r.Removed == nil {
		return nil
	}
	gone, err := r.Removed()
	if err != nil {
		return refusal(ErrUnread, m.Key, "", fmt.Sprintf("all members are refused while the list of removed members cannot be read: %v", err))
	}
	return m.NotIn(gone)
}

// NotIn refuses a member that was removed. Of a rule nothing else changes while members are linked.
func (m Member) NotIn(removed Fingerprints) error {
	if removed.Has(m.Key) {
		return refusal(ErrRemoved, m.Key, "give it a new key if it is to come back", fmt.Sprintf("the fingerprint of %.80q is in the list of removed members", m.Name))
	}
	return nil
}

// judgeCard compares what a member with a valid key says about itself.
func (r Rule) judgeCard(m Member) error {
	if m.Cluster != r.Card.Cluster {
		return refusal(ErrCluster, m.Key, "all members belong to one system: compare their configuration", fmt.Sprintf("%.80q belongs to %.80q, this one to %.80q", m.Name, m.Cluster, r.Card.Cluster))
	}
	if m.Name == r.Card.Name || m.Name == "" {
		return refusal(ErrSame, m.Key, "each member has a name of its own: was the folder of one's journal copied to the other?", fmt.Sprintf("it says that its name is %.80q, as this member's is %.80q", m.Name, r.Card.Name))
	}
	if err := r.Card.agree(m.Card); err != nil {
		return refusal(ErrVersion, m.Key, "members are upgraded one after the other, each by one version", err.Error())
	}
	return nil
}

// Beside refuses a member if another one that is linked has its name: the name is the identity in
// elections, and of the journal. The first one stays, so that a copy does not displace the original. For the
// same reason a key has one name: each counts for elections.
func (m Member) Beside(linked Member) error {
	switch {
	case m.Name == linked.Name && m.Key != linked.Key:
		return refusal(ErrTwin, m.Key, "each member has a name of its own, by its entry of cluster_peers: compare cluster_advertise of both. A member with a new key is accepted once the connection of the old one has ended",
			fmt.Sprintf("%.80q is the name of the linked member with the key %s", m.Name, linked.Key.SHA256()))
	case m.Name != linked.Name && m.Key == linked.Key:
		return refusal(ErrTwin, m.Key, "each member has a key of its own: was the pki_dir of one copied to another? A member with a new name is accepted once the connection under the old one has ended",
			fmt.Sprintf("it calls itself %.80q, and the linked member %.80q has the same key", m.Name, linked.Name))
	}
	return nil
}

func refusal(kind error, key pki.PublicKey, hint, why string) error {
	err := fmt.Errorf("no member: %w: %s", kind, why)
	if !key.IsZero() {
		err = fmt.Errorf("no member: %w: %s (key %s)", kind, why, key.SHA256())
	}
	if hint == "" {
		return err
	}
	return salt.WithHint(err, hint)
}

// Own returns the certificate of this member, if its own rule accepts it: otherwise only the
// others would know why they refuse it.
func (r Rule) Own(key *pki.PrivateKey, signature []byte) (tls.Certificate, error) {
	if r.Signer.IsZero() {
		return tls.Certificate{}, refusal(ErrUnsigned, key.Public(), "put the public half of the signing pair to the keys of this master", "this member has no key to check signatures with")
	}
	cert, err := r.Card.Certificate(key, signature)
	if err != nil {
		return tls.Certificate{}, refusal(ErrUnsigned, key.Public(), "set master_sign_pubkey: True, with the master_sign pair that all members share", err.Error())
	}
	other := r
	other.Key, other.Card.Name = pki.PublicKey{}, r.Card.Name+" elsewhere"
	_, err = other.Judge(cert.Leaf)
	return cert, err
}

// TLS is the configuration of both ends of a link, for the member with this key. Each end
// presents its certificate and checks the other one before anything is sent. refused is called
// with refusals; it may be nil.
//
// Names, dates and issuers in certificates do not count, here as elsewhere: only the key does,
// which Rule checks. So the library is told not to verify them.
func (r Rule) TLS(key *pki.PrivateKey, signature []byte, refused func(error)) (*tls.Config, error) {
	cert, err := r.Own(key, signature)
	if err != nil {
		return nil, err
	}
	r.Key = key.Public()
	return &tls.Config{
		Certificates:           []tls.Certificate{cert},
		MinVersion:             tls.VersionTLS13,
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true,
		SessionTicketsDisabled: true, // each link is checked anew
		VerifyConnection: func(s tls.ConnectionState) error {
			var shown *x509.Certificate
			if len(s.PeerCertificates) > 0 {
				shown = s.PeerCertificates[0]
			}
			_, err := r.Judge(shown)
			if err != nil && refused != nil {
				refused(err)
			}
			return err
		},
	}, nil
}
