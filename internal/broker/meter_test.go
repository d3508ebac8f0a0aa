package broker

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/socket"
	"github.com/brinebus/brine/test/deadline"
	"github.com/nats-io/nats.go"
)

// An identity that has used up its share waits for a probe, and others do not.
func TestSharesOfWhatIsUnderWay(t *testing.T) {
	m := newMeter()
	m.on = true
	flood := m.join(bus.Identity{Role: bus.RoleMinion, Name: "evil"}, "")
	again := m.join(bus.Identity{Role: bus.RoleCaller, Name: "evil"}, "")
	other := m.join(bus.Identity{Role: bus.RoleMinion, Name: "web1"}, "")
	if flood != again || flood == other {
		t.Fatal("all connections of a minion have one share, and each minion its own")
	}
	m.took(flood, maxShare)
	if !m.over(flood) || m.over(other) {
		t.Errorf("after a whole share: over %v, another %v", m.over(flood), m.over(other))
	}
	done := make(chan struct{})
	go func() { m.wait(flood, nil); close(done) }()
	m.begin()
	m.took(flood, 1) // after the probe
	m.wait(other, nil)
	select {
	case <-done:
		t.Error("the flood goes on before the probe has come back")
	default:
	}
	m.end(0)
	deadline.Receive(t, done, "done")
	if m.over(flood) || flood.now != 1 {
		t.Errorf("after the probe %d bytes are under way, over %v", flood.now, m.over(flood))
	}
	m.leave(again)
	m.leave(flood)
	m.leave(other)
	if len(m.shares) != 0 {
		t.Errorf("%d shares are left", len(m.shares))
	}
}

// Peers without an accepted key share with all such peers of their host, whatever their keys.
func TestShareOfUnacceptedKeys(t *testing.T) {
	m := newMeter()
	m.on, m.most = true, maxShare // as with large messages
	one := m.join(bus.Identity{Role: bus.RoleUnaccepted, Name: "a", Key: "1"}, "10.0.0.1")
	if m.join(bus.Identity{Role: bus.RoleUnaccepted, Name: "b", Key: "2"}, "10.0.0.1") != one || m.join(bus.Identity{Role: bus.RoleUnaccepted, Name: "c", Key: "3"}, "10.0.0.2") == one {
		t.Error("unaccepted keys of one host do not share, or those of two do")
	}
	m.took(one, strangeShare)
	if !m.over(one) {
		t.Error("unaccepted keys have more than their share")
	}
}

// If much is under way in all, each identity may have only a small part.
func TestManyWithAShareEach(t *testing.T) {
	m := newMeter()
	m.on, m.most = true, maxShare // as with large messages
	for n := range maxUnderWay / (maxShare / 2) {
		m.took(m.join(bus.Identity{Role: bus.RoleMinion, Name: fmt.Sprint("m", n)}, ""), maxShare/2)
	}
	half := m.shares["minion m0"]
	quiet := m.join(bus.Identity{Role: bus.RoleUser, Name: "0"}, "")
	if !m.over(half) || m.over(quiet) {
		t.Errorf("half a share goes on: %v; nothing under way waits: %v", !m.over(half), m.over(quiet))
	}
}

// Others do not wait longer behind small messages of one identity than behind large ones.
func TestSharesFollowTheSizeOfMessages(t *testing.T) {
	m := newMeter()
	m.on = true
	flood := m.join(bus.Identity{Role: bus.RoleMinion, Name: "evil"}, "")
	pass := func(bytes, messages int) {
		m.took(flood, bytes)
		m.begin()
		m.end(messages)
	}
	if m.took(flood, maxShare/4); !m.over(flood) {
		t.Error("a quarter of the largest share is taken before anybody knows how large the messages are")
	}
	for range 30 {
		pass(1<<20, 2)
	}
	if m.took(flood, maxShare/2); m.over(flood) {
		t.Error("pieces of large messages are held up")
	}
	pass(0, (maxShare/2)/100) // 100 bytes each
	if m.took(flood, 200*maxMessages); !m.over(flood) {
		t.Errorf("%d small messages are under way", 2*maxMessages)
	}
	pass(0, 2*maxMessages)
	before := m.most
	if pass(1<<20, 2); m.most > before*2 {
		t.Errorf("after two large messages a share grows from %d to %d bytes at once", before, m.most)
	}
	for range 30 {
		pass(1<<20, 2)
	}
	if m.most != maxShare {
		t.Errorf("a share has %d bytes, want %d again", m.most, maxShare)
	}
}

