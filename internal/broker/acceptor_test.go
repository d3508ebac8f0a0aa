package broker

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/test/deadline"
)

// TestHandover checks that the server's functions that handover.go names still have the
// expected signatures, since the linker compares only names.
func TestHandover(t *testing.T) {
	pc := runtime.FuncForPC(reflect.ValueOf(server.NewServer).Pointer())
	file, _ := pc.FileLine(pc.Entry())
	if _, err := os.Stat(file); err != nil { // with -trimpath it is a path inside the module
		cache, err := os.UserHomeDir()
		if err != nil {
			t.Fatal(err)
		}
		if dir := os.Getenv("GOMODCACHE"); dir != "" {
			cache = dir
		} else {
			cache = filepath.Join(cache, "go", "pkg", "mod")
		}
		file = filepath.Join(cache, file)
	}
	want := map[string]string{
		"createClientEx": "func(conn net.Conn, inProcess bool) *client", "setOpts": "func(opts *Options)",
		"createRoute":    "func(conn net.Conn, rURL *url.URL, rtype RouteType, gossipMode byte, accName string) *client",
		"createLeafNode": "func(conn net.Conn, rURL *url.URL, remote *leafNodeCfg, ws *websocket) *client",
	}
	for _, file := range []string{file, filepath.Join(filepath.Dir(file), "leafnode.go"), filepath.Join(filepath.Dir(file), "route.go")} {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range tree.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || want[f.Name.Name] == "" {
				continue
			}
			if got := types.ExprString(f.Type); got != want[f.Name.Name] || types.ExprString(f.Recv.List[0].Type) != "*Server" {
				t.Errorf("%s is %s, want %s", f.Name.Name, got, want[f.Name.Name])
			}
			delete(want, f.Name.Name)
		}
	}
	if len(want) > 0 {
		t.Errorf("%s lacks functions of %v", file, want)
	}
}

// startTLS starts a broker on a loopback port.
func startTLS(t *testing.T, o Options) *Broker {
	t.Helper()
	key, err := pki.Generate(pki.Ed25519, 0)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := key.Certificate("salt-master")
	if err != nil {
		t.Fatal(err)
	}
	o.Name, o.Listen, o.TLS = "test", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}}
	o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	b, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	return b
}

// set changes the limits of a broker that has no connections yet.
func set(b *Broker, f func(*acceptor)) {
	b.auth.acceptor.mu.Lock()
	defer b.auth.acceptor.mu.Unlock()
	f(b.auth.acceptor)
}

// admitAs returns an Admit that gives every peer this role.
func admitAs(role bus.Role) func(Peer) bus.Identity {
	var n atomic.Int64
	return func(Peer) bus.Identity {
		return bus.Identity{Role: role, Name: "web1", Key: fmt.Sprint("key", n.Add(1))}
	}
}

// login connects from an address with a key of its own.
func login(b *Broker, from string, wait time.Duration) (*nats.Conn, error) {
	key, err := pki.Generate(pki.Ed25519, 0)
	if err != nil {
		return nil, err
	}
	certificate, err := key.Certificate("web1")
	if err != nil {
		return nil, err
	}
	return nats.Connect("nats://"+b.Addr().String(), nats.Secure(&tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{certificate}}),
		nats.UserInfo(bus.NewNonce(), ""), nats.NoReconnect(), nats.Timeout(wait), nats.SetCustomDialer(&net.Dialer{LocalAddr: local(from), Timeout: wait}))
}

