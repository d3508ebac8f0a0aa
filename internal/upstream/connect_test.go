package upstream_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/brinebus/brine/internal/bus"
	"github.com/brinebus/brine/internal/config"
	"github.com/brinebus/brine/internal/pki"
	"github.com/brinebus/brine/internal/protocol"
	"github.com/brinebus/brine/internal/rpc"
	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/upstream"
	"github.com/brinebus/brine/test/bustest"
	"github.com/brinebus/brine/test/deadline"
	"github.com/brinebus/brine/test/port"
)

// patience is the Timeout of links in these tests, and limit what a test that
// fails waits.
const (
	patience = 20 * time.Second
	limit    = time.Minute
)

// master is a bus that answers what becomes of a key: to each who asks the same
// at first, then what comes out of a channel.
type master struct {
	*bustest.Bus
	states chan protocol.KeyState
	asked  atomic.Int32
}

// startMaster starts a master. Without any state it answers nothing at all.
func startMaster(t *testing.T, states ...protocol.KeyState) *master {
	t.Helper()
	return startMasterWith(t, nil, states...)
}

// startMasterWith starts a master that has these handlers, too.
func startMasterWith(t *testing.T, handlers map[string]rpc.Handler, states ...protocol.KeyState) *master {
	t.Helper()
	m := &master{Bus: bustest.Start(t), states: make(chan protocol.KeyState, 10)}
	for _, s := range states[min(1, len(states)):] {
		m.states <- s
	}
	m.Server.Handle("ask", func(ctx context.Context, r *rpc.Request) error {
		m.asked.Add(1)
		i, _ := m.Owner(r.Inbox())
		next := states
		for {
			if len(next) > 0 {
				if err := r.Send(ctx, protocol.AskAnswer{State: next[0], Reconnect: i.Role == bus.RoleUnaccepted}); err != nil {
					return err
				}
			}
			select {
			case s := <-m.states:
				next = []protocol.KeyState{s}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	for name, h := range handlers {
		m.Server.Handle(name, h)
	}
	if err := m.Server.Start(); err != nil {
		t.Fatal(err)
	}
	return m
}

func options(t *testing.T, address string) upstream.Options {
	t.Helper()
	return upstream.Options{
		Address: address, ID: "web1", Key: bustest.Key(t), PinFile: filepath.Join(t.TempDir(), "minion_master.pub"), Timeout: patience,
		PingInterval: time.Minute, Log: bustest.Log(t),
	}
}

func (m *master) options(t *testing.T) upstream.Options { return options(t, m.Addr().String()) }

func connect(t *testing.T, o upstream.Options) *upstream.Connection {
	t.Helper()
	l, err := upstream.Connect(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// expectPin fails unless the pin file holds key, or is not there for none.
func expectPin(t *testing.T, o upstream.Options, key *pki.PrivateKey) {
	t.Helper()
	b, err := os.ReadFile(o.PinFile)
	switch {
	case key == nil && !errors.Is(err, fs.ErrNotExist):
		t.Errorf("a key is pinned: %s, %v", b, err)
	case key != nil && (err != nil || !bytes.Equal(b, key.Public().PEM())):
		t.Errorf("pinned is %q, %v; want the key of %s", b, err, key.Public())
	}
}

func TestFirstContactPins(t *testing.T) {
	t.Parallel()
	m := startMaster(t, protocol.KeyAccepted)
	o := m.options(t)
	m.Accept(o.ID, o.Key)
	l := connect(t, o)
	if !l.Ready() || !l.Master.Equal(m.Key.Public()) {
		t.Errorf("ready %v, the master is %s", l.Ready(), l.Master)
	}
	expectPin(t, o, m.Key)
	before, err := os.Stat(o.PinFile)
	if err != nil || before.Mode().Perm() != 0o644 {
		t.Errorf("mode %v, %v", before.Mode(), err)
	}
	connect(t, o)
	if after, err := os.Stat(o.PinFile); err != nil || !os.SameFile(before, after) {
		t.Errorf("the second contact wrote the file again (%v)", err)
	}
}

func TestChangedKeyIsRefused(t *testing.T) {
	t.Parallel()
	m := startMaster(t, protocol.KeyAccepted)
	o := m.options(t)
	m.Accept(o.ID, o.Key)
	trusted := bustest.Key(t)
	if err := os.WriteFile(o.PinFile, trusted.Public().PEM(), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := upstream.Connect(t.Context(), o)
	if !errors.Is(err, upstream.ErrMasterKey) || l != nil {
		t.Fatalf("%v, %v; want ErrMasterKey", l, err)
	}
	for _, want := range []string{m.Key.Public().SHA256(), trusted.Public().SHA256(), o.PinFile} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
	if !strings.Contains(salt.Hint(err), o.PinFile) {
		t.Errorf("hint %q", salt.Hint(err))
	}
	expectPin(t, o, trusted)
	if n := m.asked.Load(); n > 0 {
		t.Error("the minion spoke to a master that it does not trust")
	}
}

func TestFinger(t *testing.T) {
	t.Parallel()
	m := startMaster(t, protocol.KeyAccepted)
	o := m.options(t)
	m.Accept(o.ID, o.Key)
	o.Trust.Fingers = []string{bustest.Key(t).Public().SHA256()}
	if _, err := upstream.Connect(t.Context(), o); !errors.Is(err, upstream.ErrMasterKey) {
		t.Errorf("another fingerprint: %v, want ErrMasterKey", err)
	}
	expectPin(t, o, nil)
	o.Trust.Fingers = []string{strings.ToUpper(m.Key.Public().SHA256())}
	connect(t, o)
	expectPin(t, o, m.Key)
}

func TestKeyStatesAsAMinionSeesThem(t *testing.T) {
	t.Parallel()
	m := startMaster(t, protocol.KeyPending)
	o := m.options(t)
	l := connect(t, o)
	if l.Ready() || l.State() != protocol.KeyPending {
		t.Errorf("ready %v, state %s; want pending", l.Ready(), l.State())
	}
	m.states <- protocol.KeyFull
	m.states <- protocol.KeyAccepted
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := l.Wait(ctx); err != nil {
		t.Errorf("after it was accepted: %v", err)
	}
	if l.Ready() {
		t.Error("a connection that was made with an unaccepted key believes it has the rights of a minion")
	}
}

func TestRefusedKeys(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for state, want := range map[protocol.KeyState]error{protocol.KeyRejected: upstream.ErrRejected, protocol.KeyDenied: upstream.ErrDenied} {
		m := startMaster(t, state)
		o := m.options(t)
		_, err := upstream.Connect(ctx, o)
		if !errors.Is(err, want) || !strings.Contains(err.Error(), o.Key.Public().SHA256()) || salt.Hint(err) == "" {
			t.Errorf("%s: %v, want %v with the fingerprint and a hint", state, err, want)
		}
		accept := "salt-key -a '" + string(o.ID) + "@SHA256:" + o.Key.Public().SHA256() + "' --include-denied"
		if strings.Contains(salt.Hint(err), accept) != (state == protocol.KeyDenied) || strings.Contains(salt.Hint(err), "autoreject_file") != (state == protocol.KeyRejected) {
			t.Errorf("%s: the hint is %q", state, salt.Hint(err))
		}
		m = startMaster(t, protocol.KeyPending, state)
		if err := connect(t, m.options(t)).Wait(ctx); !errors.Is(err, want) {
			t.Errorf("%s while it waits: %v, want %v", state, err, want)
		}
	}
}

func TestLostWhileWaiting(t *testing.T) {
	t.Parallel()
	m := startMaster(t, protocol.KeyPending)
	l := connect(t, m.options(t))
	m.Connections(func(_ bus.Identity, cut func()) { cut() })
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := l.Wait(ctx); !errors.Is(err, rpc.ErrLost) {
		t.Errorf("%v, want ErrLost", err)
	}
	select {
	case <-l.Closed:
	case <-ctx.Done():
		t.Error("the link does not know that it ended")
	}
}

func TestCallerAsksForLess(t *testing.T) {
	t.Parallel()
	m := startMaster(t, protocol.KeyAccepted)
	o := m.options(t)
	m.Accept(o.ID, o.Key)
	o.Caller = true
	connect(t, o)
	m.Connections(func(i bus.Identity, _ func()) {
		if i.Role != bus.RoleCaller {
			t.Errorf("salt-call is %s", i)
		}
	})
}

// What others could have written is not a reason to trust a master, nor to trust a
// new one.
func TestPinFileThatIsNoProof(t *testing.T) {
	t.Parallel()
	m := startMaster(t)
	good := m.Key.Public().PEM()
	for name, c := range map[string]struct {
		mode    fs.FileMode
		content []byte
	}{
		"group may write":  {0o664, good},
		"others may write": {0o646, good},
		"junk":             {0o644, []byte("trust me")},
		"empty":            {0o644, nil},
		"a private key":    {0o600, m.Key.PEM()},
	} {
		o := m.options(t)
		if err := os.WriteFile(o.PinFile, c.content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(o.PinFile, c.mode); err != nil {
			t.Fatal(err)
		}
		l, err := upstream.Connect(t.Context(), o)
		if err == nil || salt.Hint(err) == "" {
			t.Errorf("%s: %v, %v (hint %q); want an error with a hint", name, l, err, salt.Hint(err))
		}
		if b, _ := os.ReadFile(o.PinFile); !bytes.Equal(b, c.content) {
			t.Errorf("%s: the file was changed to %q", name, b)
		}
	}
	if n := m.asked.Load(); n > 0 {
		t.Errorf("%d questions reached the master", n)
	}
}

const info = `INFO {"server_id":"x","server_name":"x","version":"2.15.2","proto":1,"host":"127.0.0.1","port":4506,"headers":true,"max_payload":1048576%s}` + "\r\n"

// impostor listens and lets play be the master for each connection.
func impostor(t *testing.T, play func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			play(c)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); deadline.Receive(t, done, "done") })
	return l.Addr().String()
}

// untilGone reads what a peer sends until it hangs up.
func untilGone(c net.Conn) []byte {
	var b bytes.Buffer
	_, _ = b.ReadFrom(bufio.NewReader(c))
	return b.Bytes()
}

// A certificate can be copied from any handshake; without its key it is nothing.
func TestCopiedCertificateOfTheMaster(t *testing.T) {
	t.Parallel()
	victim, own := bustest.Key(t), bustest.Key(t)
	certificate, err := victim.Certificate("salt-master")
	if err != nil {
		t.Fatal(err)
	}
	certificate.PrivateKey = own.Signer()
	said := make(chan []byte, 10)
	address := impostor(t, func(c net.Conn) {
		fmt.Fprintf(c, info, `,"tls_required":true`)
		s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13})
		_ = s.Handshake() // fails as the client hangs up
		said <- untilGone(s)
	})
	for name, pinned := range map[string]bool{"first contact": false, "pinned": true} {
		o := options(t, address)
		want := (*pki.PrivateKey)(nil)
		if pinned {
			want = victim
			if err := os.WriteFile(o.PinFile, victim.Public().PEM(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		l, err := upstream.Connect(t.Context(), o)
		if err == nil || errors.Is(err, upstream.ErrMasterKey) {
			t.Errorf("%s: %v, %v; want an error, and none that says the key has changed", name, l, err)
		}
		expectPin(t, o, want)
		if b := deadline.Receive(t, said, "said"); len(b) > 0 {
			t.Errorf("%s: the minion said %q", name, b)
		}
	}
}

// Peers that are not a master: each is an error in clear words, pins nothing, and
// hears nothing of the minion.
func TestNoMaster(t *testing.T) {
	t.Parallel()
	certificate, err := bustest.Key(t).Certificate("salt-master")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		play func(net.Conn) []byte
		want string
	}{
		"NATS without TLS": {func(c net.Conn) []byte { fmt.Fprintf(c, info, ""); return untilGone(c) }, "there is no TLS on that port"},
		"TLS is denied": {func(c net.Conn) []byte {
			fmt.Fprintf(c, info, `,"tls_required":false,"tls_available":false`)
			return untilGone(c)
		}, "there is no TLS on that port"},
		"another protocol": {func(c net.Conn) []byte { fmt.Fprint(c, "SSH-2.0-OpenSSH_9.9\r\n"); return untilGone(c) }, ""},
		"endless words":    {func(c net.Conn) []byte { _, _ = c.Write(bytes.Repeat([]byte("x"), 1<<20)); return nil }, ""},
		"hangs up":         {func(c net.Conn) []byte { return nil }, ""},
		"TLS 1.2": {func(c net.Conn) []byte {
			fmt.Fprintf(c, info, `,"tls_required":true`)
			s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{certificate}, MaxVersion: tls.VersionTLS12})
			_ = s.Handshake() // refused by the client
			return untilGone(s)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := make(chan []byte, 10)
			o := options(t, impostor(t, func(conn net.Conn) { said <- c.play(conn) }))
			l, err := upstream.Connect(t.Context(), o)
			if err == nil || errors.Is(err, upstream.ErrMasterKey) {
				t.Fatalf("%v, %v; want an error that is not a refusal", l, err)
			}
			if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), o.Address) {
				t.Errorf("error %q, want the address and %q", err, c.want)
			}
			if b := deadline.Receive(t, said, "said"); bytes.Contains(b, []byte("CONNECT")) || bytes.Contains(b, []byte("web1")) {
				t.Errorf("the minion said %q", b)
			}
			expectPin(t, o, nil)
		})
	}
}

// TestALossIsSeenInTime: within two of master_alive_interval a master that answers no longer
// is given up and the next one is in use. The client ends a connection when it would have to
// send one more ping than may be without an answer.
func TestALossIsSeenInTime(t *testing.T) {
	t.Parallel()
	for _, alive := range []time.Duration{time.Second, 30 * time.Second, 0} {
		m := startMaster(t, protocol.KeyAccepted)
		o := m.options(t)
		cfg := &config.Minion{MasterAliveInterval: alive}
		cfg.PKIDir = t.TempDir()
		o.PingInterval = upstream.FromConfig(cfg, o.Key, "127.0.0.1", bustest.Log(t)).PingInterval
		most := 2*alive - alive/2 // the rest is for the next master
		if alive == 0 {
			most = 20 * time.Second
		}
		in := connect(t, o).NC.Opts
		if seen := in.PingInterval * time.Duration(in.MaxPingsOut+1); seen > most || seen < alive {
			t.Errorf("master_alive_interval %s: a loss is seen after %s, want %s at most", alive, seen, most)
		}
	}
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	nobody := fmt.Sprintf("127.0.0.1:%d", port.Free(t))
	if _, err := upstream.Connect(t.Context(), options(t, nobody)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v, want ECONNREFUSED", err)
	}
}

// stuck are the points at which a peer may stop to speak.
func stuck(t *testing.T) map[string]func(net.Conn) {
	t.Helper()
	certificate, err := bustest.Key(t).Certificate("salt-master")
	if err != nil {
		t.Fatal(err)
	}
	return map[string]func(net.Conn){
		"after it took the call": func(c net.Conn) { untilGone(c) },
		"in the greeting":        func(c net.Conn) { fmt.Fprint(c, "INFO {"); untilGone(c) },
		"before TLS":             func(c net.Conn) { fmt.Fprintf(c, info, `,"tls_required":true`); untilGone(c) },
		"after TLS": func(c net.Conn) {
			fmt.Fprintf(c, info, `,"tls_required":true`)
			untilGone(tls.Server(c, &tls.Config{Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAnyClientCert}))
		},
	}
}

func TestSilenceIsBounded(t *testing.T) {
	t.Parallel()
	for name, play := range stuck(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t, impostor(t, play))
			o.Timeout = 100 * time.Millisecond
			began := time.Now()
			if l, err := upstream.Connect(t.Context(), o); err == nil {
				t.Fatalf("connected: %v", l)
			}
			if took := time.Since(began); took > limit {
				t.Errorf("it took %s with a timeout of %s", took, o.Timeout)
			}
		})
	}
	t.Run("no answer to the question", func(t *testing.T) {
		t.Parallel()
		m := startMaster(t)
		o := m.options(t)
		o.Timeout = time.Second
		if _, err := upstream.Connect(t.Context(), o); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want a deadline", err)
		}
	})
}