// Slow stops reading from one identity for a moment, and others do not wait.
func TestPushBack(t *testing.T) {
	m := newMeter()
	evil := bus.Identity{Role: bus.RoleMinion, Name: "evil"}
	flood, other := m.join(evil, ""), m.join(bus.Identity{Role: bus.RoleMinion, Name: "web1"}, "")
	begun := time.Now()
	m.slow(evil, 30*time.Millisecond)
	m.wait(other, nil)
	if m.wait(flood, nil); time.Since(begun) < 30*time.Millisecond {
		t.Error("who was pushed back goes on at once")
	}
}

// One key that is not accepted does not slow the others of its host, with which it shares.
// Guests are slowed together, by host.
func TestPushBackOfThoseWithoutAKey(t *testing.T) {
	m := newMeter()
	for _, host := range []string{"", "10.0.0.1"} { // a message does not say which host it came from
		evil := bus.Identity{Role: bus.RoleUnaccepted, Name: "1", Key: "1"}
		shared := m.join(evil, host)
		if m.slow(evil, time.Hour); !shared.rest.IsZero() {
			t.Errorf("all unaccepted keys of host %q wait for %s", host, time.Until(shared.rest))
		}
	}
	guest := bus.Identity{Role: bus.RoleGuest, Name: "10.0.0.1", Key: "1"}
	shared := m.join(guest, "10.0.0.1")
	if m.slow(guest, time.Hour); shared.rest.IsZero() {
		t.Error("guests that ask too much are read on")
	}
}

// Waiting for a share ends with the connection.
func TestAWaitEndsWithTheConnection(t *testing.T) {
	m := newMeter()
	m.on = true
	f := m.join(bus.Identity{Role: bus.RoleMinion, Name: "evil"}, "")
	m.took(f, maxShare)
	gone := make(chan struct{})
	close(gone)
	m.wait(f, gone)
}