// comesIn connects as a minion does, which tries again after a refusal, and returns how long
// that took.
func comesIn(t *testing.T, b *Broker, from string) time.Duration {
	t.Helper()
	began := time.Now()
	for {
		nc, err := login(b, from, 30*time.Second)
		if err == nil {
			nc.Close()
			return time.Since(began)
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("nobody comes in from %s: %v", from, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func local(address string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(address)} }

// openConns opens n connections that send nothing, alternately from the addresses.
func openConns(t *testing.T, b *Broker, n int, from ...string) []net.Conn {
	t.Helper()
	return openConnsAt(t, b.Addr().String(), n, from...)
}

func openConnsAt(t *testing.T, address string, n int, from ...string) []net.Conn {
	t.Helper()
	conns := make([]net.Conn, 0, n)
	for i := range n {
		d := net.Dialer{LocalAddr: local(from[i%len(from)]), Timeout: 5 * time.Second}
		c, err := d.Dial("tcp", address)
		if errors.Is(err, syscall.ECONNRESET) { // it was closed before the handshake
			c, _ = net.Pipe()
			c.Close()
			conns = append(conns, c)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		conns = append(conns, c)
	}
	return conns
}

// closed waits until the other side has closed want of the connections, and returns how many it
// has closed: fewer if it does not close them in time.
func closed(conns []net.Conn, want int) int {
	ended := make(chan bool, len(conns))
	readUntil(conns, time.Now().Add(time.Minute))
	for _, c := range conns {
		go func() {
			_, err := io.Copy(io.Discard, c)
			ended <- err == nil || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.ErrClosedPipe)
		}()
	}
	n := 0
	for range conns {
		if !<-ended {
			continue
		}
		if n++; n == want {
			readUntil(conns, time.Now()) // the others may stay open
		}
	}
	return n
}

func readUntil(conns []net.Conn, deadline time.Time) {
	for _, c := range conns {
		_ = c.SetReadDeadline(deadline)
	}
}

// Connections that send nothing are limited in all and by host. They do not block connections
// that send something, from another address or from the same one.
func TestHalfOpenConnectionsAreBounded(t *testing.T) {
	b := startTLS(t, Options{Admit: admitAs(bus.RoleMinion)})
	set(b, func(p *acceptor) { p.halfOpen = newQuota(64, 32) })
	const flood = 400
	conns := openConns(t, b, flood, "127.0.0.2")
	for _, from := range []string{"127.0.0.1", "127.0.0.2"} {
		t.Logf("login from %s beside %d silent connections: %s", from, flood, comesIn(t, b, from))
	}
	if n := closed(conns, flood-32); n < flood-32 {
		t.Errorf("%d of %d silent connections of one host were ended, want all but 32", n, flood)
	}
	many := make([]string, 100)
	for i := range many {
		many[i] = fmt.Sprintf("127.0.1.%d", i+1)
	}
	conns = openConns(t, b, flood, many...)
	t.Logf("login beside silent connections of %d hosts: %s", len(many), comesIn(t, b, "127.0.0.1"))
	if n := closed(conns, flood-64); n < flood-64 {
		t.Errorf("%d of %d silent connections of many hosts were ended, want all but 64", n, flood)
	}
}

// The network uses only the descriptors that the limit on open files leaves for it, and
// connections that are authenticated are not closed for others.
func TestConnectionsLeaveDescriptorsFree(t *testing.T) {
	b := startTLS(t, Options{Admit: admitAs(bus.RoleMinion)})
	set(b, func(p *acceptor) { p.limits.connections = 20 })
	for range 10 {
		nc, err := login(b, "127.0.0.1", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := nc.FlushTimeout(time.Minute); err != nil {
				t.Errorf("a minion was pushed out: %v", err)
			}
			nc.Close()
		}()
	}
	conns := openConns(t, b, 100, "127.0.0.2")
	if n := closed(conns, 90); n < 90 {
		t.Errorf("%d of 100 connections beyond the limit were ended, want 90", n)
	}
}

// A connection that waits for its key to be accepted gives way to connections of hosts with
// fewer of them.
func TestUnacceptedKeysAreBounded(t *testing.T) {
	b := startTLS(t, Options{Admit: admitAs(bus.RoleUnaccepted)})
	set(b, func(p *acceptor) { p.unaccepted = newQuota(8, 6) })
	var flood []*nats.Conn
	for range 6 {
		nc, err := login(b, "127.0.0.2", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		flood = append(flood, nc)
	}
	if nc, err := login(b, "127.0.0.2", 5*time.Second); err == nil {
		nc.Close()
		t.Error("one host takes more than its share")
	}
	for i := range 3 {
		nc, err := login(b, fmt.Sprintf("127.0.0.%d", 3+i), time.Minute)
		if err != nil {
			t.Fatalf("another host finds no place: %v", err)
		}
		defer nc.Close()
	}
	if err := flood[0].FlushTimeout(5 * time.Second); err == nil {
		t.Error("the oldest of the host with the most did not give way")
	}
	if n := len(b.auth.all(nil)); n != 8 {
		t.Errorf("%d are booked, want 8", n)
	}
}

// Connections that end during authentication are not counted afterwards, whether or not their
// key is accepted.
func TestConnectionsThatDieWhileTheyAreJudged(t *testing.T) {
	for _, role := range []bus.Role{bus.RoleMinion, bus.RoleUnaccepted} {
		t.Run(string(role), func(t *testing.T) {
			judge, judging := make(chan struct{}), make(chan struct{}, 100)
			as := admitAs(role)
			b := startTLS(t, Options{Ping: 2 * time.Second, Admit: func(p Peer) bus.Identity {
				judging <- struct{}{}
				<-judge
				return as(p)
			}})
			places := 2
			set(b, func(p *acceptor) { p.turns = newTurns(places) })
			for range places {
				go func() {
					if nc, err := login(b, "127.0.0.2", 3*time.Second); err == nil { // it has a time limit
						nc.Close()
					}
				}()
				deadline.Receive(t, judging, "judging")
			}
			until(t, "the server has noticed", func() bool {
				b.auth.acceptor.mu.Lock()
				defer b.auth.acceptor.mu.Unlock()
				return len(b.auth.acceptor.open) == 0
			})
			close(judge)
			nc, err := login(b, "127.0.0.1", time.Minute)
			if err != nil {
				t.Fatalf("somebody new: %v", err)
			}
			nc.Close()
			until(t, "nothing is counted any more", func() bool {
				p := b.auth.acceptor
				p.mu.Lock()
				defer p.mu.Unlock()
				p.turns.mu.Lock()
				defer p.turns.mu.Unlock()
				return len(b.auth.all(nil)) == 0 && len(p.open)+p.halfOpen.n+p.unaccepted.n == 0 && p.turns.free == places
			})
		})
	}
}

// Before the daemon is ready, connections wait in the kernel, and are served afterwards.
func TestConnectionsWaitUntilItIsReady(t *testing.T) {
	ready := make(chan struct{})
	b := startTLS(t, Options{Admit: admitAs(bus.RoleMinion), Ready: ready})
	early := make(chan error)
	go func() {
		nc, err := login(b, "127.0.0.1", time.Minute)
		if err == nil {
			nc.Close()
		}
		early <- err
	}()
	for _, c := range openConns(t, b, 20, "127.0.0.2") {
		c.Close()
	}
	if n := b.server.NumClients(); n != 1 {
		t.Errorf("%d clients before it is ready, want the daemon alone", n)
	}
	close(ready)
	if err := deadline.Receive(t, early, "early"); err != nil {
		t.Error(err)
	}
}

// The next turn goes to another host, however many connections of the first host wait.
func TestTurnsAreSharedByHost(t *testing.T) {
	turns := newTurns(1)
	if !turns.take(nil, "eve", nil) {
		t.Fatal("a free turn was not given")
	}
	got := make(chan string, 200)
	queue := func(host string, n int) {
		for range n {
			go func() {
				turns.take(nil, host, nil)
				got <- host
			}()
		}
		until(t, host+" waits", func() bool {
			turns.mu.Lock()
			defer turns.mu.Unlock()
			return turns.queues[nil] != nil && len(turns.queues[nil].of[host]) == n
		})
	}
	queue("eve", 100)
	queue("web1", 1)
	queue("web2", 1)
	gone := make(chan struct{})
	close(gone)
	if turns.take(nil, "web3", gone) {
		t.Error("a turn was given to who is gone")
	}
	var order []string
	for range 4 {
		turns.give()
		order = append(order, deadline.Receive(t, got, "got"))
	}
	if s := strings.Join(order, " "); s != "eve web1 web2 eve" {
		t.Errorf("turns went to %s", s)
	}
	for range 98 {
		turns.give()
		deadline.Receive(t, got, "got")
	}
	turns.give()
	if turns.free != 1 || len(turns.ports)+len(turns.queues) != 0 {
		t.Errorf("at the end %d turns are free and %d ports have a queue", turns.free, len(turns.queues))
	}
}

// All ports have the same turns, and the next one goes to another port, however many hosts wait at the
// first.
func TestTurnsAreSharedByPort(t *testing.T) {
	turns, clients, members := newTurns(1), &acceptor{}, &acceptor{}
	turns.take(clients, "eve", nil)
	got := make(chan string, 8)
	for i, p := range []*acceptor{clients, clients, clients, members, members} {
		host := fmt.Sprint("host", i)
		go func() {
			turns.take(p, host, nil)
			got <- host
		}()
		until(t, host+" waits", func() bool {
			turns.mu.Lock()
			defer turns.mu.Unlock()
			return turns.queues[p] != nil && len(turns.queues[p].of[host]) == 1
		})
	}
	var order []string
	for range 5 {
		turns.give()
		order = append(order, deadline.Receive(t, got, "got"))
	}
	if s := strings.Join(order, " "); s != "host0 host3 host1 host4 host2" {
		t.Errorf("turns went to %s", s)
	}
}

func TestShareOfOpenFiles(t *testing.T) {
	for _, limit := range []int{256, 1024, 4096, 20_000, 524_288, 1 << 30} {
		d := share(limit, 0)
		t.Logf("%+v", d)
		if d.connections <= 0 || d.connections >= limit || d.halfOpen+d.unaccepted > d.connections || d.halfOpen > maxHalfOpen || d.unaccepted > maxUnaccepted {
			t.Errorf("%d: %+v", limit, d)
		}
		if limit >= 1024 && limit-d.connections < minReserve {
			t.Errorf("%d: %+v leaves too little", limit, d)
		}
	}
}

// If the limit on open files may be raised, it is, and the log says what it allows.
func TestOpenFilesAreRaised(t *testing.T) { // not parallel: the limit is that of the process
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) })
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: min(900, limit.Max), Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	d := openFiles(slog.New(slog.NewTextHandler(&said, nil)), 0)
	var now syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now); err != nil || now.Cur != limit.Max {
		t.Errorf("the limit is %d, want the hard one of %d: %v", now.Cur, limit.Max, err)
	}
	want := fmt.Sprintf("limit=%d connections=%d unaccepted=%d half_open=%d", d.limit, d.connections, d.unaccepted, d.halfOpen)
	if d != share(int(min(limit.Max, 1<<30)), 0) || !strings.Contains(said.String(), want) {
		t.Errorf("%+v, and the log says:\n%s", d, said.String())
	}
}

