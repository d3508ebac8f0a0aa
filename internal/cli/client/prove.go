package client

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	brine "github.com/brinebus/brine/client"
)

// prove adds a certificate to a login, and a function that signs the master's challenge with its
// key. The key itself is not sent.
func (l *Login) prove(q *brine.Login) (err error) {
	if q.Certificate, err = os.ReadFile(l.certificate); err != nil {
		return fmt.Errorf("read certificate: %w", err)
	}
	q.Key, err = readKey(l.key)
	return err
}

// readKey reads a private key in PEM without a passphrase.
func readKey(path string) (crypto.Signer, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read private key: %w", err)
	}
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		var key any
		switch block.Type {
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		default:
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read private key %s: %w", path, err)
		}
		if signer, ok := key.(crypto.Signer); ok {
			return signer, nil
		}
	}
	return nil, fmt.Errorf("read private key %s: %w", path, errors.New("there is no private key in it, or it has a passphrase"))
}