func startQuiet(t *testing.T, log *slog.Logger) *Broker {
	t.Helper()
	b, err := Start(Options{Name: "test", StoreDir: t.TempDir(), Log: log, Admit: func(Peer) bus.Identity { return bus.Identity{} }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	return b
}

// The daemon's own connection may leave more unread than others: it is made before their limit
// is set.
func TestTheDaemonIsNoSlowReaderOfItself(t *testing.T) {
	o := Options{Name: "test", Log: slog.New(slog.DiscardHandler)}
	g := newAuthenticator(o)
	s, so, err := newServer(o, g, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &Broker{opts: o, server: s, auth: g, health: newHealth(Options{}), meter: g.meter, failed: make(chan error, 1), quit: make(chan struct{}), ends: make(chan struct{}, 1)}
	t.Cleanup(b.Stop)
	if err := b.open(so, nil); err != nil {
		t.Fatal(err)
	}
	setOptions(s, so)
	var wg sync.WaitGroup
	var end *loopDaemon
	own := unread(t, b, loopMaker{s, &wg, &end})
	limitReaders(s, so)
	other := unread(t, b, s)
	body := make([]byte, maxPayload)
	for range maxPending/maxPayload + 16 {
		if err := b.Conn().Publish("flood", body); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Conn().FlushTimeout(30 * time.Second); err != nil {
		t.Fatal(err)
	}
	_ = own.SetReadDeadline(time.Now().Add(30 * time.Second))
	if n, err := io.CopyN(io.Discard, own, maxPending+16*maxPayload); err != nil {
		t.Errorf("the daemon's connection was cut off after %d bytes: %v", n, err)
	}
	_ = other.SetReadDeadline(time.Now().Add(30 * time.Second))
	if n, err := io.Copy(io.Discard, other); err != nil || n > maxPending {
		t.Errorf("a connection that read nothing got %d bytes then, %v; it should have been cut off", n, err)
	}
}

// unread is a connection that subscribes to a flood and reads none of it.
func unread(t *testing.T, b *Broker, by nats.InProcessConnProvider) net.Conn {
	t.Helper()
	c, err := by.InProcessConn()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	r := bufio.NewReader(c)
	if _, err := r.ReadString('\n'); err != nil { // its INFO
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(c, "CONNECT {\"user\":%q,\"verbose\":false}\r\nSUB flood 1\r\nPING\r\n", b.auth.daemon); err != nil {
		t.Fatal(err)
	}
	for line := ""; !strings.HasPrefix(line, "PONG"); {
		if line, err = r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// If the daemon's own connection is lost, that is logged, and Failed returns an error, with
// which the daemon ends.
func TestALostInternalConnectionIsReported(t *testing.T) {
	b := startQuiet(t, slog.New(slog.DiscardHandler))
	cid, err := b.Conn().GetClientID()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.server.DisconnectClientByID(cid); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-b.Failed():
		if !errors.Is(err, ErrFailed) {
			t.Errorf("told %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("nobody is told")
	}
}

// A normal stop is not a failure.
func TestStopIsNoFailure(t *testing.T) {
	b := startQuiet(t, slog.New(slog.DiscardHandler))
	b.Meter(func(back func(int)) error { back(0); return nil })
	b.Stop()
	select {
	case err := <-b.Failed():
		t.Errorf("told %v", err)
	default:
	}
}

// From a local user who sends a flood, no more than the share is read until the daemon has
// handled some of it; then the rest.
func TestAFloodWaitsOnItsOwnConnection(t *testing.T) {
	b, srv, path := startLocal(t, "")
	if err := srv.Start(); err != nil {
		t.Fatal(err)
	}
	backs := make(chan func(int), 100)
	b.Meter(func(back func(int)) error {
		select {
		case backs <- back:
		case <-t.Context().Done():
		}
		return nil
	})
	c, err := socket.Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const payload = 512 << 10
	line := fmt.Sprintf("CONNECT {\"user\":%q,\"verbose\":false}\r\n", bus.NewNonce())
	if _, err := c.Write([]byte(line + "PING\r\n")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for range 2 { // INFO, PONG
		if _, err := c.Read(buf); err != nil {
			t.Fatal(err)
		}
	}
	message := append([]byte(fmt.Sprintf("PUB salt.user.%d.req.echo %d\r\n", os.Geteuid(), payload)), make([]byte, payload)...)
	message = append(message, "\r\n"...)
	var sent atomic.Int64
	go func() {
		for {
			n, err := c.Write(message)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	}()
	until(t, "the flood waits", func() bool { b.meter.mu.Lock(); defer b.meter.mu.Unlock(); return b.meter.waiting > 0 })
	// In addition to the share there is what the kernel, a pipe and a buffer hold.
	if n := sent.Load(); n > maxShare+4<<20 {
		t.Errorf("the flood got rid of %d bytes, its share is %d", n, maxShare)
	}
	go func() {
		for {
			select {
			case back := <-backs:
				back(0)
			case <-t.Context().Done():
				return
			}
		}
	}()
	until(t, "the flood goes on", func() bool { return sent.Load() > 4*maxShare })
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline.Until(t, ok, what)
}

// SlowOne stops reading from one connection of an identity, and the others of it do not wait.
func TestPushBackOfOneConnection(t *testing.T) {
	g := newAuthenticator(Options{Log: slog.New(slog.DiscardHandler)})
	b := &Broker{auth: g, meter: g.meter}
	api := func(cid uint64, nonce string) (i bus.Identity, c *lifetime) {
		i, c = bus.Identity{Role: bus.RoleUser, Name: "1000", Nonce: nonce}, new(lifetime)
		if err := g.enter(cid, i, "", c); err != nil {
			t.Fatal(err)
		}
		return i, c
	}
	fred, flood := api(1, "fred")
	_, eve := api(2, "eve")
	if flood.share.Load().flow != eve.share.Load().flow {
		t.Fatal("the connections of one identity have no common share")
	}
	SlowOne(b)(fred.Inbox(), time.Hour)
	SlowOne(b)("_INBOX.nobody.x", time.Hour)
	g.meter.waitOne(eve.share.Load(), nil) // returns at once
	gone, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		g.meter.waitOne(flood.share.Load(), gone)
	}()
	select {
	case <-done:
		t.Error("a connection that was pushed back goes on at once")
	case gone <- struct{}{}: // it waits for its end
		<-done
	}
}
