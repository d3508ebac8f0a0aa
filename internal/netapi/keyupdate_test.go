package netapi

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/test/keyupdate"
)

// keysOnly serves, and asks for new keys of TLS without end on one connection, without reading any answer.
// use is called when the server waits for the client to read.
func keysOnly(t *testing.T, use func(stop context.CancelFunc, closed, served <-chan struct{})) {
	synctest.Test(t, func(t *testing.T) {
		key, err := pki.Generate(pki.Ed25519, 0)
		if err != nil {
			t.Fatal(err)
		}
		certificate, err := key.Certificate("api")
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(unreachable())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		l, served := newPipes(), make(chan struct{})
		go func() {
			defer close(served)
			// A ticket would be a write of the handshake that nobody reads here.
			_ = s.Serve(ctx, l, &tls.Config{Certificates: []tls.Certificate{certificate}, SessionTicketsDisabled: true})
		}()
		c, closed := l.dial()
		k, err := keyupdate.Handshake(c, &tls.Config{InsecureSkipVerify: true})
		if err != nil && !errors.Is(err, keyupdate.ErrSuite) {
			t.Fatal(err)
		}
		flooded := make(chan struct{})
		if err == nil {
			go func() {
				defer close(flooded)
				_ = k.Flood([]byte("GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 4000)))
			}()
			synctest.Wait()
			use(cancel, closed, served)
		} else {
			close(flooded)
		}
		c.Close()
		cancel()
		<-served
		<-flooded
		s.Close()
	})
}

// A client that makes the server send while no request is under way, and does not read, is disconnected.
func TestAClientThatAsksForKeysIsDisconnected(t *testing.T) {
	keysOnly(t, func(_ context.CancelFunc, closed, _ <-chan struct{}) {
		began := time.Now()
		select {
		case <-closed:
		case <-time.After(time.Hour):
			t.Error("the connection stays for ever")
		}
		if took := time.Since(began); took > writeTime {
			t.Errorf("ended after %s, want %s", took, writeTime)
		}
	})
}

// The server ends in time beside such a client.
func TestTheServerEndsBesideAClientThatAsksForKeys(t *testing.T) {
	keysOnly(t, func(stop context.CancelFunc, _, served <-chan struct{}) {
		began := time.Now()
		stop()
		<-served
		if took := time.Since(began); took > closeTime {
			t.Errorf("the server ended after %s, want %s at most", took, closeTime)
		}
	})
}
