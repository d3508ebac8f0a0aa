package minion_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/minion"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/test/deadline"
)

// halfDead listens in place of a master, whose key it has, and treats each
// connection as treat says. It returns its address and how many have come.
func halfDead(t *testing.T, key *pki.PrivateKey, treat func(c net.Conn, cfg *tls.Config)) (net.Addr, *atomic.Int32) {
	t.Helper()
	certificate, err := key.ServerCertificate(bus.ServerName)
	if err != nil {
		t.Fatal(err)
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS13}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	came := new(atomic.Int32)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			came.Add(1)
			wg.Go(func() {
				defer c.Close()
				treat(c, cfg)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		deadline.Call(t, wg.Wait, "wg")
	})
	return l.Addr(), came
}

// greet begins the protocol as a master does: the line in the clear, then TLS.
func greet(c net.Conn, cfg *tls.Config) (*tls.Conn, error) {
	if _, err := io.WriteString(c, `INFO {"server_id":"x","version":"2.15.0","proto":1,"headers":true,"max_payload":1048576,"auth_required":true,"tls_required":true,"tls_verify":true,"client_id":1}`+"\r\n"); err != nil {
		return nil, err
	}
	s := tls.Server(c, cfg)
	return s, s.Handshake()
}

// answerPings answers what every bus answers by itself, until it has done so often
// enough; more than it takes to be connected is never reached.
func answerPings(s net.Conn, most int) {
	for lines := bufio.NewScanner(s); most > 0 && lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "PING") {
			_, _ = io.WriteString(s, "PONG\r\n") // an error ends the next read
			most--
		}
	}
}

// The first master of a list is half dead: it takes the connection and drops it, or
// it speaks TLS and then says nothing. The minion stays with the second one, however
// often it looks for the first.
func TestHalfDeadMaster(t *testing.T) {
	for name, treat := range map[string]func(c net.Conn, cfg *tls.Config){
		"drops the connection":   func(net.Conn, *tls.Config) {},
		"takes it, says nothing": func(c net.Conn, _ *tls.Config) { _, _ = io.Copy(io.Discard, c) },
		"drops it after TLS":     func(c net.Conn, cfg *tls.Config) { _, _ = greet(c, cfg) },
		"says nothing after TLS": func(c net.Conn, cfg *tls.Config) {
			if s, err := greet(c, cfg); err == nil {
				_, _ = io.Copy(io.Discard, s)
			}
		},
		"is a bus without a master": func(c net.Conn, cfg *tls.Config) {
			if s, err := greet(c, cfg); err == nil {
				answerPings(s, 1<<30)
			}
		},
		"drops it once it is connected": func(c net.Conn, cfg *tls.Config) {
			if s, err := greet(c, cfg); err == nil {
				answerPings(s, 1)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key, err := pki.Generate(pki.Ed25519, 0)
			if err != nil {
				t.Fatal(err)
			}
			a, came := halfDead(t, key, treat)
			_, b, _ := startMaster(t)
			cfg := minionConfig(t, a, "master_type: failover\nmaster_failback: True\nmaster_failback_interval: 1\nmaster_alive_interval: 1\nauth_timeout: 1\nrecon_max: 200\n")
			cfg.Master, cfg.MasterIsList = []string{a.String(), b.String()}, true
			startMinion(t, cfg)
			uses(t, cfg, b)
			before := came.Load()
			until(t, "the first master was looked at three times more", func() bool { return came.Load() >= before+3 })
			uses(t, cfg, b)
			if n := timesConnected(t, cfg.SockDir); n != 1 {
				t.Errorf("the minion was connected %d times, want once", n)
			}
		})
	}
}

// timesConnected counts the events of the minion's bus that say so.
func timesConnected(t *testing.T, dir string) (n int) {
	t.Helper()
	s, err := dial(t, dir, minion.SocketName).Call(protocol.OpListen, protocol.Listen{Tags: []string{"__master_connected"}, Since: time.Now().Add(-time.Hour), UntilEnd: true})
	if err != nil {
		t.Fatal(err)
	}
	var ready protocol.Ready
	if err := s.Decode(t.Context(), &ready); err != nil {
		t.Fatal(err)
	}
	for {
		var e protocol.Heard
		if err := s.Decode(t.Context(), &e); err != nil {
			return n
		}
		n++
	}
}

// A master that has just started refuses twice in a row, as one does that has not read its
// keys yet: the minion comes back all the same.
func TestRefusedTwiceDuringARestart(t *testing.T) {
	master, b, _ := startMaster(t)
	key, err := pki.LoadPrivate(filepath.Join(master.PKIDir, "master.pem"))
	if err != nil {
		t.Fatal(err)
	}
	var refusals atomic.Int32
	a, came := halfDead(t, key, func(c net.Conn, cfg *tls.Config) {
		if refusals.Add(1) > 2 {
			through(c, b)
			return
		}
		if s, err := greet(c, cfg); err == nil {
			_, _ = bufio.NewReader(s).ReadString('\n') // its CONNECT
			_, _ = io.WriteString(s, "-ERR 'Authorization Violation'\r\n")
		}
	})
	cfg := minionConfig(t, a, "recon_default: 10\nrecon_max: 200\nauth_timeout: 1\n")
	startMinion(t, cfg)
	connected(t, cfg)
	if n := came.Load(); n < 3 {
		t.Errorf("the minion came %d times, want two refusals before", n)
	}
}

// An impostor takes the place of the master, with a key of its own. A minion that is a service refuses it, is not
// ended by that, and is back with its master when the impostor has gone.
func TestAnImpostorEndsNoService(t *testing.T) {
	_, b, _ := startMaster(t)
	key, err := pki.Generate(pki.Ed25519, 0)
	if err != nil {
		t.Fatal(err)
	}
	var impostor atomic.Bool
	var mu sync.Mutex
	var honest []net.Conn
	a, came := halfDead(t, key, func(c net.Conn, cfg *tls.Config) {
		if impostor.Load() {
			if s, err := greet(c, cfg); err == nil {
				answerPings(s, 1<<30)
			}
			return
		}
		mu.Lock()
		honest = append(honest, c)
		mu.Unlock()
		through(c, b)
	})
	cfg := minionConfig(t, a, "acceptance_wait_time: 0\nacceptance_wait_time_max: 1\nrecon_default: 10\nrecon_max: 200\nauth_timeout: 1\n")
	m, err := minion.New(t.Context(), minion.Options{Config: cfg, Version: "test", Service: true, Log: logger(t, "minion")})
	if err != nil {
		t.Fatal(err)
	}
	d := run(t, m.Run)
	connected(t, cfg)
	impostor.Store(true)
	before := came.Load()
	mu.Lock()
	for _, c := range honest {
		c.Close()
	}
	mu.Unlock()
	until(t, "the impostor was met three times", func() bool { return came.Load() >= before+3 })
	var s protocol.Status
	if err := dial(t, cfg.SockDir, minion.SocketName).Ask(t.Context(), protocol.OpStatus, nil, &s); err != nil || s.Connected {
		t.Errorf("with an impostor in the place of its master: %+v, %v", s, err)
	}
	impostor.Store(false)
	connected(t, cfg)
	select {
	case err := <-d.ended:
		t.Errorf("the minion ended: %v", err)
	default:
	}
}

// through passes all bytes on to the real master.
func through(c net.Conn, to net.Addr) {
	m, err := net.Dial("tcp", to.String())
	if err != nil {
		return
	}
	defer m.Close()
	go func() {
		_, _ = io.Copy(m, c)
		m.Close()
	}()
	_, _ = io.Copy(c, m)
}
