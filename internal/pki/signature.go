package pki

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"strings"
)

// SignPublic returns the signature by which a master's public key is recognised
// (master_sign_pubkey): that of k over the canonical PEM text of p.
func (k *PrivateKey) SignPublic(p PublicKey) ([]byte, error) { return k.Sign(p.PEM()) }

// VerifyPublic returns nil if sig is a result of SignPublic for the key signed.
func (p PublicKey) VerifyPublic(signed PublicKey, sig []byte) error {
	return p.Verify(signed.PEM(), sig)
}

// VerifyPublicSHA1 is VerifyPublic for signatures by Salt's master_sign.pem: RSA, PKCS #1 v1.5
// with SHA-1, over the canonical text with or without its final newline, in which Salt's
// versions differ. It is only for configurations whose signing_algorithm is SHA-1.
func (p PublicKey) VerifyPublicSHA1(signed PublicKey, sig []byte) error {
	key, ok := p.Key().(*rsa.PublicKey)
	text := signed.PEM()
	if ok && (fitsSHA1(key, text, sig) || fitsSHA1(key, bytes.TrimSuffix(text, []byte("\n")), sig)) {
		return nil
	}
	return fmt.Errorf("verify with key %s and SHA-1: %w", p, ErrSignature)
}

func fitsSHA1(key *rsa.PublicKey, text, sig []byte) bool {
	sum := sha1.Sum(text)
	return rsa.VerifyPKCS1v15(key, crypto.SHA1, sum[:], sig) == nil
}

// FormatSignature returns the content of a signature file: one line of base64.
func FormatSignature(sig []byte) []byte {
	return append([]byte(base64.StdEncoding.EncodeToString(sig)), '\n')
}

// ParseSignature parses the output of FormatSignature. Spaces and line ends may be anywhere, as
// mails and editors leave them; anything else is an error.
func ParseSignature(text []byte) ([]byte, error) {
	joined := strings.Join(strings.Fields(string(text)), "")
	sig, err := base64.StdEncoding.Strict().DecodeString(joined)
	if err != nil {
		return nil, fmt.Errorf("signature is not base64: %w", err)
	}
	if len(sig) == 0 {
		return nil, fmt.Errorf("signature is empty: %w", ErrSignature)
	}
	return sig, nil
}
