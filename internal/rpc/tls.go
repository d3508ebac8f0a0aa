package rpc

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
)

// ErrServerKey is wrapped by the error of DialCredentials if the server is not the trusted one.
var ErrServerKey = errors.New("the server is not the master that these credentials are for")

// dialTime limits how long a master on the network may take to answer.
const dialTime = 10 * time.Second

// dialTLS connects over the network to the master at url, as the client name, with the
// certificate and trusted keys in conf.
func dialTLS(url, name string, conf *tls.Config) (*Conn, error) {
	leaf, err := x509.ParseCertificate(conf.Certificates[0].Certificate[0])
	if err != nil {
		return nil, err
	}
	self := bus.Identity{Role: bus.RoleClient, Name: name, Key: bus.KeyToken(leaf.PublicKey), Nonce: bus.NewNonce()}
	return connectTLS(url, self, "client:"+name, conf)
}

// dialTLSError adds the kind of failure, for errors.Is.
func dialTLSError(err error) error {
	var unknown x509.UnknownAuthorityError
	var verification *tls.CertificateVerificationError
	var alert tls.AlertError
	switch {
	case errors.As(err, &unknown), errors.As(err, &verification):
		return fmt.Errorf("%w: %w", ErrServerKey, err)
	case errors.Is(err, nats.ErrAuthorization), errors.As(err, &alert):
		return ErrRefused
	}
	return err
}
