package client

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/brinebus/brine/internal/rpc"
)

// Conn is a connection to a daemon. A lost connection is not restored.
type Conn struct{ rpc *rpc.Conn }

// Option is an option of [Connect].
type Option func(*options)

type options struct{ credentials, fingerprint, sudo string }

// Credentials names the directory that 'salt-event creds' has written, for connections over
// TLS. Only a server with the key in ca.pem of that directory is accepted.
func Credentials(dir string) Option { return func(o *options) { o.credentials = dir } }

// Fingerprint is the fingerprint of the master's key, as 'salt-key -F master' shows it, for
// connections over TLS without credentials. On such a connection the first request must be
// [Conn.Login]; then it is the connection of that user.
func Fingerprint(fingerprint string) Option {
	return func(o *options) { o.fingerprint = fingerprint }
}

// Sudo names the user who has started this process by sudo; tools take it from SUDO_USER. A
// daemon accepts it only from operators, and records the name in the audit log.
func Sudo(user string) Option { return func(o *options) { o.sudo = user } }

// ServerFingerprint returns the fingerprint of the key of the server at tls://HOST:PORT. It
// does not verify that the server is the master: compare the fingerprint with that of the
// master's key.
func ServerFingerprint(ctx context.Context, address string) (string, error) {
	url, err := ParseAddress(address)
	if err != nil {
		return "", err
	}
	return bounded(ctx, func() (string, error) {
		key, err := rpc.ServerKey(url)
		if err != nil {
			return "", err
		}
		return key.SHA256(), nil
	}, func(string) {})
}

// ParseAddress returns the address of a master as tls://HOST:PORT, so that programs can compare
// addresses. text may omit the scheme and the port.
func ParseAddress(text string) (string, error) {
	url, err := rpc.MasterURL(text)
	if err != nil {
		return "", failure{err, ErrUsage}
	}
	return url, nil
}

// Connect connects to the daemon at address: the path of a Unix socket, or tls://HOST:PORT with
// [Credentials] or a [Fingerprint]. An empty address means the one in the credentials.
func Connect(ctx context.Context, address string, opts ...Option) (*Conn, error) {
	if err := contextual(ctx); err != nil {
		return nil, err
	}
	var o options
	for _, set := range opts {
		set(&o)
	}
	conn, err := bounded(ctx, func() (*rpc.Conn, error) { return dial(address, o) }, (*rpc.Conn).Close)
	if err != nil {
		return nil, err
	}
	return &Conn{conn}, nil
}

// bounded runs do, which has timeouts of its own, and returns at the latest when ctx ends; drop
// gets a later result.
func bounded[T any](ctx context.Context, do func() (T, error), drop func(T)) (none T, err error) {
	type result struct {
		made T
		err  error
	}
	done := make(chan result, 1)
	go func() {
		made, err := do()
		done <- result{made, err}
	}()
	select {
	case r := <-done:
		return r.made, r.err
	case <-ctx.Done():
		go func() {
			if r := <-done; r.err == nil {
				drop(r.made)
			}
		}()
		return none, context.Cause(ctx)
	}
}

// Close ends the connection, with everything that is in progress on it.
func (c *Conn) Close() { c.rpc.Close() }

// IsClosed reports whether the connection has ended, by [Conn.Close] or because it was lost.
func (c *Conn) IsClosed() bool { return c.rpc.NC.IsClosed() }

func dial(address string, o options) (*rpc.Conn, error) {
	path, isPath := strings.CutPrefix(address, "unix://")
	switch {
	case o.credentials != "" && o.fingerprint != "":
		return nil, failure{errBoth, ErrUsage}
	case o.credentials != "":
		return rpc.DialCredentials(address, o.credentials)
	case o.fingerprint != "":
		url, err := ParseAddress(address)
		if err != nil {
			return nil, err
		}
		return rpc.DialGuest(url, o.fingerprint)
	case isPath, filepath.IsAbs(address):
		return rpc.DialBySudo(path, o.sudo)
	}
	return nil, failure{fmt.Errorf("connect to %.200q: %w", address, errAddress), ErrUsage}
}

var (
	errAddress = errors.New("it is not a path of a socket, and without Credentials or a Fingerprint nothing else can be reached")
	errBoth    = errors.New("Credentials and a Fingerprint exclude each other: the credentials say which master it must be")
)
