// Package natslab starts real NATS servers for tests, as separate processes, alone or as a
// cluster: the server that this module uses, built from its source. They are gone at the end of
// the test. Where it cannot be built, a test that needs it is skipped, and says so.
//
// It is no embedded server, and has none of our code.
package natslab

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/brinebus/brine/test/port"
)

const module = "github.com/nats-io/nats-server/v2"

var build struct {
	sync.Once
	path string
	err  error
}

// binary builds the server once, and returns it.
func binary(t testing.TB) string {
	t.Helper()
	build.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", module).Output()
		if err != nil {
			build.err = err
			return
		}
		cache, err := os.UserCacheDir()
		if err != nil {
			cache = os.TempDir()
		}
		build.path = filepath.Join(cache, "brine-natslab", "nats-server-"+strings.TrimSpace(string(out)))
		if _, err := os.Stat(build.path); err == nil {
			return
		}
		part := fmt.Sprintf("%s.%d", build.path, os.Getpid())
		if text, err := exec.CommandContext(ctx, "go", "build", "-o", part, module).CombinedOutput(); err != nil {
			build.err = fmt.Errorf("%w: %s", err, text)
			return
		}
		build.err = os.Rename(part, build.path)
	})
	if build.err != nil {
		t.Skipf("SKIPPED: no NATS server can be built: %v", build.err)
	}
	return build.path
}

// Cluster are servers that know each other.
type Cluster struct {
	Servers   []*Server
	Finger    string // SHA-256 of their certificate
	CA        string // file with it, as its own authority
	JetStream bool   // they have it, if this is set before Start
	Sites     bool   // each is a cluster of its own, and gateways link them, if this is set before Start

	t   testing.TB
	dir string
}

// Server is one server.
type Server struct {
	Address string // for clients

	monitor string // where it says how it is
	of      *Cluster
	n       int
	route   string
	cmd     *exec.Cmd
	ended   chan struct{}
}

// New prepares n servers. They do not run yet.
func New(t testing.TB, n int) *Cluster {
	t.Helper()
	binary(t)
	c := &Cluster{t: t, dir: t.TempDir()}
	c.certificate()
	for i := range n {
		c.Servers = append(c.Servers, &Server{
			of: c, n: i, Address: fmt.Sprintf("127.0.0.1:%d", port.Free(t)), route: fmt.Sprintf("127.0.0.1:%d", port.Free(t)), monitor: fmt.Sprintf("127.0.0.1:%d", port.Free(t)),
		})
	}
	return c
}

// Addresses are those of all servers.
func (c *Cluster) Addresses() (list []string) {
	for _, s := range c.Servers {
		list = append(list, s.Address)
	}
	return list
}

// Settings are those of a daemon that uses all servers.
func (c *Cluster) Settings() string { return c.settings(c.Addresses()...) }

// Settings are those of a daemon that uses this server.
func (s *Server) Settings() string { return s.of.settings(s.Address) }

func (c *Cluster) settings(addresses ...string) string {
	return fmt.Sprintf("nats_servers: [%s]\nnats_finger: [%q]\n", strings.Join(addresses, ", "), c.Finger)
}

func (c *Cluster) certificate() {
	c.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "natslab"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		c.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		c.t.Fatal(err)
	}
	c.CA = filepath.Join(c.dir, "cert.pem")
	c.write("cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	c.write("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	sum := sha256.Sum256(der)
	c.Finger = hex.EncodeToString(sum[:])
}

