package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/brinebus/brine/internal/rpc"
)

// Conn is a connection to a daemon. It does not come back by itself when it was lost.
type Conn struct{ rpc *rpc.Conn }

// Option is a choice that [Connect] takes.
type Option func(*options)

type options struct{ credentials string }

// Credentials names the directory that 'salt-event creds' has written, for connections over
// TLS. The master is known by its key: ca.pem there.
func Credentials(dir string) Option { return func(o *options) { o.credentials = dir } }

// Connect connects to the daemon at address: the path of a Unix socket, or tls://HOST:PORT
// with [Credentials]. An empty address is the one that the credentials name.
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
		return dialTLS(address, o.credentials)
	case isPath, filepath.IsAbs(address):
		return rpc.Dial(path)
	}
	return nil, fmt.Errorf("connect to %q: %w", address, errAddress)
}

var errAddress = errors.New("it is no path of a socket, and without Credentials nothing else can be reached")

// description is the part of client.json that is needed here.
type description struct {
	Name       string `json:"name"`
	URL        string `json:"url"`
	ServerName string `json:"server_name"`
	CA         string `json:"ca"`
	Cert       string `json:"cert"`
	Key        string `json:"key"`
}

// dialTLS connects with the credentials in dir.
func dialTLS(address, dir string) (*rpc.Conn, error) {
	b, err := os.ReadFile(filepath.Join(dir, "client.json"))
	if err != nil {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	var d description
	if err := json.Unmarshal(b, &d); err != nil {
		return nil, fmt.Errorf("read credentials %s: %w", dir, err)
	}
	conf, err := d.config(dir)
	if err != nil {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	if address == "" {
		address = d.URL
	}
	if !strings.HasPrefix(address, "tls://") {
		return nil, fmt.Errorf("connect to %q: want tls://HOST:PORT", address)
	}
	return rpc.DialTLS(address, d.Name, conf)
}

// config trusts the master of the credentials and nobody else.
func (d *description) config(dir string) (*tls.Config, error) {
	ca, err := os.ReadFile(filepath.Join(dir, d.CA))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("there is no certificate in %s", filepath.Join(dir, d.CA))
	}
	own, err := tls.LoadX509KeyPair(filepath.Join(dir, d.Cert), filepath.Join(dir, d.Key))
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, ServerName: d.ServerName, RootCAs: pool, Certificates: []tls.Certificate{own}}, nil
}
