package bustest

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/brinebus/brine/internal/pki"
)

// BareServers starts n servers with JetStream that form a cluster, and nothing else, to compare with.
// Their routes are encrypted with mutual TLS, as those of masters are.
func BareServers(t testing.TB, n int) (list []*server.Server) {
	t.Helper()
	ports, secure := []string{}, routesTLS(t)
	for i := range n {
		o := &server.Options{ServerName: fmt.Sprint("s", i), Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir()}
		o.Cluster = server.ClusterOpts{Name: "bare", Host: "127.0.0.1", Port: -1, TLSConfig: secure, TLSTimeout: 5}
		for _, port := range ports {
			o.Routes = append(o.Routes, &url.URL{Scheme: "nats-route", Host: port})
		}
		if len(o.Routes) == 0 {
			o.Routes = []*url.URL{{Scheme: "nats-route", Host: "127.0.0.1:1"}}
		}
		s, err := server.NewServer(o)
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		Until(t, "it listens", func() bool { return s.ClusterAddr() != nil })
		ports = append(ports, s.ClusterAddr().String())
		list = append(list, s)
	}
	return list
}

// routesTLS has one certificate for all, which each of them demands.
func routesTLS(t testing.TB) *tls.Config {
	t.Helper()
	key, err := pki.Generate(pki.Ed25519, 0)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := key.NamedCertificate("bare", []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	authority, err := key.Authority()
	if err != nil {
		t.Fatal(err)
	}
	known := x509.NewCertPool()
	known.AppendCertsFromPEM(authority)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, RootCAs: known,
		ClientCAs: known, ClientAuth: tls.RequireAndVerifyClientCert,
	}
}
