package broker

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/member"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/test/deadline"
)

func linkTLS(t *testing.T, name string) *tls.Config {
	t.Helper()
	key, err := pki.Generate(pki.Ed25519, 0)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := key.Certificate(name)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert, InsecureSkipVerify: true}
}

func startLinked(t *testing.T) *Broker {
	t.Helper()
	b, err := Start(Options{
		Name: "test", StoreDir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Admit: func(Peer) bus.Identity { return bus.Identity{} },
		Link: &LinkOptions{Listen: "127.0.0.1:0", TLS: linkTLS(t, "m1"), Journal: "m1", Judge: func(c *x509.Certificate) (string, error) { return c.Subject.CommonName, nil }},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	return b
}

// stolen is a server of an attacker who has the key of a member and ignores all rules.
func stolen(t *testing.T, b *Broker, journal string) (*server.Server, *nats.Conn) {
	t.Helper()
	return dials(t, b, journal, 0)
}

// stolenOnce is like stolen, but does not dial again.
func stolenOnce(t *testing.T, b *Broker, journal string) (*server.Server, *nats.Conn) {
	t.Helper()
	return dials(t, b, journal, time.Hour)
}

func dials(t *testing.T, b *Broker, journal string, again time.Duration) (*server.Server, *nats.Conn) {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		ServerName: "stolen-" + rand.Text(), DontListen: true, NoSigs: true, NoLog: true, LeafNode: server.LeafNodeOpts{ReconnectInterval: again, Remotes: []*server.RemoteLeafOpts{{
			URLs: []*url.URL{{Scheme: "tls", Host: b.Links.Addr()}}, TLS: true, TLSConfig: linkTLS(t, journal), TLSHandshakeFirst: true,
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	nc, err := nats.Connect("nats://stolen", nats.InProcessServer(s), nats.SkipHostLookup())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return s, nc
}

func linked(t *testing.T, s *server.Server) {
	t.Helper()
	for end := time.Now().Add(time.Minute); s.NumLeafNodes() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no link")
		}
	}
}

// Connections to the port between masters that send nothing, or show a key that is not a master's,
// are limited in all and for each host, so the other master can still connect.
func TestTheOtherMasterConnectsDuringAFlood(t *testing.T) {
	b := startLinked(t)
	p := b.auth.link.acceptor
	p.mu.Lock()
	p.halfOpen = newQuota(16, 8)
	p.mu.Unlock()
	const flood = 200
	silent := openConnsAt(t, b.Links.Addr(), flood, "127.0.0.2")
	s, _ := stolen(t, b, "m2")
	linked(t, s)
	if n := closed(silent, flood-8); n < flood-8 {
		t.Errorf("%d of %d silent connections of one host were ended, want all but 8", n, flood)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.halfOpen.n > 16 || p.halfOpen.count("127.0.0.2") > 8 {
		t.Errorf("%d are half open, %d of them of one host", p.halfOpen.n, p.halfOpen.count("127.0.0.2"))
	}
}

// TestALinkThatCannotBeJudgedStays: for a moment; one that is refused does not.
func TestALinkThatCannotBeJudgedStays(t *testing.T) {
	b := startLinked(t)
	s, _ := stolenOnce(t, b, "m2")
	linked(t, s)
	b.auth.link.opts.Judge = func(*x509.Certificate) (string, error) {
		return "", fmt.Errorf("too many open files: %w", member.ErrUnread)
	}
	b.Links.Cut()
	if n := len(b.auth.link.all()); n != 1 || s.NumLeafNodes() != 1 {
		t.Errorf("%d links are left when the list is unread, want 1", n)
	}
	b.auth.link.opts.Judge = func(*x509.Certificate) (string, error) {
		return "", fmt.Errorf("it is on the list: %w", member.ErrRemoved)
	}
	b.Links.Cut()
	for end := time.Now().Add(time.Minute); s.NumLeafNodes() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the link of a removed master is not cut")
		}
	}
}

// TestOneMasterHasFewLinks: the key of a member is not enough to fill the port with links; the
// newest links stay, since the older ones may have ended unnoticed.
func TestOneMasterHasFewLinks(t *testing.T) {
	b := startLinked(t)
	var servers []*server.Server
	for range maxLinks + 2 {
		s, _ := stolenOnce(t, b, "m2")
		linked(t, s)
		servers = append(servers, s)
	}
	until(t, "the oldest links ended", func() bool { return servers[0].NumLeafNodes()+servers[1].NumLeafNodes() == 0 })
	if n := len(b.auth.link.all()); n != maxLinks {
		t.Errorf("%d links of one master are booked, want %d", n, maxLinks)
	}
	for _, s := range servers[2:] {
		s.Shutdown()
	}
	until(t, "nothing is counted any more", func() bool {
		p := b.auth.link.acceptor
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(b.auth.link.all())+len(p.open)+p.halfOpen.n == 0
	})
}

// subjectsOfClients returns subjects of every kind on the bus.
func subjectsOfClients() []string {
	return []string{
		"salt.minion.web1.job", "salt.minion.web1.ctl", "salt.minion.web1.ret.20260101000000000000", "salt.minion.web1.fire", "salt.minion.web1.req.publish",
		"salt.user.root.req.publish", "salt.event.salt.job", "salt.event.x", "_INBOX.master.x", "_INBOX.minion.web1.n.1", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.DELETE.EVENTS",
		"$JS.API.STREAM.PURGE.EVENTS", "$JS.API.STREAM.CREATE.X", "$JS.API.STREAM.MSG.GET.EVENTS", "$JS.API.DIRECT.GET.EVENTS", "$JS.API.CONSUMER.CREATE.EVENTS", "$JS.API.CONSUMER.DELETE.EVENTS.c",
		"$JS.ACK.EVENTS.c.1.1.1.1.1", "$KV.tokens.x", "$O.x", "$SYS.REQ.SERVER.PING", "$SYS.ACCOUNT.SALT.CONNECT", "$JS.FC.KV_tokens.c.1",
		"JOURNAL.m1.m3.API.CONSUMER.CREATE.EVENTS", "JOURNAL.m1.m2.DELIVER.M.x", "JOURNAL.m1.m3.DELIVER.M.x", "JOURNAL.m1.m2.API.CONSUMER.DELETE.EVENTS", "JOURNAL.m2.m2.API.CONSUMER.CREATE.EVENTS", "anything",
	}
}

// TestNoSubjectOfClientsCrossesALink tries the subjects of the bus from an attacker's server
// that has connected to the port of links: nothing that it publishes reaches clients or other
// links, and it receives nothing of theirs.
func TestNoSubjectOfClientsCrossesALink(t *testing.T) {
	b := startLinked(t)
	s, evil := stolen(t, b, "m2")
	links, err := b.Links.Conn()
	if err != nil {
		t.Fatal(err)
	}
	defer links.Close()
	came, heard := make(chan string, 1000), make(chan string, 1000)
	take := func(where, foreign string, to chan string) nats.MsgHandler {
		return func(m *nats.Msg) {
			text := string(m.Data)
			if text == foreign || text == "begin" || text == "end" {
				to <- where + " " + m.Subject + " " + text
			}
		}
	}
	for _, sub := range []struct {
		nc             *nats.Conn
		where, foreign string
		to             chan string
	}{{b.Conn(), "clients", "in", came}, {links, "links", "in", came}, {evil, "attacker", "out", heard}} {
		if _, err := sub.nc.Subscribe(">", take(sub.where, sub.foreign, sub.to)); err != nil {
			t.Fatal(err)
		}
		if err := sub.nc.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	linked(t, s)
	// Permitted messages are sent before and after the others, each way: by then each side knows
	// the subscriptions of the other, and the others are no longer under way.
	own := bus.Link{Owner: "m1", Reader: "m2"}
	pass := func(word string) {
		crosses(t, came, "links "+own.Create(bus.JournalStream)+" "+word, func() error { return evil.Publish(own.Create(bus.JournalStream), []byte(word)) })
		crosses(t, heard, "attacker "+own.Deliver()+".M.x "+word, func() error { return b.Conn().Publish(own.Deliver()+".M.x", []byte(word)) })
	}
	pass("begin")
	for _, subject := range subjectsOfClients() {
		if err := evil.PublishMsg(&nats.Msg{Subject: subject, Reply: "salt.minion.web1.job", Data: []byte("in")}); err != nil {
			t.Fatal(err)
		}
		for _, nc := range []*nats.Conn{b.Conn(), links} {
			if subject == "JOURNAL.m1.m2.DELIVER.M.x" {
				continue // this is permitted
			}
			if err := nc.Publish(subject, []byte("out")); err != nil {
				t.Fatal(err)
			}
		}
	}
	pass("end")
	for _, c := range []chan string{came, heard} {
		for range len(c) {
			if got := deadline.Receive(t, c, "c"); strings.HasSuffix(got, " in") || strings.HasSuffix(got, " out") {
				t.Errorf("it crossed the link: %s", got)
			}
		}
	}
}

// crosses publishes until the message arrives.
func crosses(t *testing.T, from chan string, word string, publish func() error) {
	t.Helper()
	var rest []string
	deadline := time.After(time.Minute)
	for {
		if err := publish(); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-from:
			if got == word {
				for _, r := range rest {
					from <- r
				}
				return
			}
			rest = append(rest, got)
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatal(fmt.Sprint("never: ", word, "; but ", rest))
		}
	}
}
