package broker

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brinebus/brine/internal/logging"
	"github.com/brinebus/brine/internal/member"
	"github.com/brinebus/brine/internal/pki"
)

// TestRoutesStayWhileTheListIsUnread: a list of removed members that cannot be read for a moment ends no
// route. It does after a while; and a member that is on the list is cut at once.
func TestRoutesStayWhileTheListIsUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key, err := pki.Generate(pki.Ed25519, 0)
		if err != nil {
			t.Fatal(err)
		}
		var removed member.Fingerprints
		unread := errors.New("too many open files")
		r := &routes{log: slog.New(slog.DiscardHandler), dialled: map[string]*routeEnd{}, live: map[*routeEnd]bool{}, changed: make(chan struct{})}
		r.opts.Rule.Removed = func() (member.Fingerprints, error) { return removed, err }
		add := func() *routeEnd {
			c, _ := net.Pipe()
			e := &routeEnd{Conn: c, routes: r, gone: make(chan struct{}), member: member.Member{Key: key.Public()}}
			r.live[e] = true
			return e
		}
		add()
		step := func(name string, list member.Fingerprints, fault error, want int) {
			removed, err = list, fault
			if r.cut(); len(r.live) != want {
				t.Fatalf("%s: %d routes are left, want %d", name, len(r.live), want)
			}
		}
		step("unread for the first time", nil, unread, 1)
		time.Sleep(member.UnreadTime - time.Second)
		step("unread some seconds later", nil, unread, 1)
		step("read again", nil, nil, 1)
		time.Sleep(member.UnreadTime)
		step("unread once more", nil, unread, 1)
		time.Sleep(member.UnreadTime)
		step("unread for too long", nil, unread, 0)
		add()
		step("removed", member.Fingerprints{key.Public().SHA256(): true}, nil, 0)
	})
}

// TestAMemberThatMeetsItselfRefusesNobody: at neither end of a connection through something that translates
// addresses it says that a member was refused, and once that it reaches itself. It says so of somebody else who
// shows its certificate.
func TestAMemberThatMeetsItselfRefusesNobody(t *testing.T) {
	key, err := pki.Generate(pki.Ed25519, 0)
	if err != nil {
		t.Fatal(err)
	}
	own, err := key.Certificate("a")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	refused := 0
	r := &routes{
		opts: ClusterOptions{Certificate: own}, log: slog.New(slog.NewTextHandler(&log, nil)), throttle: logging.Throttle{}, refused: func(string, ...any) { refused++ },
		dialled: map[string]*routeEnd{}, peers: map[string]*PeerState{"b:4507": {Address: "b:4507"}},
	}
	ends := func() (from, to net.Conn) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if from, err = net.Dial("tcp", l.Addr().String()); err == nil {
			to, err = l.Accept()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { from.Close(); to.Close() })
		return from, to
	}
	accept := func() *routeEnd {
		_, to := ends()
		return &routeEnd{Conn: to, arrival: &arrival{Conn: to}, routes: r}
	}
	c, _ := ends()
	dialled := &routeEnd{Conn: c, routes: r, name: newName()}
	r.dialled[dialled.name] = dialled
	accepted, other := accept(), accept()
	if r.meetsItself(dialled.name, accepted) || r.meetsItself(newName(), other) {
		t.Error("a connection from elsewhere is taken for the one that was dialled")
	}
	shown := tls.ConnectionState{PeerCertificates: []*x509.Certificate{own.Leaf}}
	if err := r.judge(dialled, shown); err != nil || !dialled.own {
		t.Errorf("the other end is this member: %t, %v", dialled.own, err)
	}
	if err := r.judge(accepted, shown); !errors.Is(err, errSelf) || refused != 0 {
		t.Errorf("itself: %v, refused %d times", err, refused)
	}
	if err := r.judge(other, shown); err == nil || errors.Is(err, errSelf) || refused != 1 {
		t.Errorf("somebody else: %v, refused %d times", err, refused)
	}
	for range 3 {
		r.note("b:4507", errSelfThrough)
	}
	if n := strings.Count(log.String(), "this member reaches itself"); n != 1 || strings.Contains(log.String(), "WARN") {
		t.Errorf("it says %d times that it reaches itself: %s", n, &log)
	}
}
