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

type options struct{ credentials, fingerprint string }

// Credentials names the directory that 'salt-event creds' has written, for connections over
// TLS. The master is known by its key: ca.pem there.
func Credentials(dir string) Option { return func(o *options) { o.credentials = dir } }

// Fingerprint is that of the master's key, as 'salt-key -F master' shows it, for connections over
// TLS without credentials. Such a connection is good for [Conn.Login] alone, and then that
// user's.
func Fingerprint(fingerprint string) Option {
	return func(o *options) { o.fingerprint = fingerprint }
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
	type result struct {
		conn *rpc.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() { // the library below it is bounded by times of its own
		c, err := dial(address, o)
		done <- result{c, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return nil, r.err
		}
		return &Conn{r.conn}, nil
	case <-ctx.Done():
		go func() {
			if r := <-done; r.conn != nil {
				r.conn.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// Close ends the connection, and everything that goes on over it.
func (c *Conn) Close() { c.rpc.Close() }

func dial(address string, o options) (*rpc.Conn, error) {
	path, isPath := strings.CutPrefix(address, "unix://")
	switch {
	case o.credentials != "":
		return rpc.DialCredentials(address, o.credentials)
	case o.fingerprint != "":
		url, err := rpc.MasterURL(address)
		if err != nil {
			return nil, err
		}
		return rpc.DialGuest(url, o.fingerprint)
	case isPath, filepath.IsAbs(address):
		return rpc.Dial(path)
	}
	return nil, fmt.Errorf("connect to %q: %w", address, errAddress)
}

var errAddress = errors.New("it is no path of a socket, and without Credentials or a Fingerprint nothing else can be reached")
