package pki

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// The labels of relevant PEM blocks.
const (
	pemPublic       = "PUBLIC KEY"     // SubjectPublicKeyInfo
	pemPublicRSA    = "RSA PUBLIC KEY" // PKCS #1, older Salt files
	pemPrivate      = "PRIVATE KEY"    // PKCS #8
	pemPrivateRSA   = "RSA PRIVATE KEY"
	pemEncrypted    = "ENCRYPTED PRIVATE KEY"
	pemOpenSSH      = "OPENSSH PRIVATE KEY"
	pemCertificate  = "CERTIFICATE"
	pemHeaderCipher = "DEK-Info" // header of old encrypted keys
)

// Why a text is not the key that was expected.
var (
	ErrNotPEM       = errors.New("no PEM block in it")
	ErrSeveral      = errors.New("it holds more than one PEM block")
	ErrEncrypted    = errors.New("it is encrypted, and a daemon has nobody to ask for the passphrase")
	ErrWantedPublic = errors.New("it is a private key where a public one belongs")
	ErrWantedSecret = errors.New("it is a public key where a private one belongs")
)

// PEM returns the key as openssl writes it: PKCS #8, lines of 64 characters, with a final
// newline. The result is secret.
func (k *PrivateKey) PEM() []byte {
	der, err := x509.MarshalPKCS8PrivateKey(k.signer)
	if err != nil {
		panic(err) // newPrivateKey accepts only types that can be marshalled
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemPrivate, Bytes: der})
}

// PEM returns the canonical text of the key, byte for byte what openssl writes. Signatures of
// keys and fingerprints are made over it, so line endings and comments of the key's file do not
// matter. The zero value has none.
func (p PublicKey) PEM() []byte {
	if p.IsZero() {
		return nil
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemPublic, Bytes: []byte(p.der)})
}

// ParsePublic parses a public key in PEM: SubjectPublicKeyInfo or PKCS #1, with any line
// endings, with or without the final newline, with text around the only block. With an error it
// returns the zero key.
func ParsePublic(text []byte) (PublicKey, error) {
	block, err := onlyBlock(text)
	if err != nil {
		return PublicKey{}, err
	}
	switch block.Type {
	case pemPublic, pemPublicRSA:
		return parsePublicDER(block.Bytes)
	case pemPrivate, pemPrivateRSA, pemEncrypted, pemOpenSSH:
		return PublicKey{}, ErrWantedPublic
	}
	return PublicKey{}, wrongBlock(block.Type)
}

// parsePublicDER tries both encodings whatever the label is, as Salt does.
func parsePublicDER(der []byte) (PublicKey, error) {
	key, err := x509.ParsePKIXPublicKey(der)
	if err == nil {
		return newPublicKey(key)
	}
	if rsaKey, rsaErr := x509.ParsePKCS1PublicKey(der); rsaErr == nil {
		return newPublicKey(rsaKey)
	}
	return PublicKey{}, fmt.Errorf("broken public key: %w", err)
}

// ParsePrivate parses a private key in PEM: PKCS #8, or PKCS #1 as in Salt's files, not
// encrypted. With an error it returns nil; the error never quotes the text.
func ParsePrivate(text []byte) (*PrivateKey, error) {
	block, err := onlyBlock(text)
	if err != nil {
		return nil, err
	}
	switch block.Type {
	case pemPrivate, pemPrivateRSA:
		if block.Headers[pemHeaderCipher] != "" {
			return nil, ErrEncrypted
		}
		return parsePrivateDER(block.Bytes)
	case pemEncrypted:
		return nil, ErrEncrypted
	case pemPublic, pemPublicRSA:
		return nil, ErrWantedSecret
	}
	return nil, wrongBlock(block.Type)
}

func parsePrivateDER(der []byte) (*PrivateKey, error) {
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err == nil {
		return newPrivateKey(key)
	}
	if rsaKey, rsaErr := x509.ParsePKCS1PrivateKey(der); rsaErr == nil {
		return newPrivateKey(rsaKey)
	}
	return nil, fmt.Errorf("broken private key: %w", err)
}

// onlyBlock returns the only PEM block of a text.
func onlyBlock(text []byte) (*pem.Block, error) {
	block, rest := pem.Decode(plainLines(text))
	if block == nil {
		return nil, ErrNotPEM
	}
	if bytes.Contains(rest, []byte("-----BEGIN")) {
		return nil, ErrSeveral
	}
	return block, nil
}

// plainLines changes line ends to newlines and removes spaces before them: files come from
// Windows, from editors and from mails.
func plainLines(text []byte) []byte {
	s := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(text))
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " \t\f\v")
	}
	return []byte(strings.Join(lines, "\n") + "\n")
}

func wrongBlock(label string) error {
	switch label {
	case pemCertificate:
		return errors.New("it is a certificate, not a key")
	case pemOpenSSH:
		return errors.New("it is a key in OpenSSH's own format, not PKCS #8")
	}
	return fmt.Errorf("%w: a PEM block %q", ErrKeyType, label)
}
