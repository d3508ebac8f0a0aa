// Command bareserver is an embedded NATS server and nothing else: TLS 1.3 with
// client certificates, JetStream, and a callback that decides on every
// connection. It answers requests on "ping" itself. Local clients may connect
// without TLS, as Brine's tools do.
package main

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"brine/internal/pki"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: bareserver STOREDIR")
		os.Exit(1)
	}
	if err := serve(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// gate takes every key and notes it, as a key store would be asked.
type gate struct {
	mu   sync.Mutex
	seen map[[32]byte]bool
}

// Check implements server.Authentication.
func (g *gate) Check(c server.ClientAuthentication) bool {
	u := &server.User{Username: "local"}
	if s := c.GetTLSConnectionState(); s != nil {
		key := sha256.Sum256(s.PeerCertificates[0].RawSubjectPublicKeyInfo)
		g.mu.Lock()
		g.seen[key] = true
		g.mu.Unlock()
		u.Permissions = &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
			Subscribe: &server.SubjectPermission{Allow: []string{"job.*"}},
		}
	}
	c.RegisterUser(u)
	return true
}

func serve(dir string) error {
	key, err := pki.Generate(pki.Ed25519, 0)
	if err != nil {
		return err
	}
	certificate, err := key.Certificate("bare")
	if err != nil {
		return err
	}
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: true, StoreDir: dir, AllowNonTLS: true, TLS: true,
		TLSTimeout: 5, CustomClientAuthentication: &gate{seen: map[[32]byte]bool{}},
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAnyClientCert},
	})
	if err != nil {
		return err
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		return fmt.Errorf("the server is not ready")
	}
	nc, err := nats.Connect("nats://self", nats.InProcessServer(s))
	if err != nil {
		return err
	}
	if _, err := nc.Subscribe("ping", func(m *nats.Msg) { _ = m.Respond([]byte("local:\n    True")) }); err != nil {
		return err
	}
	fmt.Println(s.Addr())
	s.WaitForShutdown()
	return nil
}
