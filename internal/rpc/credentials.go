package rpc

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// credentials is the part of client.json that is needed here.
type credentials struct {
	Name       string `json:"name"`
	URL        string `json:"url"`
	ServerName string `json:"server_name"`
	CA         string `json:"ca"`
	Cert       string `json:"cert"`
	Key        string `json:"key"`
}

// DialCredentials connects over the network to the master at address, as tls://HOST:PORT, with
// the credentials that salt-event creds has written into dir. With an empty address it uses the
// one in dir.
func DialCredentials(address, dir string) (*Conn, error) {
	b, err := os.ReadFile(filepath.Join(dir, "client.json"))
	if err != nil {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	var d credentials
	if err := json.Unmarshal(b, &d); err != nil {
		return nil, fmt.Errorf("read credentials %s: %w", dir, err)
	}
	conf, err := d.config(dir)
	if err != nil {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	url, err := MasterURL(cmp.Or(address, d.URL))
	if err != nil {
		return nil, err
	}
	return dialTLS(url, d.Name, conf)
}

// config trusts the master of the credentials only.
func (d *credentials) config(dir string) (*tls.Config, error) {
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
