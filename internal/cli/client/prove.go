package client

import (
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
)

// prove adds a certificate to a login, and the proof that its key is here: it
// signs what the master asks it to. The key itself goes nowhere.
func (l *Login) prove(ctx context.Context, c *rpc.Conn, q *protocol.Login) error {
	var err error
	if q.Certificate, err = os.ReadFile(l.certificate); err != nil {
		return fmt.Errorf("read certificate: %w", err)
	}
	key, err := readKey(l.key)
	if err != nil {
		return err
	}
	var answer protocol.LoggedIn
	if err := l.ask(ctx, c, *q, &answer); err != nil {
		return err
	}
	q.Signature, err = protocol.SignLogin(key, c.Inbox(), q.User, answer.Challenge)
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
