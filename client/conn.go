package client

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/brinebus/brine/internal/rpc"
)

// Conn is a connection to a daemon. It does not come back by itself when it was lost.
type Conn struct{ rpc *rpc.Conn }

// Option is a choice that [Connect] takes.
type Option func(*options)

type options struct{ credentials, fingerprint, sudo string }

// Credentials names the directory that 'salt-event creds' has written, for connections over
// TLS. The master is known by its key: ca.pem there.
func Credentials(dir string) Option { return func(o *options) { o.credentials = dir } }

// Fingerprint is that of the master's key, as 'salt-key -F master' shows it, for connections over
// TLS without credentials. Such a connection is good for [Conn.Login] alone, and then that
// user's.
func Fingerprint(fingerprint string) Option {
	return func(o *options) { o.fingerprint = fingerprint }
}

// Sudo names the user who had sudo start this process. A daemon believes it of its operators, and
// the audit log has the name: tools take it from SUDO_USER.
func Sudo(user string) Option { return func(o *options) { o.sudo = user } }

// ServerFingerprint asks the server at tls://HOST:PORT for its key and returns that one's
// fingerprint. Whether it is that of the master somebody who knows must say.
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

// ParseAddress returns the address of a master as tls://HOST:PORT, by which programs can compare addresses: the
// scheme and the port may be left out of text.
func ParseAddress(text string) (string, error) {
	url, err := rpc.MasterURL(text)
	if err != nil {
		return "", failure{err, ErrUsage}
	}
	return url, nil
}

// Connect connects to the daemon at address: the path of a Unix socket, or tls://HOST:PORT
// with [Credentials] or a [Fingerprint]. An empty address is the one that the credentials name.
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

// bounded does what the library below bounds by times of its own, and returns when ctx ends;
// what comes later is dropped.
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

// Close ends the connection, and everything that goes on over it.
func (c *Conn) Close() { c.rpc.Close() }

// IsClosed says whether the connection has ended, by [Conn.Close] or because it was lost.
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