func (c *Cluster) write(name, text string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// Start starts all servers. config is what nats.config prints.
func (c *Cluster) Start(config string) {
	c.t.Helper()
	c.write("brine.conf", config)
	var routes, gateways []string
	for _, s := range c.Servers {
		routes = append(routes, "nats://"+s.route)
		gateways = append(gateways, fmt.Sprintf("{name: site%d, url: %q}", s.n, "nats://"+s.route))
	}
	pair := fmt.Sprintf("cert_file: %q, key_file: %q", c.CA, filepath.Join(c.dir, "key.pem"))
	linkTLS := fmt.Sprintf("tls {%s, ca_file: %q, verify: true}", pair, c.CA) // as doc/nats.md has it
	for _, s := range c.Servers {
		text := fmt.Sprintf("server_name: n%d\nlisten: %q\ntls {%s}\ninclude \"brine.conf\"\n", s.n, s.Address, pair)
		switch {
		case c.Sites:
			text += fmt.Sprintf("gateway {name: site%d, listen: %q, %s, gateways: [%s]}\n", s.n, s.route, linkTLS, strings.Join(gateways, ", "))
		case len(c.Servers) > 1:
			text += fmt.Sprintf("cluster {name: lab, listen: %q, %s, routes: [%s]}\n", s.route, linkTLS, strings.Join(routes, ", "))
		}
		if c.JetStream {
			text += fmt.Sprintf("http: %q\njetstream {store_dir: %q}\n", s.monitor, filepath.Join(c.dir, fmt.Sprintf("n%d", s.n)))
		}
		c.write(fmt.Sprintf("n%d.conf", s.n), text)
		s.Start()
	}
	for _, s := range c.Servers {
		s.await()
	}
}

// Foreign starts a server that knows everything but the certificates, and has routes to all others, with further lines of
// configuration about them. It returns where it says how it is.
func (c *Cluster) Foreign(tls string) (monitor string) {
	c.t.Helper()
	var routes []string
	for _, s := range c.Servers {
		routes = append(routes, "nats://"+s.route)
	}
	s := &Server{of: c, n: len(c.Servers), monitor: fmt.Sprintf("127.0.0.1:%d", port.Free(c.t))}
	c.write(fmt.Sprintf("n%d.conf", s.n), fmt.Sprintf("server_name: foreign\nlisten: \"127.0.0.1:%d\"\nhttp: %q\ninclude \"brine.conf\"\ncluster {name: lab, listen: \"127.0.0.1:%d\", %s routes: [%s]}\n",
		port.Free(c.t), s.monitor, port.Free(c.t), tls, strings.Join(routes, ", ")))
	s.Start()
	return s.monitor
}

// Reload has all servers read another configuration while they run, with further lines of it.
func (c *Cluster) Reload(config, more string) {
	c.t.Helper()
	c.write("brine.conf", config+more)
	for _, s := range c.Servers {
		if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			c.t.Fatal(err)
		}
	}
}

// Whole reports whether all servers run and have all copies that they are to have in JetStream.
func (c *Cluster) Whole() bool {
	client := http.Client{Timeout: 5 * time.Second}
	for _, s := range c.Servers {
		r, err := client.Get("http://" + s.monitor + "/healthz")
		if err != nil {
			return false
		}
		r.Body.Close()
		if r.StatusCode != http.StatusOK {
			return false
		}
	}
	return true
}

// Start starts the server, after New or Kill.
func (s *Server) Start() {
	s.of.t.Helper()
	var said bytes.Buffer
	s.cmd = exec.Command(binary(s.of.t), "-c", filepath.Join(s.of.dir, fmt.Sprintf("n%d.conf", s.n)))
	s.cmd.Stdout, s.cmd.Stderr = &said, &said
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		s.of.t.Fatal(err)
	}
	s.ended = make(chan struct{})
	cmd, ended := s.cmd, s.ended
	go func() {
		_ = cmd.Wait() // how it ends does not matter here
		close(ended)
	}()
	s.of.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-ended
		if s.of.t.Failed() {
			s.of.t.Logf("server n%d said:\n%s", s.n, said.String())
		}
	})
}

// await waits until the server accepts clients.
func (s *Server) await() {
	s.of.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; {
		c, err := tls.DialWithDialer(&net.Dialer{Timeout: time.Second}, "tcp", s.Address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // only whether it listens
		if err == nil {
			c.Close()
			return
		}
		if _, ok := err.(tls.RecordHeaderError); ok { //nolint:errorlint // its greeting comes first: it listens
			return
		}
		select {
		case <-s.ended:
			s.of.t.Fatalf("server n%d has ended", s.n)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(end) {
			s.of.t.Fatalf("server n%d does not listen: %v", s.n, err)
		}
	}
}

// Kill ends the server at once, as a power failure would.
func (s *Server) Kill() {
	s.of.t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		s.of.t.Fatal(err)
	}
	<-s.ended
}
