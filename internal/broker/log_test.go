package broker

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/member"
	"github.com/brinebus/brine/test/capture"
	"github.com/brinebus/brine/test/deadline"
)

// Connections that try forbidden operations, or do not speak TLS, do not fill the log: a few
// lines for each connection, and for all together, are logged in a minute, with the number of
// others.
func TestConnectionsFillNoLog(t *testing.T) {
	var text bytes.Buffer
	l := &serverLog{log: slog.New(slog.NewTextHandler(&text, nil)), health: newHealth(Options{})}
	for i := range 3 * maxOthers {
		l.Errorf("192.0.2.1:%d - cid:%d - TLS handshake error: EOF", i, i)
	}
	for range 3 * maxViolations {
		l.Errorf("192.0.2.1:1 - cid:1 - Subscription Violation - Subject %q", ">")
	}
	l.Errorf("192.0.2.1:2 - cid:2 - Subscription Violation - Subject %q", ">")
	l.Errorf("JetStream is unhappy")
	for what, want := range map[string]int{"handshake": 1, "cid:1 - Subscription": maxViolations, "cid:2 - Subscription": 1, "JetStream": 1} {
		if n := strings.Count(text.String(), what); n != want {
			t.Errorf("%q is in the log %d times, want %d", what, n, want)
		}
	}
	text.Reset()
	left, tell := l.count("192.0.2.1:3 - cid:3 - TLS handshake error: EOF", time.Now().Add(2*time.Minute))
	if want := 3*maxOthers - 1; !tell || left != want {
		t.Errorf("the first line of another minute is told: %t, with %d others; want %d", tell, left, want)
	}
	for i := range 100 * maxOfAll {
		l.Errorf("192.0.2.1:%d - cid:%d - Publish Violation - Subject %q", i, i, ">")
	}
	if n := strings.Count(text.String(), "Publish"); n > maxOfAll {
		t.Errorf("%d connections that try what they may not are told in %d lines", 100*maxOfAll, n)
	}
}

// TestAFloodIsOneLine: connections that are refused for lack of room, or cannot be accepted for
// lack of descriptors, cause one line a minute, however many hosts there are.
func TestAFloodIsOneLine(t *testing.T) {
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	p := newAcceptor(nil, share(1024, 0), newMeter(), log)
	for i := range 500 {
		here, there := net.Pipe()
		defer there.Close()
		p.turnedAway(&arrival{Conn: here, acceptor: p, host: fmt.Sprint("192.0.2.", i), gone: make(chan struct{}), timer: time.NewTimer(time.Hour)})
	}
	for range 10 {
		p.stumbled(syscall.EMFILE)
	}
	if n := strings.Count(text.String(), "\n"); n != 2 {
		t.Errorf("%d lines, want one of each kind: %.500s", n, text.String())
	}
}

// A peer that is refused again and again is logged once a minute, whatever its port.
func TestRefusedConnectionsFillNoLog(t *testing.T) {
	var text bytes.Buffer
	g := &authenticator{log: slog.New(slog.NewTextHandler(&text, nil))}
	for i := range 100 {
		g.refused(hostOf(fmt.Sprintf("192.0.2.1:%d", i)), "remote", i)
		g.refused(hostOf(fmt.Sprintf("[2001:db8::1]:%d", i)), "remote", i)
	}
	if n := strings.Count(text.String(), "connection refused"); n != 2 {
		t.Errorf("%d lines, want one of each host", n)
	}
}

// A reader that gets more than its buffer holds reads again what it missed: nothing is lost, so
// it is not an error.
func TestAReaderThatIsBehindIsNoError(t *testing.T) {
	var text bytes.Buffer
	heard := make(chan struct{}, 1)
	b, err := Start(Options{Name: "test", Log: slog.New(&signalling{slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}), "a reader of the journal", heard}), Admit: func(Peer) bus.Identity { return bus.Identity{} }})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Stop()
	if _, err := b.Conn().ChanSubscribe("x", make(chan *nats.Msg, 1)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := b.Conn().Publish("x", nil); err != nil {
			t.Fatal(err)
		}
	}
	deadline.Receive(t, heard, "heard")
	b.Stop()
	if strings.Contains(text.String(), "level=ERROR") {
		t.Errorf("the log says %s", text.String())
	}
}