func TestHostGroup(t *testing.T) {
	for _, test := range []struct{ address, want string }{
		{"192.0.2.7:4506", "192.0.2.7"},
		{"[::ffff:192.0.2.7]:4506", "192.0.2.7"},
		{"[2001:db8:1:2:3:4:5:6]:4506", "2001:db8:1:2::/64"},
		{"[fe80::1%eth0]:4506", "fe80::/64"},
	} {
		if got := hostGroup(text(test.address)); got != test.want {
			t.Errorf("%s is of %s, want %s", test.address, got, test.want)
		}
	}
}

type text string

func (t text) Network() string { return "tcp" }
func (t text) String() string  { return string(t) }

// One host has a limited share of the connections that are not authenticated yet, so that other
// hosts can always connect.
func TestConnectionsOfOneHostAreLimited(t *testing.T) {
	p := newAcceptor(nil, descriptors{halfOpen: 10, unaccepted: 6}, nil, nil)
	for name, c := range map[string]struct {
		of   *quota
		most int
	}{"half open": {p.halfOpen, 5}, "unaccepted": {p.unaccepted, 3}} {
		taken := 0
		for range 2 * c.of.most {
			if victim, ok := c.of.add(&arrival{host: "127.0.0.1"}, func(*arrival) bool { return false }); ok && victim == nil {
				taken++
			}
		}
		if _, ok := c.of.add(&arrival{host: "127.0.0.2"}, func(*arrival) bool { return false }); taken != c.most || !ok {
			t.Errorf("%s: one host has %d places, want %d; another host is taken: %v", name, taken, c.most, ok)
		}
	}
}
