// Command bareserver is an embedded NATS server and nothing else: TLS 1.3 with
// client certificates, JetStream, and a callback that decides on every
// connection, with the least of a program around it. Local clients may connect
// without TLS, as Brine's tools do. It never ends by itself.
package main

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/pki"
)

func main() {
	port := flag.Int("port", server.RANDOM_PORT, "where it listens")
	var c cluster
	flag.StringVar(&c.listen, "cluster", "", "host:port for the other servers of a cluster")
	flag.StringVar(&c.peers, "routes", "", "host:port of those, separated by commas")
	flag.BoolVar(&c.signs, "signs", false, "of the servers of a cluster it is the one that signs requests")
	flag.Parse()
	if flag.NArg() < 1 || flag.NArg() > 2 {
		fmt.Fprintln(os.Stderr, "usage: bareserver [-port N] STOREDIR [UPSTREAM]")
		os.Exit(1)
	}
	if err := serve(*port, flag.Arg(0), flag.Args()[1:], c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// authenticator takes every key and notes it, as a key store would be asked.
type authenticator struct {
	mu   sync.Mutex
	seen map[[32]byte]bool
}

// Check implements server.Authentication.
func (g *authenticator) Check(c server.ClientAuthentication) bool {
	u := &server.User{Username: "local"}
	if s := c.GetTLSConnectionState(); s != nil {
		key := sha256.Sum256(s.PeerCertificates[0].RawSubjectPublicKeyInfo)
		g.mu.Lock()
		g.seen[key] = true
		g.mu.Unlock()
		u.Permissions = &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: []string{"_INBOX.>", "append", "job", "job.*", "answers.*", "shown.*", "key", "signed"}},
			Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>", "job.*", "signed.*", "answers.*"}},
		}
	}
	c.RegisterUser(u)
	return true
}

// cluster is where a server of a cluster listens for the others, and where those do.
type cluster struct {
	listen, peers string
	signs         bool // it serves what one of them has to
}

// set puts it into options. Servers of a cluster encrypt what they exchange, as masters do.
func (c cluster) set(o *server.Options, own tls.Certificate) error {
	if c.listen == "" {
		return nil
	}
	host, text, err := net.SplitHostPort(c.listen)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	o.ServerName = "bare" + text
	o.Cluster = server.ClusterOpts{Name: "bare", Host: host, Port: port, TLSTimeout: 5, TLSConfig: &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAnyClientCert, InsecureSkipVerify: true, //nolint:gosec // a measurement
	}}
	for peer := range strings.SplitSeq(c.peers, ",") {
		o.Routes = append(o.Routes, &url.URL{Scheme: "nats-route", Host: peer})
	}
	return nil
}

func serve(port int, dir string, upstream []string, c cluster) error {
	key, err := pki.Generate(pki.Ed25519, 0)
	if err != nil {
		return err
	}
	certificate, err := key.Certificate("bare")
	if err != nil {
		return err
	}
	if err := show(certificate, dir); err != nil {
		return err
	}
	o := &server.Options{
		Host: "127.0.0.1", Port: port, NoLog: true, NoSigs: true, JetStream: true, StoreDir: dir, AllowNonTLS: true, TLS: true,
		TLSTimeout: 5, CustomClientAuthentication: &authenticator{seen: map[[32]byte]bool{}},
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAnyClientCert},
	}
	if err := c.set(o, certificate); err != nil {
		return err
	}
	s, err := server.NewServer(o)
	if err != nil {
		return err
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		return fmt.Errorf("the server is not ready")
	}
	if c.listen != "" { // the others are waited for next
		fmt.Println(s.Addr())
	}
	a := &answerer{}
	if a.nc, err = nats.Connect("nats://self", nats.InProcessServer(s)); err != nil {
		return err
	}
	if err := errors.Join(a.openStore(s), a.openFiles(dir)); err != nil {
		return err
	}
	if len(upstream) == 1 {
		a.up, err = nats.Connect(upstream[0], nats.Secure(&tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, InsecureSkipVerify: true, //nolint:gosec // a measurement
		}))
		if err != nil {
			return err
		}
	}
	if err := a.answer(); err != nil {
		return err
	}
	if c.listen == "" || c.signs {
		if err := a.serveSigned(); err != nil {
			return err
		}
	}
	if c.listen == "" {
		fmt.Println(s.Addr())
	}
	s.WaitForShutdown()
	return nil
}