// signalling signals when a message with this beginning is logged.
type signalling struct {
	slog.Handler
	begin string
	heard chan struct{}
}

func (s *signalling) Handle(ctx context.Context, r slog.Record) error {
	err := s.Handler.Handle(ctx, r)
	if strings.HasPrefix(r.Message, s.begin) || r.Level >= slog.LevelError {
		select {
		case s.heard <- struct{}{}:
		default:
		}
	}
	return err
}

// A journal reader that was given more than its buffer takes reads it again: nothing is lost, and
// no error is logged.
func TestAReaderWithAFullBufferIsNotAnError(t *testing.T) {
	t.Parallel()
	log := &capture.Buffer{}
	b, err := Start(Options{Name: "test", Admit: func(Peer) bus.Identity { return bus.Identity{} }, Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	sub, err := b.Conn().SubscribeSync("full")
	if err == nil {
		err = sub.SetPendingLimits(1, -1)
	}
	for range 10 {
		if err == nil {
			err = b.Conn().Publish("full", nil)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	until(t, "it is logged", func() bool { return strings.Contains(log.String(), "more than its buffer holds") })
	if strings.Contains(log.String(), "level=ERROR") {
		t.Error(log.String())
	}
}

// TestAnElectionFillsNoLog: after a member was killed many streams are asked in vain for some seconds, which is no
// fault of the disk of this one.
func TestAnElectionFillsNoLog(t *testing.T) {
	var text bytes.Buffer
	o := Options{Log: slog.New(slog.NewTextHandler(&text, nil))}
	ask := func() {
		h := newHealth(o)
		for i := range 20 {
			h.Late(fmt.Sprintf("read the table t%d", i), 2*time.Second)
		}
	}
	ask()
	if got := text.String(); strings.Count(got, "\n") != 20 || strings.Contains(got, "elect") {
		t.Errorf("a store alone logs %s", got)
	}
	text.Reset()
	o.Cluster = &ClusterOptions{}
	ask()
	if got := text.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "the members of the cluster elect a leader") || !strings.Contains(got, "read the table t0") {
		t.Errorf("a member logs %s", got)
	}
}

// TestAMemberWithoutAName: the server has a sentence of its own for a member that it has not seen since its start.
func TestAMemberWithoutAName(t *testing.T) {
	for name, want := range map[string]string{"m2": "m2", "Server name unknown at this time (peerID: " + peerID("m2") + ")": "a member that this one does not know by name"} {
		i := &server.ClusterInfo{Leader: "m1", Replicas: []*server.PeerInfo{{Name: name, Peer: peerID("m2"), Offline: true}}}
		c := &Cluster{r: &routes{opts: ClusterOptions{Rule: member.Rule{Card: member.Card{Name: "m1"}}}}}
		if got := c.lacks(i, 3, 3, func(string) bool { return true }); got != want+" is not connected" {
			t.Errorf("%s lacks %q", name, got)
		}
	}
}

// TestAMemberThatWasNotHeard: a new leader has not heard a member that is dead, and does not know what that has: the
// server says that it lacks all, and was heard just now.
func TestAMemberThatWasNotHeard(t *testing.T) {
	c := &Cluster{r: &routes{opts: ClusterOptions{Rule: member.Rule{Card: member.Card{Name: "m1"}}}}}
	for _, test := range []struct {
		peer   server.PeerInfo
		linked bool
		want   string
	}{
		{server.PeerInfo{Lag: 1967}, false, "m2 is not connected"},
		{server.PeerInfo{Lag: 1967}, true, "m2 was not heard since this member leads"},
		{server.PeerInfo{Lag: 7, Active: time.Second}, true, "m2 is 7 entries behind, and was heard 1s ago"},
		{server.PeerInfo{Current: true}, true, "2 of 3 copies"},
	} {
		test.peer.Name, test.peer.Peer = "m2", peerID("m2")
		i := &server.ClusterInfo{Leader: "m1", Replicas: []*server.PeerInfo{&test.peer}}
		if got := c.lacks(i, 3, 3, func(string) bool { return test.linked }); got != test.want {
			t.Errorf("%+v lacks %q, not %q", test.peer, got, test.want)
		}
	}
}