// Whoever stops does not wait for a peer that says nothing.
func TestTheEndOfTheContextEndsTheAttempt(t *testing.T) {
	t.Parallel()
	for name, play := range stuck(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stopping := errors.New("stopping")
			ctx, cancel := context.WithCancelCause(t.Context())
			o := options(t, impostor(t, func(c net.Conn) {
				cancel(stopping)
				play(c)
			}))
			o.Timeout = time.Hour
			done := make(chan error, 1)
			go func() {
				_, err := upstream.Connect(ctx, o)
				done <- err
			}()
			select {
			case err := <-done:
				if !errors.Is(err, stopping) {
					t.Errorf("%v, want %v", err, stopping)
				}
			case <-time.After(limit):
				t.Fatal("the attempt goes on")
			}
		})
	}
}

// endsOnceConnected ends at the moment in which there is a connection.
type endsOnceConnected struct {
	context.Context
	end       context.CancelFunc
	looks     atomic.Int32
	connected chan struct{}
}

// Err is asked once before there are addresses, and then when one of them has answered.
func (c *endsOnceConnected) Err() error {
	if c.looks.Add(1) > 1 {
		select {
		case <-c.connected:
		case <-time.After(limit):
		}
		c.end()
	}
	return c.Context.Err()
}

// An attempt that ends at the moment in which the connection stands closes it.
func TestTheEndOfTheContextClosesTheConnection(t *testing.T) {
	t.Parallel()
	inner, end := context.WithCancel(t.Context())
	defer end()
	ctx, gone := &endsOnceConnected{Context: inner, end: end, connected: make(chan struct{})}, make(chan error, 1)
	o := options(t, impostor(t, func(c net.Conn) {
		close(ctx.connected)
		_ = c.SetReadDeadline(time.Now().Add(limit))
		_, err := c.Read(make([]byte, 1))
		gone <- err
	}))
	o.Timeout = time.Hour
	if _, err := upstream.Connect(ctx, o); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, want %v", err, context.Canceled)
	}
	if err := deadline.Receive(t, gone, "gone"); !errors.Is(err, io.EOF) {
		t.Errorf("nobody uses the connection, and it stands: %v", err)
	}
}

// Not parallel: it looks at all goroutines.
func TestAttemptsLeaveNothingBehind(t *testing.T) {
	bustest.CheckLeaks(t)
	if _, err := upstream.Connect(t.Context(), startMaster(t, protocol.KeyRejected).options(t)); !errors.Is(err, upstream.ErrRejected) {
		t.Error(err)
	}
	m := startMaster(t, protocol.KeyAccepted)
	o := m.options(t)
	connect(t, o).Close()
	if err := os.WriteFile(o.PinFile, bustest.Key(t).Public().PEM(), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := upstream.Connect(t.Context(), o); !errors.Is(err, upstream.ErrMasterKey) {
		t.Error(err)
	}
	for name, play := range stuck(t) {
		o := options(t, impostor(t, play))
		o.Timeout = 50 * time.Millisecond
		if _, err := upstream.Connect(t.Context(), o); err == nil {
			t.Errorf("%s: connected", name)
		}
	}
}
