package sink

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
)

// tlsSettings define how to verify a server. nil means no TLS.
type tlsSettings struct {
	ca        string // a file of certificates to trust instead of those of the system
	name      string // expected in the server's certificate, instead of the host
	cert, key string // files of our own certificate
	insecure  bool   // verify nothing: any server that answers gets the events and the secrets
}

func readTLS(s *section, on bool) *tlsSettings {
	t := &tlsSettings{
		ca: s.file("ca_file"), name: s.text("server_name", ""), cert: s.file("cert_file"), key: s.file("key_file"),
		insecure: s.flag("insecure", false),
	}
	if (t.cert == "") != (t.key == "") {
		s.wrong("", "cert_file and key_file belong together")
	}
	if t.insecure && t.ca != "" {
		s.wrong("insecure", "it would make ca_file useless")
	}
	if on {
		return t
	}
	if *t != (tlsSettings{}) {
		s.wrong("", "there are settings for TLS, and no TLS")
	}
	return nil
}

// config reads the files; host is the name that the certificate must have.
func (t *tlsSettings) config(host string) (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	c := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12, InsecureSkipVerify: t.insecure}
	if t.name != "" {
		c.ServerName = t.name
	}
	if t.ca != "" {
		text, err := os.ReadFile(t.ca)
		if err != nil {
			return nil, fmt.Errorf("read ca_file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("read ca_file: there is no certificate in %s", t.ca)
		}
	}
	if t.cert == "" {
		return c, nil
	}
	if err := checkKeyFile(t.key); err != nil {
		return nil, err
	}
	own, err := tls.LoadX509KeyPair(t.cert, t.key)
	c.Certificates = []tls.Certificate{own}
	return c, err
}

func checkKeyFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read key_file: %w", err)
	}
	defer f.Close()
	if err := checkSecret(f); err != nil {
		return fmt.Errorf("read key_file: %s: %w", path, err)
	}
	return nil
}

// loopback reports whether host is certainly this machine.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
