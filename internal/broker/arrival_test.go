package broker

import (
	"bufio"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/test/keyupdate"
)

// asksForKeys connects, shakes hands and goes on to ask for new keys, without reading any answer.
func asksForKeys(t *testing.T, b *Broker, from string) {
	t.Helper()
	key, err := pki.Generate(pki.Ed25519, 0)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := key.Certificate("eve")
	if err != nil {
		t.Fatal(err)
	}
	c, err := keyupdate.Dial(b.Addr().String(), local(from))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if greeting, err := bufio.NewReaderSize(c, 16<<10).ReadString('\n'); err != nil || !strings.HasPrefix(greeting, "INFO ") {
		t.Fatalf("the server says %q: %v", greeting, err)
	}
	set(b, func(p *acceptor) {
		for a := range p.open {
			if err := a.Conn.(*net.TCPConn).SetWriteBuffer(16 << 10); err != nil { // as on most machines
				t.Error(err)
			}
			a.timer.Stop() // which would end it, too
		}
	})
	k, err := keyupdate.Handshake(c, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{certificate}})
	if errors.Is(err, keyupdate.ErrSuite) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = k.Flood([]byte("CONNECT {" + strings.Repeat(" ", 4000))) }() // until it is ended
}

// TestAPeerThatReadsNothingKeepsNoTurn: a peer without an accepted key that makes the daemon answer, and reads nothing, is
// ended, and others shake hands.
func TestAPeerThatReadsNothingKeepsNoTurn(t *testing.T) {
	b := startTLS(t, Options{Admit: admitAs(bus.RoleMinion)})
	set(b, func(p *acceptor) { p.turns = newTurns(1) })
	asksForKeys(t, b, "127.0.0.2")
	var ended *server.Connz
	until(t, "it is ended", func() bool {
		var err error
		if ended, err = b.server.Connz(&server.ConnzOptions{State: server.ConnClosed}); err != nil {
			t.Fatal(err)
		}
		return len(ended.Conns) > 0
	})
	if why := ended.Conns[0].Reason; why == server.AuthenticationTimeout.String() {
		t.Errorf("it was ended late: %s", why)
	}
	nc, err := login(b, "127.0.0.1", 30*time.Second)
	if err != nil {
		t.Fatalf("after a peer that reads nothing: %v", err)
	}
	nc.Close()
}

// An authenticated peer that does not read what TLS answers is disconnected, also when the server has no
// deadline for that; one that the server has counts.
func TestAPeerThatReadsNoAnswerOfTLSIsDisconnected(t *testing.T) {
	for name, own := range map[string]time.Duration{"no deadline": 0, "one of the server": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newAcceptor(nil, descriptors{halfOpen: 10, unaccepted: 6, connections: 10}, nil, nil)
				peer, c := net.Pipe()
				defer peer.Close()
				a := p.arrive(c)
				p.letIn(a, false)
				began, want := time.Now(), unreadLimit
				if own > 0 {
					want = own
					if err := a.SetWriteDeadline(began.Add(own)); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := a.Write([]byte("x")); err == nil || time.Since(began) != want || a.ends() != (own == 0) {
					t.Errorf("after %s: %v, disconnected: %t", time.Since(began), err, a.ends())
				}
				a.Close()
			})
		})
	}
}

// A turn ends after a while whatever its connection does, and does not count twice.
func TestATurnEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newAcceptor(nil, descriptors{halfOpen: 10, unaccepted: 6, connections: 10}, nil, nil)
		p.turns = newTurns(1)
		var all []*arrival
		for range 2 {
			peer, c := net.Pipe()
			a := p.arrive(c)
			all = append(all, a)
			go func() {
				defer peer.Close()
				for range 2 {
					_, _ = peer.Write([]byte("x")) // the last one is not read
				}
			}()
		}
		one := make([]byte, 1)
		began := time.Now()
		for i, a := range all {
			if _, err := a.Read(one); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took != time.Duration(i)*turnTime {
				t.Errorf("turn %d came after %s", i, took)
			}
		}
		if _, err := all[0].Read(one); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 2*turnTime {
			t.Errorf("the next turn of the first one came after %s", took)
		}
		for _, a := range all {
			a.Close()
		}
		if time.Sleep(2 * turnTime); p.turns.free != 1 {
			t.Errorf("at the end %d turns are free", p.turns.free)
		}
	})
}