// show writes the certificate where those find it who are to know the server by it.
func show(c tls.Certificate, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "server.pem"), pki.CertificatePEM(c), 0o600)
}

// answerer is the program around the server.
type answerer struct {
	nc, up *nats.Conn
	js     nats.JetStreamContext

	decided, planned *os.File // synced at each line
}

func (a *answerer) openStore(s *server.Server) error {
	copies := 1
	if s.ClusterName() != "" {
		copies = 3
	}
	var err error
	if a.js, err = a.nc.JetStream(nats.MaxWait(patience)); err != nil {
		return err
	}
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) { // until there is a leader that knows all servers
		_, err = a.js.AddStream(&nats.StreamConfig{Name: "STORE", Subjects: []string{"stored", "answers.*"}, Replicas: copies})
		if err == nil || copies == 1 || time.Since(begun) > 30*time.Second {
			return err
		}
	}
}

// patience bounds each step.
const patience = 5 * time.Second

// answer serves: "ping" as it is, "append" once it is stored, "return" once the
// upstream server has it stored, "job" as gather does, and "peers" by asking the
// upstream server for that.
func (a *answerer) answer() error {
	return a.serve(map[string]func(m *nats.Msg) error{
		"ping":   func(m *nats.Msg) error { return m.Respond([]byte("local:\n    True")) },
		"append": func(m *nats.Msg) error { return errors.Join(a.store(m.Data), m.Respond(m.Data)) },
		"return": func(m *nats.Msg) error {
			r, err := a.up.Request("append", m.Data, patience)
			if err != nil {
				return err
			}
			return m.Respond(r.Data)
		},
		"job":   a.gather,
		"peers": a.peers,
	})
}

func (a *answerer) serve(subjects map[string]func(m *nats.Msg) error) error {
	for subject, f := range subjects {
		if _, err := a.nc.Subscribe(subject, func(m *nats.Msg) {
			if err := f(m); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}); err != nil {
			return err
		}
	}
	return a.nc.Flush()
}

func (a *answerer) store(b []byte) error {
	_, err := a.js.Publish("stored", b)
	return err
}

// gather stores the request, sends it to the two responders, and stores and passes
// on what they say.
func (a *answerer) gather(m *nats.Msg) error {
	if err := a.store(m.Data); err != nil {
		return err
	}
	inbox := nats.NewInbox()
	sub, err := a.nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	for _, subject := range []string{"job.one", "job.two"} {
		if err := a.nc.PublishRequest(subject, inbox, m.Data); err != nil {
			return err
		}
	}
	defer func() { _ = sub.Unsubscribe() }() // it lived for this
	return pass(sub, func(b []byte) error { return errors.Join(a.store(b), m.Respond(b)) })
}

// peers lets the upstream server gather, as a minion asks its master to publish.
func (a *answerer) peers(m *nats.Msg) error {
	inbox := nats.NewInbox()
	sub, err := a.up.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }() // it lived for this
	if err := a.up.PublishRequest("job", inbox, m.Data); err != nil {
		return err
	}
	return pass(sub, m.Respond)
}

// pass hands on what the two responders say.
func pass(sub *nats.Subscription, to func([]byte) error) error {
	for range 2 {
		r, err := sub.NextMsg(patience)
		if err != nil {
			return err
		}
		if err := to(r.Data); err != nil {
			return err
		}
	}
	return nil
}
